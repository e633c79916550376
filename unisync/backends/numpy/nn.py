"""The operations that neural networks are made of."""

from __future__ import annotations

import autograd.numpy as anp
import numpy as np

from unisync.backends.numpy import _dtypes, _operations
from unisync.backends.numpy._conv import (
    avg_pool2d as avg_pool2d,
    conv1d as conv1d,
    conv2d as conv2d,
    max_pool2d as max_pool2d,
)
from unisync.backends.numpy._norm import group_norm as group_norm, layer_norm as layer_norm, rms_norm as rms_norm
from unisync.backends.numpy._tape import getval as _getval


def _where(condition, x, y):
    return _operations.where(_getval(condition), x, y)


def elu(x, /, *, alpha=1.0):
    return _where(x > 0, x, alpha * anp.expm1(anp.minimum(x, 0)))


def gelu(x, /, *, approximate=False):
    if approximate:
        return 0.5 * x * (1 + anp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    return x * (0.5 + 0.5 * _operations.erf(x * 0.7071067811865476))


def leaky_relu(x, /, *, negative_slope=0.01):
    return _where(x > 0, x, negative_slope * x)


def relu(x, /):
    return _where(x > 0, x, 0.0)


def sigmoid(x, /):
    small = anp.exp(-anp.abs(x))
    return _where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def silu(x, /):
    return x * sigmoid(x)


def softplus(x, /):
    return _where(x > 0, x, 0.0) + anp.log1p(anp.exp(-anp.abs(x)))


def softmax(x, /, *, axis=-1):
    e = anp.exp(x - np.max(_getval(x), axis=axis, keepdims=True))
    return e / _operations.sum(e, axis, True)


def log_softmax(x, /, *, axis=-1):
    return x - logsumexp(x, axis=axis, keepdims=True)


def logsumexp(x, /, *, axis=None, keepdims=False):
    top = np.max(_getval(x), axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    result = anp.log(_operations.sum(anp.exp(x - top), axis, True)) + top
    return result if keepdims else _operations.sum(result, axis, False)


def one_hot(x, /, num_classes, *, dtype=None):
    hot = np.asarray(_getval(x))[..., None] == np.arange(num_classes)
    return hot.astype(_dtypes.native_or(dtype, _dtypes.FLOAT))


def linear(x, weight, bias=None, /):
    y = anp.matmul(x, weight.T)
    return y if bias is None else y + bias


def scaled_dot_product_attention(query, key, value, /, *, mask=None, causal=False, scale=None):
    if scale is None:
        scale = query.shape[-1] ** -0.5
    scores = anp.matmul(query * scale, anp.swapaxes(key, -1, -2))
    if causal:
        mask = np.tri(scores.shape[-2], scores.shape[-1], dtype=bool)
    if mask is not None:
        scores = _where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    return anp.matmul(softmax(scores), value)


def embedding(weight, indices, /):
    return _operations.take(weight, indices, 0)


def softmax_cross_entropy_with_integer_labels(logits, labels, /):
    picked = _operations.take_along_axis(logits, np.asarray(_getval(labels))[..., None], -1)[..., 0]
    return logsumexp(logits, axis=-1) - picked

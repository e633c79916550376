"""The operations that neural networks are made of."""

from __future__ import annotations

import numpy as np

from unisync.backends.numpy import _attention, _dtypes, _losses, _operations
from unisync.backends.numpy._activations import (
    elu as elu,
    gelu as gelu,
    leaky_relu as leaky_relu,
    relu as relu,
    sigmoid as sigmoid,
    silu as silu,
    softplus as softplus,
)
from unisync.backends.numpy._conv import (
    avg_pool2d as avg_pool2d,
    conv1d as conv1d,
    conv2d as conv2d,
    max_pool2d as max_pool2d,
)
from unisync.backends.numpy._linear import linear as linear
from unisync.backends.numpy._norm import group_norm as group_norm, layer_norm as layer_norm, rms_norm as rms_norm
from unisync.backends.numpy._tape import getval as _getval
from unisync.errors import ArgumentError


def softmax(x, /, *, axis=-1):
    return _losses.softmax(x, axis)


def log_softmax(x, /, *, axis=-1):
    return _losses.log_softmax(x, axis)


def logsumexp(x, /, *, axis=None, keepdims=False):
    return _losses.logsumexp(x, axis, keepdims)


def one_hot(x, /, num_classes, *, dtype=None):
    hot = np.asarray(_getval(x))[..., None] == np.arange(num_classes)
    return hot.astype(_dtypes.native_or(dtype, _dtypes.FLOAT))


def scaled_dot_product_attention(query, key, value, /, *, mask=None, causal=False, scale=None):
    if causal and mask is not None:
        raise ArgumentError("`mask` must be None where causal=True, got both. Try: put the causal mask into `mask`.")
    if causal:
        mask = np.tri(query.shape[-2], key.shape[-2], dtype=bool)
    return _attention.attention(query, key, value, mask, query.shape[-1] ** -0.5 if scale is None else scale)


def embedding(weight, indices, /):
    return _operations.take(weight, indices, 0)


def softmax_cross_entropy_with_integer_labels(logits, labels, /, *, mean=False):
    values = _losses.cross_entropy(logits, np.asarray(_getval(labels)))
    return _operations.mean(values, None, False) if mean else values

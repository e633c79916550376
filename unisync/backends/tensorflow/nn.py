"""The operations that neural networks are made of."""

from __future__ import annotations

import math as _math
from typing import Any

import numpy as np
import tensorflow as tf

from unisync._types import Padding
from unisync.backends.tensorflow import _conv, _dtypes, _shapes
from unisync.errors import ArgumentError

relu = tf.nn.relu
sigmoid = tf.sigmoid
silu = tf.nn.silu
softplus = tf.math.softplus


def elu(x, /, *, alpha=1.0):
    if alpha == 1.0:
        return tf.nn.elu(x)
    return tf.where(x > 0, x, alpha * tf.math.expm1(tf.minimum(x, 0)))


def gelu(x, /, *, approximate=False):
    # Written out: tf.nn.gelu rounds its constants to float32.
    if approximate:
        return 0.5 * x * (1.0 + tf.tanh(_math.sqrt(2 / _math.pi) * (x + 0.044715 * (x * x * x))))
    return 0.5 * x * (1.0 + tf.math.erf(x * _math.sqrt(0.5)))


def leaky_relu(x, /, *, negative_slope=0.01):
    if x.dtype == tf.float64:  # the kernel's slope is a float32
        return tf.where(x > 0, x, negative_slope * x)
    return tf.nn.leaky_relu(x, negative_slope)


def softmax(x, /, *, axis=-1):
    return tf.nn.softmax(x, axis)


def log_softmax(x, /, *, axis=-1):
    return tf.nn.log_softmax(x, axis)


def logsumexp(x, /, *, axis=None, keepdims=False):
    return tf.reduce_logsumexp(x, _shapes.reduction_axes(x, axis), keepdims)


def one_hot(x, /, num_classes, *, dtype=None):
    if x.dtype not in (tf.uint8, tf.int8, tf.int32, tf.int64):
        x = tf.cast(x, tf.int64)
    native = _dtypes.native_or(dtype, _dtypes.FLOAT)
    if native == tf.bool:
        return tf.one_hot(x, num_classes, True, False, dtype=native)
    return tf.one_hot(x, num_classes, dtype=native)


def linear(x, weight, bias=None, /):
    if x.shape.rank == 2:
        y = tf.matmul(x, weight, transpose_b=True)
        return y if bias is None else tf.nn.bias_add(y, bias)
    # One matrix product of all rows: with more axes tf.matmul would multiply matrix by matrix.
    *rows, features = _shapes.shape_of(x)
    y = linear(tf.reshape(x, [-1, features]), weight, bias)
    return tf.reshape(y, [*rows, weight.shape[0]])


def conv1d(x, weight, bias=None, /, *, stride=1, padding=0, dilation=1, groups=1, data_format="NLC"):
    height = 1 if data_format == "NLC" else 2
    y = conv2d(
        tf.expand_dims(x, height),
        tf.expand_dims(weight, 2),
        bias,
        stride=(1, stride),
        padding=padding if isinstance(padding, str) else (0, _single(padding)),
        dilation=(1, dilation),
        groups=groups,
        data_format="NHWC" if data_format == "NLC" else "NCHW",
    )
    return tf.squeeze(y, [height])


def _single(n: Any) -> int:
    return n if isinstance(n, int) else n[0]


def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    /,
    *,
    stride: int | tuple[int, int] = 1,
    padding: Padding = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    data_format: str = "NHWC",
) -> Any:
    # The CPU has kernels for NHWC only; on a GPU the layout optimizer takes the transposes away.
    x = _channels_last(x, data_format)
    y = _conv.convolve(x, weight, _pair(stride), _explicit(padding), _pair(dilation), groups)
    y = y if bias is None else tf.nn.bias_add(y, bias)
    return _as_format(y, data_format)


def _channels_last(x: Any, data_format: str) -> Any:
    return tf.transpose(x, [0, 2, 3, 1]) if data_format == "NCHW" else x


def _as_format(y: Any, data_format: str) -> Any:
    return tf.transpose(y, [0, 3, 1, 2]) if data_format == "NCHW" else y


def _pair(n: Any) -> tuple[int, int]:
    return (n, n) if isinstance(n, int) else tuple(n)


def _explicit(padding: Any) -> Any:
    """Zeros on both sides of height and width, as TensorFlow's convolutions take them."""
    if isinstance(padding, str):
        return padding.upper()
    rows, columns = _pair(padding)
    return [[0, 0], [rows, rows], [columns, columns], [0, 0]] if rows or columns else "VALID"


def avg_pool2d(x, /, window, *, stride=None, padding=0, data_format="NHWC"):
    x = _channels_last(x, data_format)
    around = _explicit(padding)
    if around != "VALID":
        x = tf.pad(x, around)
    y = tf.nn.avg_pool2d(x, _pair(window), _pair(window if stride is None else stride), "VALID")
    return _as_format(y, data_format)


def max_pool2d(x, /, window, *, stride=None, padding=0, data_format="NHWC"):
    x = _channels_last(x, data_format)
    y = tf.nn.max_pool2d(x, _pair(window), _pair(window if stride is None else stride), _explicit(padding))
    return _as_format(y, data_format)


def layer_norm(x, weight=None, bias=None, /, *, ndim=1, eps=1e-5):
    return _normalized(x, list(range(-ndim, 0)), weight, bias, eps)


def _normalized(x: Any, axes: list[int], weight: Any, bias: Any, eps: float) -> Any:
    mean = tf.reduce_mean(x, axes, keepdims=True)
    centred = x - mean
    variance = tf.reduce_mean(tf.square(centred), axes, keepdims=True)
    y = centred * tf.math.rsqrt(variance + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def rms_norm(x, weight=None, /, *, eps=None):
    if eps is None:
        eps = float(np.finfo(x.dtype.as_numpy_dtype).eps) if x.dtype != tf.bfloat16 else 2.0**-7
    y = x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + eps)
    return y if weight is None else y * weight


def group_norm(x, groups, weight=None, bias=None, /, *, eps=1e-5, data_format="NHWC"):
    shape = _shapes.shape_of(x)
    if data_format.startswith("NC"):
        n, channels, *places = shape
        y = tf.reshape(x, [n, groups, channels // groups, *places])
        y = _normalized(y, list(range(2, len(shape) + 1)), None, None, eps)
        per_channel = [channels] + [1] * len(places)
    else:
        n, *places, channels = shape
        y = tf.reshape(x, [n, *places, groups, channels // groups])
        y = _normalized(y, [*range(1, len(shape) - 1), len(shape)], None, None, eps)
        per_channel = [channels]
    y = tf.reshape(y, shape)
    y = y if weight is None else y * tf.reshape(weight, per_channel)
    return y if bias is None else y + tf.reshape(bias, per_channel)


def scaled_dot_product_attention(query, key, value, /, *, mask=None, causal=False, scale=None):
    if causal and mask is not None:
        raise ArgumentError("`mask` must be None if causal is True, got both. Try: fold the causal part into the mask.")
    scale = 1 / _math.sqrt(query.shape[-1]) if scale is None else scale
    scores = tf.matmul(query * scale, key, transpose_b=True)
    if causal:
        scores += _causal(_shapes.shape_of(query)[-2], _shapes.shape_of(key)[-2], scores.dtype)
    elif mask is not None and mask.dtype == tf.bool:
        scores = tf.where(mask, scores, tf.constant(-np.inf, scores.dtype))
    elif mask is not None:
        scores += mask
    return tf.matmul(tf.nn.softmax(scores), value)


def _causal(rows: Any, columns: Any, dtype: Any) -> Any:
    """Zero where position i sees position j ≤ i, minus infinity elsewhere."""
    if isinstance(rows, int) and isinstance(columns, int):
        return tf.constant(np.where(np.tri(rows, columns, dtype=bool), 0.0, -np.inf), dtype)
    visible = tf.range(columns)[None, :] <= tf.range(rows)[:, None]
    return tf.where(visible, tf.zeros((), dtype), tf.constant(-np.inf, dtype))


def embedding(weight, indices, /):
    if indices.dtype not in (tf.int32, tf.int64):
        indices = tf.cast(indices, tf.int64)
    return tf.gather(weight, indices)


def softmax_cross_entropy_with_integer_labels(logits, labels, /, *, mean=False):
    if labels.dtype not in (tf.int32, tf.int64):
        labels = tf.cast(labels, tf.int64)
    values = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tf.reduce_mean(values) if mean else values

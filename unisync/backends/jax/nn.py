"""The operations of neural networks."""

from __future__ import annotations

import functools as _functools
import math
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import lax

from unisync import _dtypes as _us_dtypes, _labels
from unisync.backends.jax import _dtypes, _windows
from unisync.backends.jax.indexing import _IN_BOUNDS, _rows
from unisync.errors import ArgumentError, DataError, ShapeError, unknown


def elu(x, /, *, alpha=1.0):
    return jax.nn.elu(x, alpha)


def gelu(x, /, *, approximate=False):
    return jax.nn.gelu(x, approximate=approximate)


def leaky_relu(x, /, *, negative_slope=0.01):
    return jnp.where(x > 0, x, negative_slope * x)  # not jax.nn's, whose slope at 0 is 1


def relu(x, /):
    return jnp.where(
        x <= 0, 0, x
    )  # NaN stays, and the gradient at 0 is 0; in eager code a seventh of jax.nn.relu's time


def sigmoid(x, /):
    return lax.logistic(x)


def silu(x, /):
    return jax.nn.silu(x)


def softplus(x, /):
    return jax.nn.softplus(x)


def softmax(x, /, *, axis=-1):
    return jax.nn.softmax(x, axis=axis)


def log_softmax(x, /, *, axis=-1):
    return jax.nn.log_softmax(x, axis=axis)


def logsumexp(x, /, *, axis=None, keepdims=False):
    return jax.nn.logsumexp(x, axis=axis, keepdims=keepdims)


def one_hot(x, /, num_classes, *, dtype=None):
    return jax.nn.one_hot(x, num_classes, dtype=_dtypes.native_or(dtype, _dtypes.FLOAT))


def linear(x, weight, bias=None, /):
    if x.dtype != weight.dtype:
        x, weight = _dtypes.meet(x, weight)
    y = lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))
    return y if bias is None else y + bias


def conv1d(x, weight, bias=None, /, *, stride=1, padding=0, dilation=1, groups=1, data_format="NLC"):
    return _conv(x, weight, bias, stride, padding, dilation, groups, data_format, ("NLC", "NCL"))


def conv2d(x, weight, bias=None, /, *, stride=1, padding=0, dilation=1, groups=1, data_format="NHWC"):
    return _conv(x, weight, bias, stride, padding, dilation, groups, data_format, ("NHWC", "NCHW"))


def _conv(x, weight, bias, stride, padding, dilation, groups, data_format, formats):
    channels_last = _channels_last(data_format, formats)
    ndim = len(formats[0]) - 2
    strides, dilation = _per_axis(stride, ndim), _per_axis(dilation, ndim)
    channels = x.shape[-1 if channels_last else 1]
    if channels != weight.shape[1] * groups or x.ndim != ndim + 2:
        raise ShapeError(
            f"`x` must be of layout {data_format} with {weight.shape[1] * groups} channels for a weight of shape "
            f"{weight.shape}, got shape {x.shape}. Try: data_format={formats[channels_last]!r}."
        )
    if x.dtype != weight.dtype:
        x, weight = _dtypes.meet(x, weight)
    lengths = x.shape[1:-1] if channels_last else x.shape[2:]
    pads = _pads(padding, lengths, weight.shape[2:], strides, dilation)
    y = _windows.convolution(
        x, weight, strides=strides, pads=pads, dilation=dilation, groups=groups, channels_last=channels_last
    )
    if bias is None:
        return y
    return y + (bias if channels_last else bias.reshape(-1, *(1,) * ndim))


def _channels_last(data_format: str, formats: tuple[str, ...]) -> bool:
    if data_format not in formats:
        raise unknown("data_format", data_format, formats)
    return data_format == formats[0]


def _per_axis(value: Any, ndim: int) -> tuple[int, ...]:
    return (value,) * ndim if isinstance(value, int) else tuple(value)


def _pads(padding: Any, lengths: Any, window: Any, strides: Any, dilation: Any) -> tuple[tuple[int, int], ...]:
    """Zeros before and after, per axis."""
    if padding == "valid":
        padding = 0
    if padding == "same":
        pads = []
        for length, k, s, d in zip(lengths, window, strides, dilation, strict=True):
            total = max((-(-length // s) - 1) * s + (k - 1) * d + 1 - length, 0)
            pads.append((total // 2, total - total // 2))
        return tuple(pads)
    if isinstance(padding, str):
        raise unknown("padding", padding, ("valid", "same"))
    return tuple((p, p) for p in _per_axis(padding, len(window)))


def avg_pool2d(x, /, window, *, stride=None, padding=0, data_format="NHWC"):
    return _windows.avg_pool(x, **_pooling(window, stride, padding, data_format))


def max_pool2d(x, /, window, *, stride=None, padding=0, data_format="NHWC"):
    return _windows.max_pool(x, **_pooling(window, stride, padding, data_format))


def _pooling(window: Any, stride: Any, padding: Any, data_format: str) -> dict[str, Any]:
    window, padding = _per_axis(window, 2), _per_axis(padding, 2)
    if any(2 * p > k for p, k in zip(padding, window, strict=True)):
        raise ArgumentError(f"`padding` must be at most half of the window {window}, got {padding}. Try: padding=0.")
    return {
        "window": window,
        "strides": window if stride is None else _per_axis(stride, 2),
        "pads": tuple((p, p) for p in padding),
        "channels_last": _channels_last(data_format, ("NHWC", "NCHW")),
    }


def layer_norm(x, weight=None, bias=None, /, *, ndim=1, eps=1e-5):
    return _layer_norm(x, weight, bias, ndim=ndim, eps=eps)


@_functools.partial(jax.jit, static_argnames=("ndim", "eps"))
def _layer_norm(x, weight, bias, *, ndim, eps):
    return _affine(_normalized(x, tuple(range(-ndim, 0)), eps), weight, bias)


def _normalized(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    wide = _wide(x)
    centred = wide - jnp.mean(wide, axis=axes, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=axes, keepdims=True)
    return (centred * lax.rsqrt(variance + eps)).astype(x.dtype)


def _wide(x: Any) -> Any:
    """x in a precision that sums well: float32 for the 16-bit dtypes."""
    return x.astype(_dtypes.FLOAT) if x.dtype.itemsize < 4 else x


def _affine(y: Any, weight: Any, bias: Any) -> Any:
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


def rms_norm(x, weight=None, /, *, eps=None):
    return _rms_norm(x, weight, eps=_us_dtypes.finfo(_dtypes.name_of(x)).eps if eps is None else eps)


@_functools.partial(jax.jit, static_argnames=("eps",))
def _rms_norm(x, weight, *, eps):
    wide = _wide(x)
    scale = lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + eps)
    return _affine((wide * scale).astype(x.dtype), weight, None)


def group_norm(x, groups, weight=None, bias=None, /, *, eps=1e-5, data_format="NHWC"):
    channels_last = not data_format.startswith("NC")
    channels = x.shape[-1 if channels_last else 1]
    if channels % groups:
        raise ShapeError(f"`groups` must divide the {channels} channels of x, got {groups}. Try: another data_format.")
    if not channels_last:
        x = jnp.moveaxis(x, 1, -1)
    y = _group_norm(x, weight, bias, groups=groups, eps=eps)
    return y if channels_last else jnp.moveaxis(y, -1, 1)


@_functools.partial(jax.jit, static_argnames=("groups", "eps"))
def _group_norm(x, weight, bias, *, groups, eps):
    grouped = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    axes = (*range(1, x.ndim - 1), x.ndim)
    return _affine(_normalized(grouped, axes, eps).reshape(x.shape), weight, bias)


def scaled_dot_product_attention(query, key, value, /, *, mask=None, causal=False, scale=None):
    if causal and mask is not None:
        raise ArgumentError("`mask` must be None with causal=True, got an array. Try: causal=False.")
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    return _attention(query, key, value, mask, causal=causal, scale=scale)


@_functools.partial(jax.jit, static_argnames=("causal", "scale"))
def _attention(query, key, value, mask, *, causal, scale):
    scores = _wide(jnp.matmul(query * scale, jnp.matrix_transpose(key)))
    if causal:
        mask = jnp.tri(query.shape[-2], key.shape[-2], dtype=bool)
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf) if mask.dtype == _dtypes.BOOL else scores + mask
    weights = jax.nn.softmax(scores, axis=-1) if causal or mask is None else _softmax_or_zeros(scores)
    return jnp.matmul(weights.astype(value.dtype), value)


def _softmax_or_zeros(scores: Any) -> Any:
    """The softmax of the last axis; zeros where nothing may be attended to, as in torch."""
    top = jnp.max(scores, axis=-1, keepdims=True)
    powers = jnp.exp(scores - lax.stop_gradient(jnp.where(jnp.isneginf(top), 0, top)))
    total = jnp.sum(powers, axis=-1, keepdims=True)
    return powers / jnp.where(total == 0, 1, total)


def embedding(weight, indices, /):
    rows = _on_host(indices)
    if rows is not None and not _labels.in_range(rows, weight.shape[0]):
        raise DataError(
            f"`indices` must lie in [0, {weight.shape[0]}), the rows of the weight, got numbers from {rows.min()} to "
            f"{rows.max()}. Try: an Embedding with more rows, or indices that count from 0."
        )
    return _rows(weight, indices)


def softmax_cross_entropy_with_integer_labels(logits, labels, /, *, mean=False):
    numbers = _on_host(labels)
    if numbers is not None:
        _labels.check_labels(numbers, logits.shape[-1])
    values = _cross_entropy(logits, labels)
    return jnp.mean(values) if mean else values


def _on_host(x: Any) -> np.ndarray | None:
    """The numbers of an array that has any and lies where reading them is cheap."""
    if isinstance(x, jax.core.Tracer) or getattr(getattr(x, "device", None), "platform", "") != "cpu":
        return None
    return np.asarray(x)


@jax.jit
def _cross_entropy(logits, labels):
    if logits.shape[-1] <= _FEW_CLASSES:
        rows = lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
        picked = jnp.sum(jnp.where(rows == labels[..., None].astype(jnp.int32), logits, 0), axis=-1)
    else:
        picked = jnp.take_along_axis(logits, labels[..., None], axis=-1, mode=_IN_BOUNDS)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - picked


_FEW_CLASSES = 256
"""Up to so many XLA fuses comparisons with what is computed anyway; a gather and, for its gradient, a scatter stand
alone. They take 4 of 320 µs in a step of a small classifier."""

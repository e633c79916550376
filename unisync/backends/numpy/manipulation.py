"""Functions that change an array's shape or put arrays together."""

from __future__ import annotations

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple as _normalize_axis_tuple

from unisync.backends.numpy import _dtypes, _operations
from unisync.backends.numpy._tape import anp, is_traced as _is_traced
from unisync.errors import ArgumentError


def broadcast_arrays(*arrays):
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    return [_operations.broadcast_to(x, shape) for x in arrays]


def broadcast_to(x, /, shape):
    return _operations.broadcast_to(x, tuple(shape) if not isinstance(shape, int) else (shape,))


def concat(arrays, /, *, axis=0):
    if axis is None:
        arrays, axis = [reshape(x, (-1,)) for x in arrays], 0
    return _operations.concat(_same_dtype(arrays), axis)


def _same_dtype(arrays):
    dtype = _dtypes.promoted(*arrays)
    return [x if _dtypes.dtype_of(x) == dtype else _operations.astype(x, dtype) for x in arrays]


def expand_dims(x, /, *, axis=0):
    return anp.expand_dims(x, axis) if _is_traced(x) else np.expand_dims(x, axis)


def flip(x, /, *, axis=None):
    axes = range(x.ndim) if axis is None else _normalize_axis_tuple(axis, x.ndim)
    return x[tuple(slice(None, None, -1 if a in axes else 1) for a in range(x.ndim))]


def moveaxis(x, source, destination, /):
    return anp.moveaxis(x, source, destination) if _is_traced(x) else np.moveaxis(x, source, destination)


def permute_dims(x, /, axes):
    return anp.transpose(x, tuple(axes)) if _is_traced(x) else np.transpose(x, axes)


def repeat(x, repeats, /, *, axis=None):
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    return (
        _operations.take(x, np.repeat(np.arange(x.shape[axis]), repeats), axis)
        if _is_traced(x)
        else np.repeat(x, repeats, axis)
    )


def reshape(x, /, shape, *, copy=None):
    if _is_traced(x):
        return anp.reshape(x, shape)
    reshaped = np.reshape(x, shape)
    if copy is None:
        return reshaped
    # np.reshape has `copy` from NumPy 2.1 on.
    shared = np.may_share_memory(reshaped, x)
    if copy is False and not shared and x.size:
        raise ArgumentError(
            f"`copy` must not be False where {x.shape} to {shape} needs one, got False. Try: copy=None."
        )
    return reshaped.copy() if copy and shared else reshaped


def roll(x, /, shift, *, axis=None):
    return _operations.roll(x, shift, axis)


def squeeze(x, /, axis):
    axis = axis if isinstance(axis, int) else tuple(axis)
    return anp.squeeze(x, axis) if _is_traced(x) else np.squeeze(x, axis)


def stack(arrays, /, *, axis=0):
    return _operations.stack(_same_dtype(arrays), axis)


def tile(x, repetitions, /):
    if not _is_traced(x):
        return np.tile(x, repetitions)
    repetitions = (1,) * (x.ndim - len(repetitions)) + tuple(repetitions)
    shape = (1,) * (len(repetitions) - x.ndim) + x.shape
    between = tuple(n for length in shape for n in (1, length))
    spread = tuple(n for pair in zip(repetitions, shape, strict=True) for n in pair)
    final = tuple(r * n for r, n in zip(repetitions, shape, strict=True))
    return reshape(_operations.broadcast_to(reshape(x, between), spread), final)


def unstack(x, /, *, axis=0):
    x = moveaxis(x, axis, 0)
    return tuple(x[i] for i in range(x.shape[0]))

"""Reductions and cumulative sums over axes."""

from __future__ import annotations

import numpy as np
from numpy.lib.array_utils import normalize_axis_index as _normalize_axis_index

from unisync.backends.numpy import _dtypes, _operations
from unisync.backends.numpy._tape import anp, is_traced as _is_traced
from unisync.errors import ArgumentError


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    if axis is None:
        if x.ndim != 1:
            raise ArgumentError(f"`axis` must be given for an array of {x.ndim} axes, got None. Try: axis=0.")
        axis = 0
    if dtype is not None:
        x = _operations.astype(x, _dtypes.native(dtype))
    axis = _normalize_axis_index(axis, x.ndim)
    sums = _operations.cumsum(x, axis)
    if include_initial:
        first = np.zeros((*x.shape[:axis], 1, *x.shape[axis + 1 :]), dtype=sums.dtype)
        sums = _operations.concat([first, sums], axis)
    return sums


def max(x, /, *, axis=None, keepdims=False):
    return (
        anp.max(x, axis=axis, keepdims=keepdims)
        if _is_traced(x)
        else np.maximum.reduce(x, axis=axis, keepdims=keepdims)
    )


def min(x, /, *, axis=None, keepdims=False):
    return (
        anp.min(x, axis=axis, keepdims=keepdims)
        if _is_traced(x)
        else np.minimum.reduce(x, axis=axis, keepdims=keepdims)
    )


def mean(x, /, *, axis=None, keepdims=False):
    return _operations.mean(_as_float(x), axis, keepdims)


def _as_float(x):
    dtype = _dtypes.dtype_of(x)
    return x if _dtypes.is_float(dtype) else _operations.astype(x, _dtypes.FLOAT)


def prod(x, /, *, axis=None, dtype=None, keepdims=False):
    if dtype is not None:
        x = _operations.astype(x, _dtypes.native(dtype))
    return _operations.prod(x, axis, keepdims)


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    x = _as_float(x)
    m = anp if _is_traced(x) else np
    return m.std(x, axis=axis, ddof=correction, keepdims=keepdims)


def sum(x, /, *, axis=None, dtype=None, keepdims=False):
    if dtype is not None:
        x = _operations.astype(x, _dtypes.native(dtype))
    return _operations.sum(x, axis, keepdims)


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    x = _as_float(x)
    m = anp if _is_traced(x) else np
    return m.var(x, axis=axis, ddof=correction, keepdims=keepdims)

"""Reductions and cumulative sums over axes."""

from __future__ import annotations

import jax.numpy as jnp

from unisync import _dtypes as _us_dtypes
from unisync.backends.jax import _dtypes


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    return jnp.cumulative_sum(x, axis=axis, dtype=_accumulator(x, dtype), include_initial=include_initial)


def max(x, /, *, axis=None, keepdims=False):
    return jnp.max(x, axis=axis, keepdims=keepdims)


def mean(x, /, *, axis=None, keepdims=False):
    return jnp.mean(_dtypes.floating(x), axis=axis, keepdims=keepdims)


def min(x, /, *, axis=None, keepdims=False):
    return jnp.min(x, axis=axis, keepdims=keepdims)


def prod(x, /, *, axis=None, dtype=None, keepdims=False):
    return jnp.prod(x, axis=axis, dtype=_accumulator(x, dtype), keepdims=keepdims)


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    return jnp.std(_dtypes.floating(x), axis=axis, correction=correction, keepdims=keepdims)


def sum(x, /, *, axis=None, dtype=None, keepdims=False):
    return jnp.sum(x, axis=axis, dtype=_accumulator(x, dtype), keepdims=keepdims)


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    return jnp.var(_dtypes.floating(x), axis=axis, correction=correction, keepdims=keepdims)


def _accumulator(x, dtype):
    if dtype is not None:
        return _dtypes.native(dtype)
    return _dtypes.native(_us_dtypes.accumulator(_dtypes.name_of(x))) if _dtypes.is_integer(x) else None

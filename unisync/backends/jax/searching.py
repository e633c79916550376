"""Functions that find elements."""

from __future__ import annotations

import jax
import jax.core
import jax.numpy as jnp

from unisync.backends.jax import _dtypes
from unisync.errors import TraceError


def argmax(x, /, *, axis=None, keepdims=False):
    return jnp.argmax(x, axis=axis, keepdims=keepdims)


def argmin(x, /, *, axis=None, keepdims=False):
    return jnp.argmin(x, axis=axis, keepdims=keepdims)


def count_nonzero(x, /, *, axis=None, keepdims=False):
    return jnp.sum(x != 0, axis=axis, keepdims=keepdims, dtype=_dtypes.INT)


def nonzero(x, /):
    if isinstance(x, jax.core.Tracer):
        raise TraceError(
            "`x` must have numbers, as the shape of the result depends on them, got an array that is being traced by a "
            "compiled function. Try: us.where(condition, x, 0)."
        )
    return jnp.nonzero(x)


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    if x1.dtype != x2.dtype:
        x1, x2 = _dtypes.meet(x1, x2)
    return jnp.searchsorted(x1, x2, side=side, sorter=sorter).astype(_dtypes.INT)


def where(condition, x1, x2, /):
    if type(x2) in _dtypes.NUMBERS:
        if type(x1) in _dtypes.NUMBERS:
            x1 = jnp.asarray(x1, _dtypes.native(type(x1)))
        x1 = _beside_number(x1, x2)
    elif type(x1) in _dtypes.NUMBERS:
        x2 = _beside_number(x2, x1)
    elif x1.dtype != x2.dtype:
        x1, x2 = _dtypes.meet(x1, x2)
    return jnp.where(condition, x1, x2)


def _beside_number(x, number):
    """x in the dtype that it has beside a number, which stays one: jax makes an array of it in C++."""
    dtype = _dtypes.with_number(x.dtype, type(number))
    return x if x.dtype == dtype else x.astype(dtype)

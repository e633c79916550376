"""Functions that pick elements by position. Positions out of range are undefined: jax clamps them."""

from __future__ import annotations

import jax.numpy as jnp

from unisync.errors import ArgumentError

_IN_BOUNDS = "promise_in_bounds"  # XLA clamps what breaks the promise; the default mode pays for NaNs there


def take(x, indices, /, *, axis=None):
    if axis is None and x.ndim != 1:
        raise ArgumentError(f"`axis` must be given for an array of {x.ndim} axes, got None. Try: axis=0.")
    axis = 0 if axis is None else axis % x.ndim
    return _rows(x, _from_start(indices, x.shape[axis]), axis)


def _rows(x, indices, axis=0):
    place = (slice(None),) * axis + (indices,)
    return x.at[place].get(mode=_IN_BOUNDS, wrap_negative_indices=False)


def take_along_axis(x, indices, /, *, axis=-1):
    return jnp.take_along_axis(x, _from_start(indices, x.shape[axis]), axis=axis, mode=_IN_BOUNDS)


def _from_start(indices, length):
    return indices if indices.dtype.kind == "u" else jnp.where(indices < 0, indices + length, indices)

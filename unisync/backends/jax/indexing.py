"""Functions that pick elements by position. Positions out of range are undefined: jax clamps them."""

from __future__ import annotations

import jax.numpy as jnp

_IN_BOUNDS = "promise_in_bounds"  # XLA clamps what breaks the promise; the default mode pays for NaNs there


def take(x, indices, /, *, axis=None):
    if axis is None:
        axis = 0 if x.ndim == 1 else None
    return jnp.take(x, _from_start(indices, x.size if axis is None else x.shape[axis]), axis=axis, mode=_IN_BOUNDS)


def take_along_axis(x, indices, /, *, axis=-1):
    return jnp.take_along_axis(x, _from_start(indices, x.shape[axis]), axis=axis, mode=_IN_BOUNDS)


def _from_start(indices, length):
    return indices if indices.dtype.kind == "u" else jnp.where(indices < 0, indices + length, indices)

"""Native random draws: jax's counter-based threefry, from the words of a unisync key.

`threefry2x32` is named, so that a draw does not depend on the user's `jax_default_prng_impl`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from unisync.backends.jax import _dtypes
from unisync.backends.jax._devices import place as _place


def uniform(key, shape=(), *, low=0.0, high=1.0, dtype=None, device=None):
    drawn = jax.random.uniform(_native(key), _shape(shape), _dtypes.native_or(dtype, _dtypes.FLOAT))
    if low == 0.0 and high == 1.0:
        return _place(drawn, device)
    scaled = drawn * (high - low) + low
    # In floating point low + drawn · (high − low) can round up to high, which does not belong to the interval.
    return _place(jnp.where(scaled < high, scaled, jnp.nextafter(jnp.asarray(high, drawn.dtype), low)), device)


def normal(key, shape=(), *, mean=0.0, std=1.0, dtype=None, device=None):
    drawn = jax.random.normal(_native(key), _shape(shape), _dtypes.native_or(dtype, _dtypes.FLOAT))
    return _place(drawn if mean == 0.0 and std == 1.0 else drawn * std + mean, device)


def bernoulli(key, p, shape=(), *, device=None):
    # Not jax.random.bernoulli, which in 64-bit mode draws float64 to compare with a Python float.
    return _place(jax.random.uniform(_native(key), _shape(shape), _dtypes.FLOAT) < p, device)


def _native(key):
    return jax.random.wrap_key_data(jnp.asarray(key.words()), impl="threefry2x32")


def _shape(shape):
    return (shape,) if isinstance(shape, int) else tuple(shape)

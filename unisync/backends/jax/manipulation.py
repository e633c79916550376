"""Functions that change an array's shape or put arrays together."""

from __future__ import annotations

import jax.numpy as jnp

from unisync.backends.jax import _dtypes

moveaxis = jnp.moveaxis
unstack = jnp.unstack


def broadcast_arrays(*arrays):
    return list(jnp.broadcast_arrays(*arrays))


def broadcast_to(x, /, shape):
    return jnp.broadcast_to(x, shape)


def concat(arrays, /, *, axis=0):
    return jnp.concat(_met(arrays), axis=axis)


def expand_dims(x, /, *, axis=0):
    return jnp.expand_dims(x, axis)


def flip(x, /, *, axis=None):
    return jnp.flip(x, axis)


def permute_dims(x, /, axes):
    return jnp.permute_dims(x, tuple(axes))


def repeat(x, repeats, /, *, axis=None):
    return jnp.repeat(x, repeats, axis=axis)


def reshape(x, /, shape, *, copy=None):
    return jnp.reshape(x, shape, copy=None if copy is False else copy)  # without copies in any sense that shows


def roll(x, /, shift, *, axis=None):
    return jnp.roll(x, shift, axis=axis)


def squeeze(x, /, axis):
    return jnp.squeeze(x, axis)


def stack(arrays, /, *, axis=0):
    return jnp.stack(_met(arrays), axis=axis)


def tile(x, repetitions, /):
    return jnp.tile(x, tuple(repetitions))


def _met(arrays):
    first = arrays[0].dtype
    return arrays if all(x.dtype == first for x in arrays) else _dtypes.meet(*arrays)

"""Functions that sort."""

from __future__ import annotations

import jax.numpy as jnp


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    return jnp.argsort(x, axis=axis, descending=descending, stable=stable)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    return jnp.sort(x, axis=axis, descending=descending, stable=stable)

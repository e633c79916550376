"""Products of matrices and vectors."""

from __future__ import annotations

import jax.numpy as jnp

from unisync.backends.jax import _dtypes

matrix_transpose = jnp.matrix_transpose


def matmul(x1, x2, /):
    if x1.dtype != x2.dtype:
        x1, x2 = _dtypes.meet(x1, x2)
    return jnp.matmul(x1, x2)


def tensordot(x1, x2, /, *, axes=2):
    if x1.dtype != x2.dtype:
        x1, x2 = _dtypes.meet(x1, x2)
    return jnp.tensordot(x1, x2, axes=axes)


def vecdot(x1, x2, /, *, axis=-1):
    if x1.dtype != x2.dtype:
        x1, x2 = _dtypes.meet(x1, x2)
    return jnp.vecdot(x1, x2, axis=axis)

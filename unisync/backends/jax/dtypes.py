"""Data types of jax arrays."""

from __future__ import annotations

from unisync.backends.jax import _dtypes
from unisync.backends.jax._devices import place as _place


def astype(x, dtype, /, *, copy=True, device=None):
    return _place(x.astype(_dtypes.native(dtype)), device)


def dtype_of(x, /):
    return _dtypes.name_of(x)

"""Data types: conversion and names."""

from __future__ import annotations

from unisync.backends.numpy import _dtypes, _operations
from unisync.backends.numpy._tape import is_traced as _is_traced
from unisync.backends.numpy.creation import _check_device


def astype(x, dtype, /, *, copy=True, device=None):
    _check_device(device)
    native = _dtypes.native(dtype)
    if _is_traced(x):
        return x if native == x.dtype else _operations.astype(x, native)
    return x.astype(native, copy=copy)


def dtype_of(x, /):
    return _dtypes.name_of(x.dtype)

"""Data types: conversion."""

from __future__ import annotations

import tensorflow as tf

from unisync.backends.tensorflow import _device, _dtypes


def astype(x, dtype, /, *, copy=True, device=None):
    native = _dtypes.native(dtype)
    with _device.on(device):
        if x.dtype == native:
            return tf.identity(x) if device else tf.convert_to_tensor(x)
        if x.dtype in _dtypes.COMPLEXES and native not in _dtypes.COMPLEXES:
            x = tf.math.real(x)  # what tf.cast does too, with a warning
        return tf.cast(x, native)


def dtype_of(x, /):
    return _dtypes.name_of(x.dtype)

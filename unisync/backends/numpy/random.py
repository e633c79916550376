"""Random numbers from keys, drawn by NumPy's Philox."""

from __future__ import annotations

import numpy as np

from unisync.backends.numpy import _dtypes
from unisync.backends.numpy.creation import _check_device


def uniform(key, shape=(), *, low=0.0, high=1.0, dtype=None, device=None):
    _check_device(device)
    native = _dtypes.native(float if dtype is None else dtype)
    drawn = np.asarray(key.generator().random(shape, dtype=_drawn_as(native)))
    if low != 0.0 or high != 1.0:
        drawn *= high - low
        drawn += low
    drawn = drawn.astype(native, copy=False)
    # Rounding may reach the upper end, which does not belong to the interval.
    return np.minimum(drawn, np.nextafter(native.type(high), native.type(low))) if native != np.float64 else drawn


def _drawn_as(native: np.dtype) -> type:
    return np.float64 if native == np.float64 else np.float32


def normal(key, shape=(), *, mean=0.0, std=1.0, dtype=None, device=None):
    _check_device(device)
    native = _dtypes.native(float if dtype is None else dtype)
    drawn = np.asarray(key.generator().standard_normal(shape, dtype=_drawn_as(native)))
    if std != 1.0:
        drawn *= std
    if mean != 0.0:
        drawn += mean
    return drawn.astype(native, copy=False)


def bernoulli(key, p, shape=(), *, device=None):
    _check_device(device)
    return np.asarray(key.generator().random(shape, dtype=np.float32) < p)

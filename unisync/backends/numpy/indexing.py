"""Functions that pick elements by position."""

from __future__ import annotations

from unisync.backends.numpy import _operations
from unisync.errors import ArgumentError


def take(x, indices, /, *, axis=None):
    if axis is None:
        if x.ndim != 1:
            raise ArgumentError(f"`axis` must be given for an array of {x.ndim} axes, got None. Try: axis=0.")
        axis = 0
    return _operations.take(x, indices, axis)


def take_along_axis(x, indices, /, *, axis=-1):
    return _operations.take_along_axis(x, indices, axis)

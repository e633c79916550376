"""Functions that sort."""

from __future__ import annotations

import numpy as np

from unisync.backends.numpy import _operations
from unisync.backends.numpy._tape import getval as _getval, is_traced as _is_traced
from unisync.backends.numpy.manipulation import flip as _flip


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    x = _getval(x)
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    # Equal elements keep their order if both the input and the result are reversed.
    return x.shape[axis] - 1 - _flip(np.argsort(_flip(x, axis=axis), axis=axis, stable=stable), axis=axis)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    if _is_traced(x):
        return _operations.take_along_axis(x, argsort(x, axis=axis, descending=descending, stable=stable), axis)
    ordered = np.sort(x, axis=axis, stable=stable)
    return _flip(ordered, axis=axis) if descending else ordered

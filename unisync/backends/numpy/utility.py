"""Tests of whole arrays."""

from __future__ import annotations

import numpy as np

from unisync.backends.numpy._tape import getval as _getval


def all(x, /, *, axis=None, keepdims=False):
    return np.all(_getval(x), axis=axis, keepdims=keepdims)


def any(x, /, *, axis=None, keepdims=False):
    return np.any(_getval(x), axis=axis, keepdims=keepdims)


def shares_memory(xs, ys):
    return not {id(_owner(x)) for x in xs}.isdisjoint(id(_owner(y)) for y in ys)


def _owner(x):
    """The array whose memory x is a view of."""
    x = _getval(x)
    while isinstance(x, np.ndarray) and x.base is not None:
        x = x.base
    return x

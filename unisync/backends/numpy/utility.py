"""Tests of whole arrays."""

from __future__ import annotations

import numpy as np

from unisync.backends.numpy._tape import getval as _getval


def all(x, /, *, axis=None, keepdims=False):
    return np.all(_getval(x), axis=axis, keepdims=keepdims)


def any(x, /, *, axis=None, keepdims=False):
    return np.any(_getval(x), axis=axis, keepdims=keepdims)

"""Functions that find elements."""

from __future__ import annotations

import numpy as np

from unisync.backends.numpy import _dtypes, _operations
from unisync.backends.numpy._tape import getval as _getval


def argmax(x, /, *, axis=None, keepdims=False):
    return np.argmax(_getval(x), axis=axis, keepdims=keepdims)


def argmin(x, /, *, axis=None, keepdims=False):
    return np.argmin(_getval(x), axis=axis, keepdims=keepdims)


def count_nonzero(x, /, *, axis=None, keepdims=False):
    return np.asarray(np.count_nonzero(_getval(x), axis=axis, keepdims=keepdims), dtype=_dtypes.INT)[()]


def nonzero(x, /):
    return np.nonzero(_getval(x))


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    return np.searchsorted(_getval(x1), _getval(x2), side=side, sorter=sorter)  # type: ignore[arg-type]


def where(condition, x1, x2, /):
    return _operations.where(_getval(condition), x1, x2)

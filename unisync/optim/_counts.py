"""The count of updates: a Python int in eager code, an int array in compiled code, and the numbers made from it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unisync._dispatch import namespace
from unisync.optim.base import Updates


def plain(count: Any) -> Any:
    """A count that is a host number as a Python int; other arrays as they are."""
    return int(count) if isinstance(count, (np.integer, np.ndarray)) else count


def real(count: Any, updates: Updates) -> Any:
    """A count as a number to calculate with: a Python int, or a 0-d array of float64 if one of the leaves is of
    float64, else of float32."""
    return count if isinstance(count, int) else as_scalar(count, updates)


def as_scalar(x: Any, updates: Updates) -> Any:
    """A 0-d array in the dtype in which scalars for these leaves are calculated: float64 if one of them is float64,
    else float32."""
    m = namespace(x)
    wide = any(updates.m.dtype_of(leaf) == "float64" for leaf in updates.leaves)
    return m.astype(x, "float64" if wide else "float32", copy=False)


def one_minus_power(base: float, count: Any, updates: Updates) -> Any:
    """1 − base ** count, the correction of the bias of a running mean that began at zero."""
    if base == 0:
        return 1.0
    if isinstance(count, int):
        return 1.0 - base**count
    # In float32 the difference would lose five digits at first: 1 − 0.999 is wrong by 1e-5.
    x = real(count, updates) * math.log(base)
    return -namespace(x).expm1(x)


def square_root(x: Any) -> Any:
    """The square root of a Python number or 0-d array."""
    return math.sqrt(x) if isinstance(x, (int, float)) else namespace(x).sqrt(x)

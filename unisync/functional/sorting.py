"""Functions that sort."""

from __future__ import annotations

from unisync._dispatch import of
from unisync._types import Array


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The positions that sort x along an axis.

    Args:
        x: real-valued array of at least one axis.
        axis: the axis to sort along.
        descending: whether the largest comes first.
        stable: whether equal elements keep their order.

    Returns:
        int64 array of x's shape.

    Example:
        >>> us.argsort(us.asarray([3, 1, 2]))
        array([1, 2, 0])
    """
    return of[type(x)].argsort(x, axis=axis, descending=descending, stable=stable)


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """x sorted along an axis.

    Args:
        x: real-valued array of at least one axis.
        axis: the axis to sort along.
        descending: whether the largest comes first.
        stable: whether equal elements keep their order.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.sort(us.asarray([3, 1, 2]))
        array([1, 2, 3])
    """
    return of[type(x)].sort(x, axis=axis, descending=descending, stable=stable)

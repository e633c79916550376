"""Functions that pick elements by position."""

from __future__ import annotations

from unisync._dispatch import of
from unisync._types import Array


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """The slices of x at the given positions of one axis.

    Positions out of range are undefined, as in the standard: an error where the backend checks.

    Args:
        x: array of at least one axis.
        indices: 1-d integer array of positions; negative ones count from the end.
        axis: the axis; may be left out for a 1-d x.

    Returns:
        Array of x's dtype, with the axis as long as indices.

    Example:
        >>> us.take(us.asarray([10, 20, 30]), us.asarray([2, 0]))
        array([30, 10])
    """
    return of[type(x)].take(x, indices, axis=axis)


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """The elements of x at positions given for each place along one axis.

    Args:
        x: array of at least one axis.
        indices: integer array of x's rank; its other axes broadcast with x's. Negative ones count from the end.
        axis: the axis.

    Returns:
        Array of x's dtype and indices' shape (broadcast).

    Example:
        >>> us.take_along_axis(us.asarray([[1, 2], [3, 4]]), us.asarray([[1], [0]]), axis=1)
        array([[2],
               [3]])
    """
    return of[type(x)].take_along_axis(x, indices, axis=axis)

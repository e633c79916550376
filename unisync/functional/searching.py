"""Functions that find elements."""

from __future__ import annotations

from unisync._dispatch import namespace, of
from unisync._types import Array


def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The position of the first largest element.

    Args:
        x: real-valued array of any shape.
        axis: the axis to search; None searches the flattened x.
        keepdims: whether the searched axis stays with length 1.

    Returns:
        int64 array without the searched axis.

    Example:
        >>> us.argmax(us.asarray([[1, 5], [7, 2]]), axis=1)
        array([1, 0])
    """
    return of[type(x)].argmax(x, axis=axis, keepdims=keepdims)


def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The position of the first smallest element.

    Args:
        x: real-valued array of any shape.
        axis: the axis to search; None searches the flattened x.
        keepdims: whether the searched axis stays with length 1.

    Returns:
        int64 array without the searched axis.

    Example:
        >>> us.argmin(us.asarray([[1, 5], [7, 2]]), axis=1)
        array([0, 1])
    """
    return of[type(x)].argmin(x, axis=axis, keepdims=keepdims)


def count_nonzero(x: Array, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
    """How many elements are not zero.

    Args:
        x: array of any shape.
        axis: the axis or axes to reduce; None for all.
        keepdims: whether reduced axes stay with length 1.

    Returns:
        int64 array without the reduced axes.

    Example:
        >>> us.count_nonzero(us.asarray([[1, 0], [7, 2]]), axis=1)
        array([1, 2])
    """
    return of[type(x)].count_nonzero(x, axis=axis, keepdims=keepdims)


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """The positions of the elements that are not zero; not inside compiled functions, as its shape depends on values.

    Args:
        x: array of at least one axis.

    Returns:
        One int64 array per axis, in row-major order.

    Example:
        >>> us.nonzero(us.asarray([0, 3, 4]))
        (array([1, 2]),)
    """
    return of[type(x)].nonzero(x)


def searchsorted(x1: Array, x2: Array, /, *, side: str = "left", sorter: Array | None = None) -> Array:
    """Where the elements of x2 would stand in the sorted x1.

    Args:
        x1: 1-d real-valued array in ascending order, or put into it by sorter.
        x2: real-valued array of any shape.
        side: "left" for the first fitting place, "right" for the last.
        sorter: 1-d integer array that sorts x1.

    Returns:
        int64 array of x2's shape.

    Example:
        >>> us.searchsorted(us.asarray([1, 3, 5]), us.asarray([3, 4]))
        array([1, 2])
    """
    return namespace(x1, x2).searchsorted(x1, x2, side=side, sorter=sorter)


def where(condition: Array, x1: Array | complex, x2: Array | complex, /) -> Array:
    """x1 where the condition holds, x2 elsewhere.

    Args:
        condition: boolean array.
        x1: array or Python number; broadcasts with the others.
        x2: likewise. At least one of x1 and x2 is an array.

    Returns:
        Array of the promoted dtype of x1 and x2 and the broadcast shape.

    Example:
        >>> us.where(us.asarray([True, False]), us.asarray([1.0, 2.0]), 0.0)
        array([1., 0.], dtype=float32)
    """
    return namespace(condition, x1, x2).where(condition, x1, x2)

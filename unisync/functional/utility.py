"""Tests of whole arrays, and differences."""

from __future__ import annotations

from unisync._dispatch import of
from unisync._types import Array, Axis


def all(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Whether every element is true (not zero).

    Args:
        x: any array of any shape.
        axis: the axis or axes to reduce; None for all.
        keepdims: whether reduced axes stay with length 1.

    Returns:
        Boolean array without the reduced axes.

    Example:
        >>> us.all(us.asarray([[True, False], [True, True]]), axis=1)
        array([False,  True])
    """
    return of[type(x)].all(x, axis=axis, keepdims=keepdims)


def any(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Whether at least one element is true (not zero).

    Args:
        x: any array of any shape.
        axis: the axis or axes to reduce; None for all.
        keepdims: whether reduced axes stay with length 1.

    Returns:
        Boolean array without the reduced axes.

    Example:
        >>> us.any(us.asarray([[True, False], [False, False]]), axis=1)
        array([ True, False])
    """
    return of[type(x)].any(x, axis=axis, keepdims=keepdims)

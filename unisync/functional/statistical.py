"""Reductions and cumulative sums over axes."""

from __future__ import annotations

from typing import Any

from unisync._dispatch import of
from unisync._types import Array, Axis


def cumulative_sum(x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """The sums of all elements up to each position along an axis.

    Args:
        x: numeric array of at least one axis.
        axis: the axis; may be left out for a 1-d array.
        dtype: the dtype to accumulate in and return; default as for `sum`.
        include_initial: whether a zero comes first, making the axis one longer.

    Returns:
        Array of x's shape.

    Example:
        >>> us.cumulative_sum(us.asarray([1, 2, 3]))
        array([1, 3, 6])
    """
    return of[type(x)].cumulative_sum(x, axis=axis, dtype=dtype, include_initial=include_initial)


def max(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The largest element.

    Args:
        x: real-valued array of any shape.
        axis: the axis or axes to reduce; None for all.
        keepdims: whether reduced axes stay with length 1.

    Returns:
        Array of x's dtype without the reduced axes.

    Example:
        >>> us.max(us.asarray([[1, 5], [7, 2]]), axis=1)
        array([5, 7])
    """
    return of[type(x)].max(x, axis=axis, keepdims=keepdims)


def mean(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The arithmetic mean.

    Args:
        x: floating-point array of any shape.
        axis: the axis or axes to reduce; None for all.
        keepdims: whether reduced axes stay with length 1.

    Returns:
        Array of x's dtype without the reduced axes.

    Example:
        >>> us.mean(us.asarray([[1.0, 5.0], [7.0, 2.0]]), axis=0)
        array([4. , 3.5], dtype=float32)
    """
    return of[type(x)].mean(x, axis=axis, keepdims=keepdims)


def min(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The smallest element.

    Args:
        x: real-valued array of any shape.
        axis: the axis or axes to reduce; None for all.
        keepdims: whether reduced axes stay with length 1.

    Returns:
        Array of x's dtype without the reduced axes.

    Example:
        >>> us.min(us.asarray([[1, 5], [7, 2]]), axis=1)
        array([1, 2])
    """
    return of[type(x)].min(x, axis=axis, keepdims=keepdims)


def prod(x: Array, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """The product.

    Args:
        x: numeric array of any shape.
        axis: the axis or axes to reduce; None for all.
        dtype: the dtype to accumulate in and return; default x's, and int64 (uint64) for smaller integers and booleans.
        keepdims: whether reduced axes stay with length 1.

    Returns:
        Array of the accumulator's dtype without the reduced axes.

    Example:
        >>> us.prod(us.asarray([[1, 5], [7, 2]]), axis=1)
        array([ 5, 14])
    """
    return of[type(x)].prod(x, axis=axis, dtype=dtype, keepdims=keepdims)


def std(x: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The standard deviation.

    Args:
        x: floating-point array of any shape.
        axis: the axis or axes to reduce; None for all.
        correction: what to subtract from the count in the divisor (1 for the sample figure).
        keepdims: whether reduced axes stay with length 1.

    Returns:
        Array of x's dtype without the reduced axes.

    Example:
        >>> us.std(us.asarray([[1.0, 5.0], [7.0, 3.0]]), axis=1)
        array([2., 2.], dtype=float32)
    """
    return of[type(x)].std(x, axis=axis, correction=correction, keepdims=keepdims)


def sum(x: Array, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """The sum.

    Args:
        x: numeric array of any shape.
        axis: the axis or axes to reduce; None for all.
        dtype: the dtype to accumulate in and return; default x's, and int64 (uint64) for smaller integers and booleans.
        keepdims: whether reduced axes stay with length 1.

    Returns:
        Array of the accumulator's dtype without the reduced axes.

    Example:
        >>> us.sum(us.asarray([[1, 5], [7, 2]]), axis=1)
        array([6, 9])
    """
    return of[type(x)].sum(x, axis=axis, dtype=dtype, keepdims=keepdims)


def var(x: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The variance.

    Args:
        x: floating-point array of any shape.
        axis: the axis or axes to reduce; None for all.
        correction: what to subtract from the count in the divisor (1 for the sample figure).
        keepdims: whether reduced axes stay with length 1.

    Returns:
        Array of x's dtype without the reduced axes.

    Example:
        >>> us.var(us.asarray([[1.0, 5.0], [7.0, 3.0]]), axis=1)
        array([4., 4.], dtype=float32)
    """
    return of[type(x)].var(x, axis=axis, correction=correction, keepdims=keepdims)

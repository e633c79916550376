"""Functions that change an array's shape or put arrays together."""

from __future__ import annotations

from collections.abc import Sequence

from unisync._dispatch import namespace, of
from unisync._types import Array, Shape


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """The arrays broadcast to one shape.

    Args:
        arrays: arrays of shapes that broadcast with each other.

    Returns:
        List of arrays of the common shape; views where the backend can.

    Example:
        >>> [a.shape for a in us.broadcast_arrays(us.ones((2, 1)), us.ones(3))]
        [(2, 3), (2, 3)]
    """
    return namespace(*arrays).broadcast_arrays(*arrays)


def broadcast_to(x: Array, /, shape: Shape) -> Array:
    """x broadcast to a shape.

    Args:
        x: array of any shape.
        shape: the shape, with which x's must broadcast.

    Returns:
        Array of that shape; a read-only view where the backend can.

    Example:
        >>> us.broadcast_to(us.asarray([1, 2]), (2, 2))
        array([[1, 2],
               [1, 2]])
    """
    return of[type(x)].broadcast_to(x, shape)


def concat(arrays: Sequence[Array], /, *, axis: int | None = 0) -> Array:
    """The arrays joined along an axis that they have.

    Args:
        arrays: arrays whose shapes agree except along the axis.
        axis: the axis; None flattens all first.

    Returns:
        Array of the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.concat([us.asarray([1, 2]), us.asarray([3])])
        array([1, 2, 3])
    """
    return namespace(*arrays).concat(arrays, axis=axis)


def expand_dims(x: Array, /, *, axis: int = 0) -> Array:
    """x with a new axis of length 1.

    Args:
        x: array of any shape.
        axis: where the axis stands in the result.

    Returns:
        Array of x's dtype; a view where the backend can.

    Example:
        >>> us.expand_dims(us.ones(2), axis=1).shape
        (2, 1)
    """
    return of[type(x)].expand_dims(x, axis=axis)


def flip(x: Array, /, *, axis: int | Sequence[int] | None = None) -> Array:
    """x with the order along axes reversed.

    Args:
        x: array of any shape.
        axis: the axis or axes; None for all.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.flip(us.asarray([1, 2, 3]))
        array([3, 2, 1])
    """
    return of[type(x)].flip(x, axis=axis)


def moveaxis(x: Array, source: int | Sequence[int], destination: int | Sequence[int], /) -> Array:
    """x with axes moved to other places; the rest keep their order.

    Args:
        x: array of any shape.
        source: the axis or axes to move.
        destination: their places in the result.

    Returns:
        Array of x's dtype; a view where the backend can.

    Example:
        >>> us.moveaxis(us.ones((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    return of[type(x)].moveaxis(x, source, destination)


def permute_dims(x: Array, /, axes: Sequence[int]) -> Array:
    """x with its axes in another order.

    Args:
        x: array of any shape.
        axes: for each axis of the result, the axis of x.

    Returns:
        Array of x's dtype; a view where the backend can.

    Example:
        >>> us.permute_dims(us.ones((2, 3, 4)), (2, 0, 1)).shape
        (4, 2, 3)
    """
    return of[type(x)].permute_dims(x, axes)


def repeat(x: Array, repeats: int | Array, /, *, axis: int | None = None) -> Array:
    """Each element repeated.

    Args:
        x: array of any shape.
        repeats: how often: one number, or an integer array with one number per element of the axis.
        axis: the axis along which; None flattens x first.

    Returns:
        Array of x's dtype.

    Example:
        >>> us.repeat(us.asarray([1, 2]), 2)
        array([1, 1, 2, 2])
    """
    return of[type(x)].repeat(x, repeats, axis=axis)


def reshape(x: Array, /, shape: Shape, *, copy: bool | None = None) -> Array:
    """x in another shape, in row-major order.

    Args:
        x: array of any shape.
        shape: the shape; one length may be −1.
        copy: True copies always, False never (an error if one is needed), None where needed.

    Returns:
        Array of x's dtype.

    Example:
        >>> us.reshape(us.arange(4), (2, -1))
        array([[0, 1],
               [2, 3]])
    """
    return of[type(x)].reshape(x, shape, copy=copy)


def roll(x: Array, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None) -> Array:
    """x with elements moved along axes; what leaves at the end comes in at the start.

    Args:
        x: array of any shape.
        shift: places to move towards higher positions.
        axis: the axis or axes; None flattens, moves, and restores the shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.roll(us.asarray([1, 2, 3]), 1)
        array([3, 1, 2])
    """
    return of[type(x)].roll(x, shift, axis=axis)


def squeeze(x: Array, /, axis: int | Sequence[int]) -> Array:
    """x without the given axes of length 1.

    Args:
        x: array of any shape.
        axis: the axis or axes; an error if one is longer.

    Returns:
        Array of x's dtype; a view where the backend can.

    Example:
        >>> us.squeeze(us.ones((1, 2, 1)), axis=0).shape
        (2, 1)
    """
    return of[type(x)].squeeze(x, axis)


def stack(arrays: Sequence[Array], /, *, axis: int = 0) -> Array:
    """The arrays joined along a new axis.

    Args:
        arrays: arrays of one shape.
        axis: where the new axis stands in the result.

    Returns:
        Array of the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.stack([us.asarray([1, 2]), us.asarray([3, 4])], axis=1)
        array([[1, 3],
               [2, 4]])
    """
    return namespace(*arrays).stack(arrays, axis=axis)


def tile(x: Array, repetitions: Sequence[int], /) -> Array:
    """x laid side by side.

    Args:
        x: array of any shape.
        repetitions: how often along each axis; the shorter of it and x.shape is padded with ones in front.

    Returns:
        Array of x's dtype.

    Example:
        >>> us.tile(us.asarray([1, 2]), (2,))
        array([1, 2, 1, 2])
    """
    return of[type(x)].tile(x, repetitions)


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices of x along an axis.

    Args:
        x: array of at least one axis.
        axis: the axis that goes.

    Returns:
        Tuple of arrays with one axis less.

    Example:
        >>> us.unstack(us.asarray([[1, 2], [3, 4]]))
        (array([1, 2]), array([3, 4]))
    """
    return of[type(x)].unstack(x, axis=axis)

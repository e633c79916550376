"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence

from unisync._dispatch import of, pair
from unisync._types import Array


def matmul(x1: Array, x2: Array, /) -> Array:
    """The matrix product; leading axes broadcast.

    Args:
        x1: numeric array of shape (..., M, K), or (K,).
        x2: numeric array of shape (..., K, N), or (K,).

    Returns:
        Array of shape (..., M, N), less the axis that a 1-d argument lacks, and the promoted dtype.

    Example:
        >>> us.matmul(us.asarray([[1.0, 2.0]]), us.asarray([[3.0], [4.0]]))
        array([[11.]], dtype=float32)
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.matmul(x1, x2)


def matrix_transpose(x: Array, /) -> Array:
    """x with its last two axes exchanged.

    Args:
        x: array of shape (..., M, N).

    Returns:
        Array of shape (..., N, M); a view where the backend can.

    Example:
        >>> us.matrix_transpose(us.ones((4, 2, 3))).shape
        (4, 3, 2)
    """
    return of[type(x)].matrix_transpose(x)


def tensordot(x1: Array, x2: Array, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:
    """The sum of products over pairs of axes.

    Args:
        x1: numeric array.
        x2: numeric array.
        axes: how many of the last axes of x1 and first of x2 to sum over, or their positions in each.

    Returns:
        Array of the remaining axes of x1, then of x2, and the promoted dtype.

    Example:
        >>> us.tensordot(us.ones((2, 3)), us.ones((3, 4)), axes=1).shape
        (2, 4)
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.tensordot(x1, x2, axes=axes)


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The dot products of vectors that lie along one axis; x1 is conjugated if complex.

    Args:
        x1: numeric array.
        x2: numeric array; broadcasts with x1 except along the axis.
        axis: the axis of both, counted from the end (negative).

    Returns:
        Array without the axis.

    Example:
        >>> us.vecdot(us.asarray([[1.0, 2.0]]), us.asarray([[3.0, 4.0]]))
        array([11.], dtype=float32)
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.vecdot(x1, x2, axis=axis)

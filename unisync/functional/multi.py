"""Arithmetic on lists of arrays at once, for optimizers: one kernel for the whole list where the backend has one.

All take and return lists of arrays of one backend; a `scalar` is a Python number or a 0-d array. Arguments are never
changed, but for those that `reuse` names: nobody may need them any more, and none may share memory with another. Where
that spares memory traffic (NumPy, torch), the results take their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unisync._dispatch import current_namespace, namespace
from unisync._types import Array


def _of(xs: Sequence[Any]) -> Any:
    return namespace(xs[0]) if xs else current_namespace()


def multi_add(
    xs: Sequence[Array], ys: Sequence[Array], /, *, alpha: Any = 1.0, reuse: Sequence[Array] | None = None
) -> list[Array]:
    """xs + alpha · ys.

    Args:
        xs: arrays.
        ys: arrays of the same shapes.
        alpha: scalar.
        reuse: xs or ys, if nobody needs these arrays any more: the results may take their memory.

    Returns:
        List of arrays of the xs' shapes and dtypes.

    Example:
        >>> us.multi_add([us.asarray([1.0, 4.0])], [us.asarray([1.0, 4.0])], alpha=2.0)
        [array([ 3., 12.], dtype=float32)]
    """
    return _of(xs).multi_add(xs, ys, alpha=alpha, reuse=reuse)


def multi_addcdiv(
    xs: Sequence[Array],
    ys: Sequence[Array],
    zs: Sequence[Array],
    /,
    *,
    value: Any = 1.0,
    reuse: Sequence[Array] | None = None,
) -> list[Array]:
    """xs + value · ys / zs.

    Args:
        xs: arrays.
        ys: arrays of the same shapes.
        zs: arrays of the same shapes.
        value: scalar.
        reuse: xs, if nobody needs these arrays any more: the results may take their memory.

    Returns:
        List of arrays of the xs' shapes and dtypes.

    Example:
        >>> us.multi_addcdiv([us.asarray([1.0, 4.0])], [us.asarray([1.0, 4.0])], [us.asarray([1.0, 4.0])])
        [array([2., 5.], dtype=float32)]
    """
    return _of(xs).multi_addcdiv(xs, ys, zs, value=value, reuse=reuse)


def multi_addcmul(
    xs: Sequence[Array],
    ys: Sequence[Array],
    zs: Sequence[Array],
    /,
    *,
    value: Any = 1.0,
    reuse: Sequence[Array] | None = None,
) -> list[Array]:
    """xs + value · ys · zs.

    Args:
        xs: arrays.
        ys: arrays of the same shapes.
        zs: arrays of the same shapes.
        value: scalar.
        reuse: xs, if nobody needs these arrays any more: the results may take their memory.

    Returns:
        List of arrays of the xs' shapes and dtypes.

    Example:
        >>> us.multi_addcmul([us.asarray([1.0, 4.0])], [us.asarray([1.0, 4.0])], [us.asarray([1.0, 4.0])])
        [array([ 2., 20.], dtype=float32)]
    """
    return _of(xs).multi_addcmul(xs, ys, zs, value=value, reuse=reuse)


def multi_all_finite(xs: Sequence[Array], /) -> Any:
    """Whether no array holds a NaN or an infinity.

    Args:
        xs: arrays.

    Returns:
        Boolean array of shape ().

    Example:
        >>> us.multi_all_finite([us.asarray([1.0, 4.0])])
        np.True_
    """
    return _of(xs).multi_all_finite(xs)


def multi_divide(xs: Sequence[Array], ys: Sequence[Array], /) -> list[Array]:
    """xs / ys.

    Args:
        xs: arrays.
        ys: arrays of the same shapes.

    Returns:
        List of arrays of the xs' shapes and dtypes.

    Example:
        >>> us.multi_divide([us.asarray([1.0, 4.0])], [us.asarray([1.0, 4.0])])
        [array([1., 1.], dtype=float32)]
    """
    return _of(xs).multi_divide(xs, ys)


def multi_lerp(
    xs: Sequence[Array], ys: Sequence[Array], /, *, weight: Any, reuse: Sequence[Array] | None = None
) -> list[Array]:
    """xs + weight · (ys − xs).

    Args:
        xs: arrays.
        ys: arrays of the same shapes.
        weight: scalar.
        reuse: xs, if nobody needs these arrays any more: the results may take their memory.

    Returns:
        List of arrays of the xs' shapes and dtypes.

    Example:
        >>> us.multi_lerp([us.asarray([1.0, 4.0])], [us.zeros(2)], weight=0.5)
        [array([0.5, 2. ], dtype=float32)]
    """
    return _of(xs).multi_lerp(xs, ys, weight=weight, reuse=reuse)


def multi_mean_square(
    xs: Sequence[Array], ys: Sequence[Array], /, *, decay: float, reuse: Sequence[Array] | None = None
) -> list[Array]:
    """decay · xs + (1 − decay) · ys²: one round of a running mean of squares.

    Args:
        xs: arrays, the mean so far.
        ys: arrays of the same shapes.
        decay: Python number.
        reuse: xs, if nobody needs these arrays any more: the results may take their memory.

    Returns:
        List of arrays of the xs' shapes and dtypes.

    Example:
        >>> us.multi_mean_square([us.asarray([1.0, 4.0])], [us.asarray([3.0, 2.0])], decay=0.5)
        [array([5., 4.], dtype=float32)]
    """
    return _of(xs).multi_mean_square(xs, ys, decay=decay, reuse=reuse)


def multi_multiply(xs: Sequence[Array], ys: Sequence[Array], /) -> list[Array]:
    """xs · ys.

    Args:
        xs: arrays.
        ys: arrays of the same shapes.

    Returns:
        List of arrays of the xs' shapes and dtypes.

    Example:
        >>> us.multi_multiply([us.asarray([1.0, 4.0])], [us.asarray([1.0, 4.0])])
        [array([ 1., 16.], dtype=float32)]
    """
    return _of(xs).multi_multiply(xs, ys)


def multi_norm(xs: Sequence[Array], /) -> list[Any]:
    """The Euclidean norm of each array.

    Args:
        xs: arrays.

    Returns:
        List of arrays of shape ().

    Example:
        >>> us.multi_norm([us.asarray([3.0, 4.0])])
        [np.float32(5.0)]
    """
    return _of(xs).multi_norm(xs)


def multi_scale(xs: Sequence[Array], scalar: Any, /) -> list[Array]:
    """xs · scalar.

    Args:
        xs: arrays.
        scalar: what to multiply with.

    Returns:
        List of arrays of the xs' shapes and dtypes.

    Example:
        >>> us.multi_scale([us.asarray([1.0, 4.0])], 2.0)
        [array([2., 8.], dtype=float32)]
    """
    return _of(xs).multi_scale(xs, scalar)


def multi_shift(xs: Sequence[Array], scalar: Any, /) -> list[Array]:
    """xs + scalar.

    Args:
        xs: arrays.
        scalar: what to add.

    Returns:
        List of arrays of the xs' shapes and dtypes.

    Example:
        >>> us.multi_shift([us.asarray([1.0, 4.0])], 2.0)
        [array([3., 6.], dtype=float32)]
    """
    return _of(xs).multi_shift(xs, scalar)


def multi_sign(xs: Sequence[Array], /) -> list[Array]:
    """−1, 0 or 1 after the sign of each element.

    Args:
        xs: arrays.

    Returns:
        List of arrays of the xs' shapes and dtypes.

    Example:
        >>> us.multi_sign([us.asarray([1.0, 4.0])])
        [array([1., 1.], dtype=float32)]
    """
    return _of(xs).multi_sign(xs)


def multi_sqrt(xs: Sequence[Array], /, *, shift: Any = 0.0) -> list[Array]:
    """√xs + shift.

    Args:
        xs: arrays.
        shift: scalar.

    Returns:
        List of arrays of the xs' shapes and dtypes.

    Example:
        >>> us.multi_sqrt([us.asarray([1.0, 4.0])])
        [array([1., 2.], dtype=float32)]
    """
    return _of(xs).multi_sqrt(xs, shift=shift)


def multi_where(condition: Any, xs: Sequence[Array], ys: Sequence[Array], /) -> list[Array]:
    """xs if the condition holds, else ys.

    Args:
        condition: boolean array of shape ().
        xs: arrays.
        ys: arrays of the same shapes.

    Returns:
        List of arrays of the xs' shapes and dtypes.

    Example:
        >>> us.multi_where(us.asarray(True), [us.asarray([1.0, 4.0])], [us.zeros(2)])
        [array([1., 4.], dtype=float32)]
    """
    return _of(xs).multi_where(condition, xs, ys)

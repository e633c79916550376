"""Functions that make arrays. They use the current backend, or that of `like=`."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisync._dispatch import is_array, of, target
from unisync._types import Array, ArrayLike, Shape


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    like: Any = None,
) -> Any:
    """Evenly spaced numbers in [start, stop).

    Args:
        start: the first number; the end, if stop is None.
        stop: the end, not included.
        step: the distance.
        dtype: a us dtype, its name or the framework's own; default int64 if all are ints, else float32.
        device: the framework's device or its name; default the backend's.
        like: an array whose backend and device to use instead of the current backend's.

    Returns:
        1-d native array.

    Example:
        >>> us.arange(3)
        array([0, 1, 2])
    """
    m, device = target(like, device)
    return m.arange(start, stop, step, dtype=dtype, device=device)


def asarray(
    obj: ArrayLike, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None, like: Any = None
) -> Any:
    """A native array of obj's numbers.

    An array of a framework stays with its backend; host data (NumPy arrays, numbers, sequences) goes to the
    current one. `like=` settles the backend for both.

    Args:
        obj: array, number, or nested sequences of numbers.
        dtype: a us dtype, its name or the framework's own; default: an array's own; for Python numbers bool,
            int64, float32 or complex64.
        device: the framework's device or its name; default: an array's own, else the backend's.
        copy: True copies always, False never (an error if one is needed), None where needed.
        like: an array whose backend and device to use.

    Returns:
        Native array. Without a copy it may share memory with obj.

    Example:
        >>> us.asarray([[1, 2], [3, 4]], dtype="float64")
        array([[1., 2.],
               [3., 4.]])
    """
    # lists and tuples stand here too because torch.compile cannot trace a look-up that fails
    if like is None and not isinstance(obj, (list, tuple, np.ndarray, np.generic)) and is_array(obj):
        m = of[type(obj)]
    else:
        m, device = target(like, device)
    return m.asarray(obj, dtype=dtype, device=device, copy=copy)


def empty(shape: int | Shape, *, dtype: Any = None, device: Any = None, like: Any = None) -> Any:
    """An array whose contents are not set.

    Args:
        shape: lengths of the axes, or one length.
        dtype: a us dtype, its name or the framework's own; default float32.
        device: the framework's device or its name; default the backend's.
        like: an array whose backend and device to use instead of the current backend's.

    Returns:
        Native array of the given shape.

    Example:
        >>> us.empty(2).shape
        (2,)
    """
    m, device = target(like, device)
    return m.empty(shape, dtype=dtype, device=device)


def empty_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """An array like x whose contents are not set.

    Args:
        x: array that gives shape, dtype, device and backend.
        dtype: another dtype.
        device: another device.

    Returns:
        Array of x's shape.

    Example:
        >>> us.empty_like(us.ones(2)).shape
        (2,)
    """
    return of[type(x)].empty_like(x, dtype=dtype, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None, like: Any = None
) -> Any:
    """Ones on the k-th diagonal, zeros elsewhere.

    Args:
        n_rows: rows.
        n_cols: columns; default n_rows.
        k: which diagonal: above the main one if positive.
        dtype: a us dtype, its name or the framework's own; default float32.
        device: the framework's device or its name; default the backend's.
        like: an array whose backend and device to use instead of the current backend's.

    Returns:
        Native array of shape (n_rows, n_cols).

    Example:
        >>> us.eye(2, dtype="int64")
        array([[1, 0],
               [0, 1]])
    """
    m, device = target(like, device)
    return m.eye(n_rows, n_cols, k=k, dtype=dtype, device=device)


def full(shape: int | Shape, fill_value: complex, *, dtype: Any = None, device: Any = None, like: Any = None) -> Any:
    """An array of one value.

    Args:
        shape: lengths of the axes, or one length.
        fill_value: the value.
        dtype: a us dtype, its name or the framework's own; default the default of the value's kind.
        device: the framework's device or its name; default the backend's.
        like: an array whose backend and device to use instead of the current backend's.

    Returns:
        Native array of the given shape.

    Example:
        >>> us.full(2, 7)
        array([7, 7])
    """
    m, device = target(like, device)
    return m.full(shape, fill_value, dtype=dtype, device=device)


def full_like(x: Array, /, fill_value: complex, *, dtype: Any = None, device: Any = None) -> Array:
    """An array like x of one value.

    Args:
        x: array that gives shape, dtype, device and backend.
        fill_value: the value.
        dtype: another dtype.
        device: another device.

    Returns:
        Array of x's shape.

    Example:
        >>> us.full_like(us.ones(2), 7)
        array([7., 7.], dtype=float32)
    """
    return of[type(x)].full_like(x, fill_value, dtype=dtype, device=device)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
    like: Any = None,
) -> Any:
    """num evenly spaced numbers from start to stop.

    Args:
        start: the first number.
        stop: the last number, or the end if endpoint is False.
        num: how many.
        dtype: a us dtype, its name or the framework's own; default float32.
        device: the framework's device or its name; default the backend's.
        like: an array whose backend and device to use instead of the current backend's.
        endpoint: whether stop is the last number.

    Returns:
        1-d native array of length num.

    Example:
        >>> us.linspace(0.0, 1.0, 3)
        array([0. , 0.5, 1. ], dtype=float32)
    """
    m, device = target(like, device)
    return m.linspace(start, stop, num, dtype=dtype, device=device, endpoint=endpoint)


def ones(shape: int | Shape, *, dtype: Any = None, device: Any = None, like: Any = None) -> Any:
    """An array of ones.

    Args:
        shape: lengths of the axes, or one length.
        dtype: a us dtype, its name or the framework's own; default float32.
        device: the framework's device or its name; default the backend's.
        like: an array whose backend and device to use instead of the current backend's.

    Returns:
        Native array of the given shape.

    Example:
        >>> us.ones(2, dtype="int32")
        array([1, 1], dtype=int32)
    """
    m, device = target(like, device)
    return m.ones(shape, dtype=dtype, device=device)


def ones_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """An array of ones like x.

    Args:
        x: array that gives shape, dtype, device and backend.
        dtype: another dtype.
        device: another device.

    Returns:
        Array of x's shape.

    Example:
        >>> us.ones_like(us.ones(2))
        array([1., 1.], dtype=float32)
    """
    return of[type(x)].ones_like(x, dtype=dtype, device=device)


def tril(x: Array, /, *, k: int = 0) -> Array:
    """The lower triangle: elements above the k-th diagonal become zero.

    Args:
        x: array of shape (..., M, N).
        k: which diagonal: above the main one if positive.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.tril(us.ones((2, 2)))
        array([[1., 0.],
               [1., 1.]], dtype=float32)
    """
    return of[type(x)].tril(x, k=k)


def triu(x: Array, /, *, k: int = 0) -> Array:
    """The upper triangle: elements below the k-th diagonal become zero.

    Args:
        x: array of shape (..., M, N).
        k: which diagonal: above the main one if positive.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.triu(us.ones((2, 2)))
        array([[1., 1.],
               [0., 1.]], dtype=float32)
    """
    return of[type(x)].triu(x, k=k)


def zeros(shape: int | Shape, *, dtype: Any = None, device: Any = None, like: Any = None) -> Any:
    """An array of zeros.

    Args:
        shape: lengths of the axes, or one length.
        dtype: a us dtype, its name or the framework's own; default float32.
        device: the framework's device or its name; default the backend's.
        like: an array whose backend and device to use instead of the current backend's.

    Returns:
        Native array of the given shape.

    Example:
        >>> us.zeros(2, dtype="int32")
        array([0, 0], dtype=int32)
    """
    m, device = target(like, device)
    return m.zeros(shape, dtype=dtype, device=device)


def zeros_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """An array of zeros like x.

    Args:
        x: array that gives shape, dtype, device and backend.
        dtype: another dtype.
        device: another device.

    Returns:
        Array of x's shape.

    Example:
        >>> us.zeros_like(us.ones(2))
        array([0., 0.], dtype=float32)
    """
    return of[type(x)].zeros_like(x, dtype=dtype, device=device)

"""Data types: conversion, promotion and limits."""

from __future__ import annotations

from typing import Any

from unisync import _dtypes
from unisync._dispatch import is_array, of
from unisync._dtypes import FInfo, IInfo
from unisync._types import Array, DType


def astype(x: Array, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    """x converted to another dtype.

    Args:
        x: array of any shape.
        dtype: a us dtype, its name or the framework's own.
        copy: whether to copy even if the dtype is x's already (on backends whose arrays can change).
        device: another device.

    Returns:
        Array of x's shape.

    Example:
        >>> us.astype(us.asarray([1.7, -1.7]), us.int32)
        array([ 1, -1], dtype=int32)
    """
    return of[type(x)].astype(x, dtype, copy=copy, device=device)


def dtype_of(x: Any, /) -> DType:
    """The us dtype of an array: the same object on every backend.

    Args:
        x: array.

    Returns:
        A us dtype, which equals its own name.

    Example:
        >>> us.dtype_of(us.ones(2))
        us.float32
        >>> us.dtype_of(us.ones(2)) == "float32"
        True
    """
    return of[type(x)].dtype_of(x)


def finfo(type: Any, /) -> FInfo:
    """The limits of a floating-point dtype.

    Args:
        type: a floating-point or complex dtype, or an array of one.

    Returns:
        Object with `bits`, `eps`, `max`, `min`, `smallest_normal` (Python numbers) and `dtype`.

    Example:
        >>> us.finfo(us.float32).eps
        1.1920928955078125e-07
    """
    return _dtypes.finfo(_name(type))


def iinfo(type: Any, /) -> IInfo:
    """The limits of an integer dtype.

    Args:
        type: an integer dtype, or an array of one.

    Returns:
        Object with `bits`, `max`, `min` and `dtype`.

    Example:
        >>> us.iinfo(us.int8).max
        127
    """
    return _dtypes.iinfo(_name(type))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind.

    Args:
        dtype: a us dtype, its name or a framework's own.
        kind: a dtype, or one of "bool", "signed integer", "unsigned integer", "integral", "real floating",
            "complex floating", "numeric"; or a tuple of these, of which one must hold.

    Returns:
        True or False.

    Raises:
        UnknownNameError: there is no such kind.

    Example:
        >>> us.isdtype(us.ones(2).dtype, "real floating")
        True
    """
    return _dtypes.isdtype(_name(dtype), kind)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype to which arrays, dtypes and Python numbers promote, the same on every backend.

    The standard's table; beyond it, an integer with a floating-point dtype gives the latter, a boolean gives
    way to anything, and bfloat16 with float16 gives float32.

    Args:
        arrays_and_dtypes: arrays, dtypes and Python numbers; at least one array or dtype.

    Returns:
        A us dtype.

    Example:
        >>> us.result_type(us.int64, us.float32), us.result_type(us.int8, us.uint8)
        (us.float32, us.int16)
    """
    return _dtypes.result_type(
        *(x if isinstance(x, (bool, int, float, complex)) else _name(x) for x in arrays_and_dtypes)
    )


def _name(x: Any) -> DType:
    """The us dtype of an array, a us dtype, a name, or a framework's dtype object."""
    return dtype_of(x) if is_array(x) else _dtypes.name(x)

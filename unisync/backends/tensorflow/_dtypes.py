"""From a dtype by any name to TensorFlow's, and the common dtype of an operation's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from unisync import _dtypes, _types
from unisync._types import DTYPES, DType

FLOAT = tf.float32
INT = tf.int64
COMPLEX = tf.complex64

_NATIVE: dict[Any, tf.DType] = {d: tf.as_dtype(str(d)) for d in DTYPES.values()}
_NAMES: dict[tf.DType, DType] = {native: d for d, native in _NATIVE.items()}

NUMBERS: frozenset[type] = frozenset({bool, int, float, complex})
COMPLEXES: frozenset[tf.DType] = frozenset(_NATIVE[d] for d in _types.KINDS["complex floating"])
FLOATS: frozenset[tf.DType] = frozenset(_NATIVE[d] for d in _types.KINDS["real floating"]) | COMPLEXES
UNSIGNED: frozenset[tf.DType] = frozenset(_NATIVE[d] for d in _types.KINDS["unsigned integer"])


def native(dtype: Any) -> tf.DType:
    """TensorFlow's dtype for a us dtype, a name, a Python type, or a framework's own dtype.

    Raises:
        UnknownNameError: it names no dtype.
    """
    if type(dtype) is tf.DType:
        return dtype
    return _NATIVE[_dtypes.name(dtype)]


def native_or(dtype: Any, default: tf.DType) -> tf.DType:
    """As `native`, with a default for None."""
    return default if dtype is None else native(dtype)


def name_of(dtype: tf.DType) -> DType:
    """The us dtype of one of TensorFlow's."""
    found = _NAMES.get(dtype)
    return _dtypes.name(dtype) if found is None else found


def with_number(dtype: tf.DType, number: complex) -> tf.DType:
    """The dtype in which an array of `dtype` meets a Python number: the array's, unless its kind is lower."""
    if dtype in FLOATS and type(number) is not complex:
        return dtype
    return _NATIVE[_dtypes.with_scalar(name_of(dtype), number)]


def constant(number: Any, dtype: tf.DType) -> Any:
    """A Python number as a 0-d array."""
    return tf.constant(int(number) if type(number) is bool and dtype != tf.bool else number, dtype)


def both(x1: Any, x2: Any) -> tuple[Any, Any]:
    """x1 and x2, an array or a Python number, as what an op of two arguments of one dtype takes."""
    if type(x2) in NUMBERS:
        dtype = with_number(x1.dtype, x2)
        if dtype != x1.dtype:
            return tf.cast(x1, dtype), constant(x2, dtype)
        return x1, x2 if type(x2) is not bool else constant(x2, dtype)
    if x1.dtype == x2.dtype:
        return x1, x2
    if was_number(x1) == was_number(x2):
        dtype = _NATIVE[_dtypes.promote(name_of(x1.dtype), name_of(x2.dtype))]
    else:
        array, number = (x2, x1) if was_number(x1) else (x1, x2)
        dtype = with_number(array.dtype, 0.0 if number.dtype.is_floating else 0)
    return tf.cast(x1, dtype), tf.cast(x2, dtype)


def mark_number(x: Any) -> None:
    """Let a compiled function's input that was a Python number promote as one."""
    x._unisync_number = True


def was_number(x: Any) -> bool:
    """Whether x is such an input."""
    return getattr(x, "_unisync_number", False)


def alike(arrays: Sequence[Any]) -> Sequence[Any]:
    """The arrays (and Python numbers), all of their promoted dtype."""
    dtypes = {x.dtype for x in arrays if type(x) not in NUMBERS}
    if len(dtypes) == 1 and not any(type(x) in NUMBERS for x in arrays):
        return arrays
    dtype = _NATIVE[_dtypes.result_type(*(x if type(x) in NUMBERS else name_of(x.dtype) for x in arrays))]
    return [constant(x, dtype) if type(x) in NUMBERS else tf.cast(x, dtype) for x in arrays]


def floating(x: Any) -> Any:
    """x, or x as float32 if it holds integers or booleans."""
    return x if x.dtype in FLOATS else tf.cast(x, FLOAT)

"""From a dtype by any name to NumPy's, and which dtype the arguments of an operation meet in."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisync import _dtypes
from unisync._types import DTYPES, DType
from unisync.backends.numpy._tape import getval
from unisync.errors import MissingDependencyError

FLOAT = np.dtype("float32")
COMPLEX = np.dtype("complex64")
INT = np.dtype("int64")

_NATIVE: dict[Any, np.dtype] = {}
_NAMES: dict[np.dtype, DType] = {}


def _fill() -> None:
    for text, dtype in DTYPES.items():
        if text == "bfloat16":
            try:
                import ml_dtypes
            except ImportError:
                continue
            native_dtype = np.dtype(ml_dtypes.bfloat16)
        else:
            native_dtype = np.dtype(text)
        _NAMES[native_dtype] = dtype
        _NATIVE.update({dtype: native_dtype, native_dtype: native_dtype, native_dtype.type: native_dtype})
    _NATIVE.update({bool: np.dtype("bool"), int: INT, float: FLOAT, complex: COMPLEX})


_fill()
_BFLOAT16 = _NATIVE.get("bfloat16", FLOAT)


def native(dtype: Any) -> np.dtype:
    """NumPy's dtype for a us dtype, a name, a Python type, or a framework's own dtype.

    Raises:
        UnknownNameError: it names no dtype.
        MissingDependencyError: bfloat16, without the ml_dtypes package.
    """
    found = _NATIVE.get(dtype)
    if found is None:
        name = _dtypes.name(dtype)
        found = _NATIVE.get(name)
        if found is None:
            raise MissingDependencyError(f"{name} on NumPy needs ml_dtypes. Try: pip install ml_dtypes.")
    return found


def native_or(dtype: Any, default: np.dtype | None) -> np.dtype | None:
    """As `native`, with a default for None."""
    return default if dtype is None else native(dtype)


def name_of(dtype: np.dtype) -> DType:
    """The us dtype of a NumPy dtype."""
    found = _NAMES.get(dtype)
    return _dtypes.name(dtype) if found is None else found


def dtype_of(x: Any) -> np.dtype:
    """NumPy's dtype of an array, traced or not."""
    x = getval(x)
    return x.dtype if isinstance(x, (np.ndarray, np.generic)) else np.asarray(x).dtype


def promoted(*arrays: Any) -> np.dtype:
    """The dtype to which arrays promote by the rules of unisync."""
    first, *rest = {dtype_of(x): None for x in arrays}
    for other in rest:
        first = native(_dtypes.promote(name_of(first), name_of(other)))
    return first


def is_float(dtype: np.dtype) -> bool:
    """Whether a NumPy dtype is real floating or complex (bfloat16 included, whose kind is V)."""
    return dtype.kind in "fc" or dtype == _BFLOAT16


def is_real_float(dtype: np.dtype) -> bool:
    """Whether a NumPy dtype is real floating."""
    return dtype.kind == "f" or dtype == _BFLOAT16

"""Functions that make arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisync import _dispatch, _dtypes as _us_dtypes
from unisync.backends.numpy import _dtypes, _operations
from unisync.backends.numpy._tape import getval as _getval, is_traced as _is_traced
from unisync.errors import ArgumentError, ArgumentTypeError


def _check_device(device: Any) -> None:
    if device is not None and str(device) != "cpu":
        raise ArgumentError(f"`device` must be 'cpu' on NumPy, got {device!r}. Try: leave it out.")


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    _check_device(device)
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        whole = all(isinstance(n, (int, np.integer)) for n in (start, stop, step))
        native = _dtypes.INT if whole else _dtypes.FLOAT
    else:
        native = _dtypes.native(dtype)
    return np.arange(start, stop, step, dtype=native)


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    _check_device(device)
    native = _dtypes.native_or(dtype, None)
    if _is_traced(obj):
        return obj if native is None or native == obj.dtype else _operations.astype(obj, native)
    if isinstance(obj, (np.ndarray, np.generic)):
        return np.asarray(obj, dtype=native, copy=copy)
    if _dispatch.is_array(obj):
        return np.asarray(_dispatch.namespace(obj).to_numpy(obj), dtype=native, copy=copy)
    if copy is False:
        raise ArgumentError("`copy` must not be False for Python numbers and sequences, got False. Try: copy=None.")
    if _holds_traced(obj):
        stacked = _operations.stack([asarray(x) for x in obj], 0)
        return stacked if native is None else _operations.astype(stacked, native)
    return _from_python(obj, native)


def _holds_traced(obj: Any) -> bool:
    return isinstance(obj, (list, tuple)) and any(_is_traced(x) or _holds_traced(x) for x in obj)


def _from_python(obj: Any, native: np.dtype | None) -> np.ndarray:
    made = np.array(obj, dtype=native)
    if made.dtype.kind not in "biufc" and not _dtypes.is_float(made.dtype):
        raise ArgumentTypeError(
            f"`obj` must hold numbers, got {type(obj).__name__} of {made.dtype}. Try: us.asarray([1.0, 2.0])."
        )
    if native is not None:
        return made
    first = obj
    while isinstance(first, (list, tuple)) and len(first):
        first = first[0]
    if made.dtype.kind == "f" and not hasattr(first, "dtype"):
        return made.astype(_dtypes.FLOAT)
    if made.dtype.kind == "c" and not hasattr(first, "dtype"):
        return made.astype(_dtypes.COMPLEX)
    return made


def scalar(value, like, /):
    """A 0-d array of a Python number, of like's dtype or of the default dtype of the number's higher kind."""
    dtype = _us_dtypes.with_scalar(_dtypes.name_of(_dtypes.dtype_of(like)), value)
    return np.asarray(value, dtype=_dtypes.native(dtype))


def lengths(x, /):
    return x.shape


def empty(shape, *, dtype=None, device=None):
    _check_device(device)
    return np.empty(shape, dtype=_dtypes.native_or(dtype, _dtypes.FLOAT))


def empty_like(x, /, *, dtype=None, device=None):
    _check_device(device)
    return np.empty_like(_getval(x), dtype=_dtypes.native_or(dtype, None))


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    _check_device(device)
    return np.eye(n_rows, n_cols, k=k, dtype=_dtypes.native_or(dtype, _dtypes.FLOAT))


def full(shape, fill_value, *, dtype=None, device=None):
    _check_device(device)
    fill = asarray(fill_value, dtype=dtype)
    return _operations.broadcast_to(fill, _shape(shape)) if _is_traced(fill) else np.full(shape, fill, dtype=fill.dtype)


def full_like(x, /, fill_value, *, dtype=None, device=None):
    return full(x.shape, fill_value, dtype=_dtypes.dtype_of(x) if dtype is None else dtype, device=device)


def _shape(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    _check_device(device)
    return np.linspace(start, stop, num, dtype=_dtypes.native_or(dtype, _dtypes.FLOAT), endpoint=endpoint)


def ones(shape, *, dtype=None, device=None):
    _check_device(device)
    return np.ones(shape, dtype=_dtypes.native_or(dtype, _dtypes.FLOAT))


def ones_like(x, /, *, dtype=None, device=None):
    _check_device(device)
    return np.ones_like(_getval(x), dtype=_dtypes.native_or(dtype, None))


def tril(x, /, *, k=0):
    return _operations.tril(x, k)


def triu(x, /, *, k=0):
    return _operations.triu(x, k)


def zeros(shape, *, dtype=None, device=None):
    _check_device(device)
    return np.zeros(shape, dtype=_dtypes.native_or(dtype, _dtypes.FLOAT))


def zeros_like(x, /, *, dtype=None, device=None):
    _check_device(device)
    return np.zeros(x.shape, dtype=_dtypes.dtype_of(x) if dtype is None else _dtypes.native(dtype))

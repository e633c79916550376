"""Functions that make arrays. They always pass the dtype: jax's own defaults are 64-bit here, and weak for numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisync import _dispatch, _dtypes as _us_dtypes
from unisync.backends.jax import _dtypes
from unisync.backends.jax._devices import of as _device_of, place as _place
from unisync.errors import ArgumentError, ArgumentTypeError


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        whole = all(isinstance(n, (int, np.integer)) for n in (start, stop, step))
        native = _dtypes.INT if whole else _dtypes.FLOAT
    else:
        native = _dtypes.native(dtype)
    return _place(jnp.arange(start, stop, step, dtype=native), device)


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    native = _dtypes.native_or(dtype, None)
    if copy is False:
        return _place(_shared(obj, native), device)
    if type(obj) in _dtypes.NUMBERS:
        native = _dtypes.native(type(obj)) if native is None else native
    elif not isinstance(obj, (jax.Array, np.ndarray, np.generic)):
        if _dispatch.is_array(obj):
            source = _dispatch.namespace(obj)
            obj, native = source.to_numpy(obj), _dtypes.native(source.dtype_of(obj) if native is None else native)
        else:
            obj, native = _from_sequence(obj, native)
    return _place(jnp.asarray(obj, dtype=native, copy=copy), device)


def _shared(obj: Any, native: Any) -> Any:
    if native is None or native == getattr(obj, "dtype", None):
        if isinstance(obj, jax.Array):
            return obj
        if isinstance(obj, np.ndarray):
            made = jax.device_put(obj)  # jnp.asarray(copy=False) copies
            if made.unsafe_buffer_pointer() == obj.ctypes.data:
                return made
    raise ArgumentError("`copy` must not be False where a copy is needed, got False. Try: copy=None.")


def _from_sequence(obj: Any, native: Any) -> tuple[Any, Any]:
    """Nested sequences as something that jax.numpy.asarray takes, and its dtype; Python numbers get the defaults."""
    leaves = _numbers_of(obj)
    if any(isinstance(x, jax.Array) for x in leaves):
        return _stacked(obj, native), native
    host = np.asarray(obj)
    if host.dtype.kind not in "biufc" and host.dtype not in _dtypes._NAMES:
        raise ArgumentTypeError(
            f"`obj` must hold numbers, got {type(obj).__name__} of {host.dtype}. Try: us.asarray([1.0, 2.0])."
        )
    if native is None and all(type(x) in _dtypes.NUMBERS for x in leaves):
        native = {"f": _dtypes.FLOAT, "c": _dtypes.COMPLEX}.get(host.dtype.kind)
        if not leaves:
            native = _dtypes.FLOAT
    return host, native


def _numbers_of(obj: Any) -> list[Any]:
    if not isinstance(obj, (list, tuple)):
        return [obj]
    if obj and type(obj[0]) in _dtypes.NUMBERS:
        return list(obj)
    return [x for item in obj for x in _numbers_of(item)]


def _stacked(obj: Any, native: Any) -> Any:
    parts = [_stacked(x, native) if isinstance(x, (list, tuple)) else asarray(x, dtype=native) for x in obj]
    return jnp.stack(_dtypes.meet(*parts))


def scalar(value, like, /):
    """A 0-d array of a Python number, of like's dtype or of the default dtype of the number's higher kind."""
    native = _dtypes.native(_us_dtypes.with_scalar(_dtypes.name_of(like), value))
    return _place(jnp.asarray(value, native), _device_of(like))


def lengths(x, /):
    return x.shape


def empty(shape, *, dtype=None, device=None):
    return zeros(shape, dtype=dtype, device=device)


def empty_like(x, /, *, dtype=None, device=None):
    return zeros_like(x, dtype=dtype, device=device)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    return _place(jnp.eye(n_rows, n_cols, k=k, dtype=_dtypes.native_or(dtype, _dtypes.FLOAT)), device)


def full(shape, fill_value, *, dtype=None, device=None):
    if dtype is None:
        native = _dtypes.native(type(fill_value)) if type(fill_value) in _dtypes.NUMBERS else fill_value.dtype
    else:
        native = _dtypes.native(dtype)
    return _place(jnp.full(shape, fill_value, dtype=native), device)


def full_like(x, /, fill_value, *, dtype=None, device=None):
    return _like(x, jnp.full(x.shape, fill_value, dtype=_dtypes.native_or(dtype, x.dtype)), device)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    native = _dtypes.native_or(dtype, _dtypes.FLOAT)
    return _place(jnp.linspace(start, stop, num, endpoint=endpoint, dtype=native), device)


def ones(shape, *, dtype=None, device=None):
    return _place(jnp.ones(shape, dtype=_dtypes.native_or(dtype, _dtypes.FLOAT)), device)


def ones_like(x, /, *, dtype=None, device=None):
    return _like(x, jnp.ones(x.shape, dtype=_dtypes.native_or(dtype, x.dtype)), device)


def tril(x, /, *, k=0):
    return jnp.tril(x, k)


def triu(x, /, *, k=0):
    return jnp.triu(x, k)


def zeros(shape, *, dtype=None, device=None):
    return _place(jnp.zeros(shape, dtype=_dtypes.native_or(dtype, _dtypes.FLOAT)), device)


def zeros_like(x, /, *, dtype=None, device=None):
    return _like(x, jnp.zeros(x.shape, dtype=_dtypes.native_or(dtype, x.dtype)), device)


def _like(x: Any, made: Any, device: Any) -> Any:
    """On a device, else on x's; a tracer has None."""
    return _place(made, getattr(x, "device", None) if device is None else device)

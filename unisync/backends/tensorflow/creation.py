"""Functions that make arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from unisync import _dispatch
from unisync.backends.tensorflow import _dtypes, _shapes
from unisync.backends.tensorflow._device import on as _on
from unisync.errors import ArgumentError, ArgumentTypeError


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    if stop is None:
        start, stop = 0, start
    whole = all(isinstance(n, (int, np.integer)) for n in (start, stop, step))
    native = _dtypes.native_or(dtype, _dtypes.INT if whole else _dtypes.FLOAT)
    with _on(device):
        if all(isinstance(n, (int, float, np.generic)) for n in (start, stop, step)):
            return tf.constant(np.arange(start, stop, step), native)
        return tf.cast(tf.range(start, stop, step), native)  # ends known only when the function runs


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    if type(obj) is np.ndarray and dtype is None and device is None and copy is not False and obj.dtype.isbuiltin == 1:
        return tf.constant(obj)  # half the price of tf.convert_to_tensor; copies, too
    native = None if dtype is None else _dtypes.native(dtype)
    with _on(device):
        if isinstance(obj, (tf.Tensor, tf.Variable, tf.IndexedSlices)):
            tensor = tf.convert_to_tensor(obj)
            if native is not None and native != tensor.dtype:
                if copy is False:
                    raise ArgumentError(
                        f"`copy` must not be False to change {tensor.dtype.name} to {native.name}. Try: copy=None."
                    )
                return tf.cast(tensor, native)
            if copy:
                return tf.raw_ops.DeepCopy(x=tensor)  # tf.identity shares the memory
            return tf.identity(tensor) if device and tensor.device != device else tensor
        if copy is False:
            raise ArgumentError("`copy` must not be False for data of the host, got False. Try: us.from_dlpack(x).")
        if _dispatch.is_array(obj):
            host = _dispatch.namespace(obj).to_numpy(obj)
            tensor = tf.convert_to_tensor(host, _dtypes.native(_dispatch.namespace(obj).dtype_of(obj)))
            return tensor if native is None else tf.cast(tensor, native)
        if _holds_tensor(obj):
            tensor = tf.convert_to_tensor(obj)
            return tensor if native is None else tf.cast(tensor, native)
        return _from_python(obj, native)


def _holds_tensor(obj: Any) -> bool:
    return isinstance(obj, (list, tuple)) and any(
        isinstance(x, (tf.Tensor, tf.Variable)) or _holds_tensor(x) for x in obj
    )


def _from_python(obj: Any, native: tf.DType | None) -> tf.Tensor:
    host = np.asarray(obj)
    if host.dtype.kind not in "biufc":
        raise ArgumentTypeError(
            f"`obj` must hold numbers, got {type(obj).__name__} of {host.dtype}. Try: us.asarray([1.0, 2.0])."
        )
    if native is None:
        first = obj
        while isinstance(first, (list, tuple)) and len(first):
            first = first[0]
        default = {"f": _dtypes.FLOAT, "c": _dtypes.COMPLEX}.get(host.dtype.kind)
        native = default if default is not None and not hasattr(first, "dtype") else tf.as_dtype(host.dtype)
    # NumPy casts: TensorFlow refuses Python floats for integers, and lists for the small floats.
    return tf.constant(host.astype(native.as_numpy_dtype, copy=False))


def scalar(value, like, /):
    """A 0-d array of a Python number, of like's dtype or of the default dtype of the number's higher kind."""
    return _dtypes.constant(value, _dtypes.with_number(like.dtype, value))


def lengths(x, /):
    """The lengths of the axes: ints, and scalars where they are unknown while tracing."""
    return _shapes.shape_of(x)


def empty(shape, *, dtype=None, device=None):
    return zeros(shape, dtype=dtype, device=device)


def empty_like(x, /, *, dtype=None, device=None):
    return zeros_like(x, dtype=dtype, device=device)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    native = _dtypes.native_or(dtype, _dtypes.FLOAT)
    with _on(device):
        if k == 0:
            return tf.eye(n_rows, n_cols, dtype=native)
        return tf.constant(np.eye(n_rows, n_cols, k=k), native)


def full(shape, fill_value, *, dtype=None, device=None):
    with _on(device):
        return tf.fill(_shapes.as_shape(shape), asarray(fill_value, dtype=dtype))


def full_like(x, /, fill_value, *, dtype=None, device=None):
    native = x.dtype if dtype is None else _dtypes.native(dtype)
    with _on(device):
        return tf.fill(_shapes.shape_of(x), asarray(fill_value, dtype=native))


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    native = _dtypes.native_or(dtype, _dtypes.FLOAT)
    with _on(device):
        return tf.constant(np.linspace(start, stop, num, endpoint=endpoint).astype(native.as_numpy_dtype))


def ones(shape, *, dtype=None, device=None):
    with _on(device):
        return tf.ones(_shapes.as_shape(shape), _dtypes.native_or(dtype, _dtypes.FLOAT))


def ones_like(x, /, *, dtype=None, device=None):
    with _on(device):
        return tf.ones_like(x, None if dtype is None else _dtypes.native(dtype))


def tril(x, /, *, k=0):
    return _where_diagonal(x, k, keep_lower=True)


def triu(x, /, *, k=0):
    return _where_diagonal(x, k, keep_lower=False)


def _where_diagonal(x, k, *, keep_lower):
    # tf.linalg.band_part reads a negative number of diagonals as all of them, so that only one sign of k would do.
    rows, columns = _shapes.shape_of(x)[-2:]
    if isinstance(rows, int) and isinstance(columns, int):
        lower = np.tri(rows, columns, k if keep_lower else k - 1, dtype=bool)
    else:
        lower = tf.range(columns)[None, :] - tf.range(rows)[:, None] <= (k if keep_lower else k - 1)
    return tf.where(lower if keep_lower else ~lower, x, tf.zeros((), x.dtype))


def zeros(shape, *, dtype=None, device=None):
    with _on(device):
        return tf.zeros(_shapes.as_shape(shape), _dtypes.native_or(dtype, _dtypes.FLOAT))


def zeros_like(x, /, *, dtype=None, device=None):
    with _on(device):
        return tf.zeros_like(x, None if dtype is None else _dtypes.native(dtype))

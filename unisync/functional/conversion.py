"""Between backends, and between the host and a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisync._dispatch import is_array, load, namespace, of
from unisync._types import ArrayLike, Tree
from unisync.functional.gradients import backend_of


def to_numpy(x: ArrayLike, /) -> np.ndarray:
    """The numbers of x as a NumPy array on the host.

    Shares memory with x where the backend allows; treat the result as read-only. bfloat16 comes as float32,
    which holds each of its values exactly.

    Args:
        x: a concrete array of any backend, or what np.asarray takes.

    Returns:
        numpy.ndarray of x's shape.

    Raises:
        TraceError: x is being traced by a compiled function or a gradient and has no numbers yet.

    Example:
        >>> us.to_numpy(us.asarray([1.0, 2.0]))
        array([1., 2.], dtype=float32)
    """
    return of[type(x)].to_numpy(x) if is_array(x) else np.asarray(x)


def convert(x: Any, /, backend: str) -> Any:
    """x as an array of another backend, through DLPack without a copy where both sides allow.

    The result may share memory with x: do not write to either. An array that is already of the backend is
    returned as it is.

    Args:
        x: a concrete array of any backend, or a Python number.
        backend: "numpy", "torch", "jax" or "tensorflow".

    Returns:
        Array of the backend with x's shape and dtype.

    Raises:
        UnknownNameError: there is no such backend.
        TraceError: x is being traced and has no numbers yet.

    Example:
        >>> us.convert(us.asarray([1.0, 2.0]), "numpy")
        array([1., 2.], dtype=float32)
    """
    target = load(backend)
    source = namespace(x)
    if not is_array(x):
        return target.asarray(x)
    return x if source is target else target.from_dlpack(x)


def from_dlpack(x: Any, /, *, like: Any = None) -> Any:
    """An array that shares memory with x, for any x that speaks DLPack.

    Args:
        x: object with `__dlpack__` and `__dlpack_device__`.
        like: an array whose backend to use instead of the current one.

    Returns:
        Array of the current backend, without a copy where it allows.

    Example:
        >>> import numpy as np
        >>> us.from_dlpack(np.ones(2))
        array([1., 1.])
    """
    return namespace(*(() if like is None else (like,))).from_dlpack(x)


def device(x: Any, /) -> Any:
    """The device that x lives on, as its framework names it ("cpu" on NumPy).

    Example:
        >>> us.device(us.ones(2))
        'cpu'
    """
    return of[type(x)].device(x)


def to_device(x: Any, device: Any, /) -> Any:
    """x on another device of its backend.

    Args:
        x: array.
        device: the framework's device or its name, e.g. "cpu", "cuda:1".

    Returns:
        x itself if it is there already, else a copy.

    Example:
        >>> us.to_device(us.ones(2), "cpu")
        array([1., 1.], dtype=float32)
    """
    return of[type(x)].to_device(x, device)


def block_until_ready(x: Tree, /) -> Tree:
    """x once its numbers are there: waits for asynchronous work on it, e.g. before the clock is read.

    Args:
        x: array or tree of arrays.

    Returns:
        x itself.

    Example:
        >>> us.block_until_ready(us.ones(2))
        array([1., 1.], dtype=float32)
    """
    return backend_of(x).block_until_ready(x)

"""Creation: torch's functions with the array API's defaults."""

from __future__ import annotations

from typing import Any

import numpy as _np
import torch

from unisync._types import Shape as _Shape
from unisync.backends.torch._dtypes import NUMBERS as _NUMBERS, native as _native, with_scalar as _with_scalar
from unisync.errors import ArgumentError, ArgumentTypeError


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None
) -> torch.Tensor:
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        floating = isinstance(start, float) or isinstance(stop, float) or isinstance(step, float)
        dtype = torch.float32 if floating else torch.int64
    if (stop - start) * step < 0:  # empty by the standard, an error in torch
        stop = start
    return torch.arange(start, stop, step, dtype=_native(dtype), device=device)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> torch.Tensor:
    if type(obj) is _np.ndarray and dtype is None and device is None and copy is None:
        return _from_numpy(obj, None, None, None)
    dtype = None if dtype is None else _native(dtype)
    if isinstance(obj, torch.Tensor):
        return _changed(obj, dtype, device, copy)
    if isinstance(obj, (_np.ndarray, _np.generic)):
        return _from_numpy(_np.asarray(obj), dtype, device, copy)
    if hasattr(obj, "__dlpack__"):
        return _changed(torch.from_dlpack(obj), dtype, device, copy)
    if copy is False:
        raise ArgumentError("`copy` must not be False for Python numbers and sequences, got False. Try: copy=None.")
    if type(obj) in _NUMBERS:
        return torch.scalar_tensor(obj, dtype=dtype or _native(type(obj)), device=device)
    return _from_sequence(obj, dtype, device)


def _changed(x: torch.Tensor, dtype: torch.dtype | None, device: Any, copy: bool | None) -> torch.Tensor:
    result = x.to(dtype=dtype or x.dtype, device=x.device if device is None else device, copy=copy is True)
    if copy is False and result is not x:
        raise ArgumentError(
            f"`copy` must not be False where dtype or device change, got {x.dtype} on {x.device} to {result.dtype} "
            f"on {result.device}. Try: copy=None."
        )
    return result


def _from_numpy(a: _np.ndarray, dtype: torch.dtype | None, device: Any, copy: bool | None) -> torch.Tensor:
    """The numbers of a NumPy array: its own memory if it may be written, is of native byte order and runs forwards.

    torch has no read-only tensors, so memory that must not be written is copied
    (https://github.com/pytorch/pytorch/issues/5442); nor has it negative strides
    (https://github.com/pytorch/pytorch/issues/92680).
    """
    if a.flags.writeable and device is None and copy is None and not _elsewhere():
        try:
            x = torch.from_numpy(a)
        except (TypeError, ValueError):
            pass
        else:
            return x if dtype is None or dtype is x.dtype else x.to(dtype)
    return _from_any_numpy(a, dtype, device, copy)


def _elsewhere() -> bool:
    """Whether the user has set another default device than the CPU."""
    return not torch.empty(()).is_cpu  # in a third of the time of torch.get_default_device()


def _from_any_numpy(a: _np.ndarray, dtype: torch.dtype | None, device: Any, copy: bool | None) -> torch.Tensor:
    if a.dtype.kind not in "biufc" and a.dtype.name != "bfloat16":
        raise ArgumentTypeError(f"`obj` must hold numbers, got an array of {a.dtype}. Try: obj.astype(float).")
    shareable = a.flags.writeable and a.dtype.isnative and all(stride >= 0 for stride in a.strides)
    if not shareable:
        if copy is False:
            raise ArgumentError(
                "`copy` must not be False for a NumPy array that is read-only, byte-swapped or reversed, got False. "
                "Try: copy=None."
            )
        a = a.astype(a.dtype.newbyteorder("="), order="C", copy=True)
        copy = None
    if a.dtype.name == "bfloat16":  # of ml_dtypes, which jax uses and torch.from_numpy does not know
        x = torch.from_numpy(a.view(_np.uint16)).view(torch.bfloat16)
    else:
        x = torch.from_numpy(a)
    device = torch.get_default_device() if device is None else torch.device(device)
    if device.type == "cuda" and copy is not False:
        # from pinned memory the copy need not wait for the device, nor the host for the copy
        return (x if dtype is None else x.to(dtype)).pin_memory().to(device, non_blocking=True)
    return _changed(x, dtype, device, copy)


def _from_sequence(obj: Any, dtype: torch.dtype | None, device: Any) -> torch.Tensor:
    first = obj
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    if isinstance(first, torch.Tensor):
        return _changed(torch.stack([asarray(item) for item in obj]), dtype, device, None)
    if isinstance(first, (_np.ndarray, _np.generic)):
        return _from_numpy(_np.array(obj), dtype, device, None)
    try:
        x = torch.tensor(obj, dtype=dtype, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentTypeError(
            f"`obj` must be an array, a number, or nested sequences of numbers of one shape, got {type(obj).__name__} "
            f"({error}). Try: us.asarray([[1.0, 2.0], [3.0, 4.0]])."
        ) from error
    if dtype is None and x.dtype is not torch.float32 and x.is_floating_point():
        return x.to(torch.float32)  # the user has set another default dtype for torch
    return x


def scalar(value: complex, like: torch.Tensor, /) -> torch.Tensor:
    return torch.scalar_tensor(value, dtype=_with_scalar(like.dtype, value), device=like.device)


def lengths(x: torch.Tensor, /) -> torch.Size:
    return x.shape


def empty(shape: int | _Shape, *, dtype: Any = None, device: Any = None) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.float32 if dtype is None else _native(dtype), device=device)


def empty_like(x: torch.Tensor, /, *, dtype: Any = None, device: Any = None) -> torch.Tensor:
    return torch.empty_like(x, dtype=None if dtype is None else _native(dtype), device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> torch.Tensor:
    n_cols = n_rows if n_cols is None else n_cols
    dtype = torch.float32 if dtype is None else _native(dtype)
    if k == 0:
        return torch.eye(n_rows, n_cols, dtype=dtype, device=device)
    # torch.eye has the main diagonal only: https://github.com/pytorch/pytorch/issues/70910
    rows, columns = torch.arange(n_rows, device=device), torch.arange(n_cols, device=device)
    return (columns - rows[:, None] == k).to(dtype)


def full(shape: int | _Shape, fill_value: complex, *, dtype: Any = None, device: Any = None) -> torch.Tensor:
    if dtype is None:
        dtype = type(fill_value) if type(fill_value) in _NUMBERS else asarray(fill_value).dtype
    return torch.full((shape,) if isinstance(shape, int) else shape, fill_value, dtype=_native(dtype), device=device)


def full_like(x: torch.Tensor, /, fill_value: complex, *, dtype: Any = None, device: Any = None) -> torch.Tensor:
    return torch.full_like(x, fill_value, dtype=None if dtype is None else _native(dtype), device=device)


def linspace(
    start: float, stop: float, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> torch.Tensor:
    dtype = torch.float32 if dtype is None else _native(dtype)
    if endpoint:
        return torch.linspace(start, stop, num, dtype=dtype, device=device)
    return torch.linspace(start, stop, num + 1, dtype=dtype, device=device)[:-1]


def ones(shape: int | _Shape, *, dtype: Any = None, device: Any = None) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.float32 if dtype is None else _native(dtype), device=device)


def ones_like(x: torch.Tensor, /, *, dtype: Any = None, device: Any = None) -> torch.Tensor:
    return torch.ones_like(x, dtype=None if dtype is None else _native(dtype), device=device)


def tril(x: torch.Tensor, /, *, k: int = 0) -> torch.Tensor:
    return torch.tril(x, k)


def triu(x: torch.Tensor, /, *, k: int = 0) -> torch.Tensor:
    return torch.triu(x, k)


def zeros(shape: int | _Shape, *, dtype: Any = None, device: Any = None) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float32 if dtype is None else _native(dtype), device=device)


def zeros_like(x: torch.Tensor, /, *, dtype: Any = None, device: Any = None) -> torch.Tensor:
    return torch.zeros_like(x, dtype=None if dtype is None else _native(dtype), device=device)

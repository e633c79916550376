"""Changing an array's shape, and putting arrays together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from unisync._types import Shape as _Shape
from unisync.backends.torch._dtypes import PROMOTED as _PROMOTED
from unisync.errors import ArgumentError, ShapeError

moveaxis = torch.movedim
tile = torch.tile


def broadcast_arrays(*arrays: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.broadcast_tensors(*arrays))


def broadcast_to(x: torch.Tensor, /, shape: _Shape) -> torch.Tensor:
    return torch.broadcast_to(x, shape)


def concat(arrays: Sequence[torch.Tensor], /, *, axis: int | None = 0) -> torch.Tensor:
    if axis is None:
        return torch.cat([x.reshape(-1) for x in _of_one_dtype(arrays)])
    return torch.cat(_of_one_dtype(arrays), axis)


def _of_one_dtype(arrays: Sequence[torch.Tensor]) -> list[torch.Tensor] | tuple[torch.Tensor, ...]:
    common = dtype = arrays[0].dtype
    for x in arrays:
        if x.dtype is not dtype:
            common = _PROMOTED[common, x.dtype]
    if common is dtype and isinstance(arrays, (list, tuple)):
        return arrays
    return [x.to(common) for x in arrays]


def expand_dims(x: torch.Tensor, /, *, axis: int = 0) -> torch.Tensor:
    return torch.unsqueeze(x, axis)


def flip(x: torch.Tensor, /, *, axis: int | Sequence[int] | None = None) -> torch.Tensor:
    if axis is None:
        axis = tuple(range(x.ndim))
    return torch.flip(x, (axis,) if isinstance(axis, int) else tuple(axis))


def permute_dims(x: torch.Tensor, /, axes: Sequence[int]) -> torch.Tensor:
    return torch.permute(x, axes)  # type: ignore[arg-type]


def repeat(x: torch.Tensor, repeats: int | torch.Tensor, /, *, axis: int | None = None) -> torch.Tensor:
    return torch.repeat_interleave(x, repeats, axis)


def reshape(x: torch.Tensor, /, shape: _Shape, *, copy: bool | None = None) -> torch.Tensor:
    if copy is None:
        return torch.reshape(x, shape)
    if copy:
        return torch.reshape(x.clone(), shape)
    try:
        return x.view(shape)
    except RuntimeError as error:
        raise ArgumentError(f"`copy` must not be False where memory has to move ({error}). Try: copy=None.") from error


def roll(x: torch.Tensor, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None) -> torch.Tensor:
    if axis is None:
        return torch.roll(x, shift)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    return torch.roll(x, shifts, axes)


def squeeze(x: torch.Tensor, /, axis: int | Sequence[int]) -> torch.Tensor:
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for a in axes:
        if x.shape[a] != 1:  # torch leaves such an axis as it is
            raise ShapeError(
                f"`axis` must name axes of length 1, got axis {a} of shape {tuple(x.shape)}. Try: us.reshape."
            )
    return torch.squeeze(x, axes)


def stack(arrays: Sequence[torch.Tensor], /, *, axis: int = 0) -> torch.Tensor:
    return torch.stack(_of_one_dtype(arrays), axis)


def unstack(x: torch.Tensor, /, *, axis: int = 0) -> tuple[torch.Tensor, ...]:
    return torch.unbind(x, axis)

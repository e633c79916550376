"""Picking elements by position."""

from __future__ import annotations

import torch

from unisync.errors import ArgumentError


def take(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int | None = None) -> torch.Tensor:
    if axis is None:
        if x.ndim != 1:
            raise ArgumentError(f"`axis` must be given for an array of {x.ndim} axes, got None. Try: axis=0.")
        axis = 0
    positions = _positions(indices, x.shape[axis])
    if indices.ndim == 1:
        return torch.index_select(x, axis, positions)
    axis %= x.ndim
    picked = torch.index_select(x, axis, positions.reshape(-1))
    return picked.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def take_along_axis(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    return torch.take_along_dim(x, _positions(indices, x.shape[axis]), axis)


def _positions(indices: torch.Tensor, length: int) -> torch.Tensor:
    """int64 positions from the start: index_select and gather do not count from the end
    (https://github.com/pytorch/pytorch/issues/55143)."""
    if indices.dtype is not torch.int64:
        indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + length, indices)

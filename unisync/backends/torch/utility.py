"""Tests of whole arrays."""

from __future__ import annotations

import torch

from unisync._types import Axis


def all(x: torch.Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> torch.Tensor:
    return x.to(torch.bool) if axis == () else torch.all(_truth(x), axis, keepdims)


def any(x: torch.Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> torch.Tensor:
    return x.to(torch.bool) if axis == () else torch.any(_truth(x), axis, keepdims)


def shares_memory(xs: list[torch.Tensor], ys: list[torch.Tensor]) -> bool:
    return bool(xs) and not set(map(_memory, xs)).isdisjoint(map(_memory, ys))


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _truth(x: torch.Tensor) -> torch.Tensor:
    """x, or for uint8 its truth: torch.all and torch.any of uint8 are uint8
    (https://github.com/pytorch/pytorch/issues/50342)."""
    return x != 0 if x.dtype is torch.uint8 else x

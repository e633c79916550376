"""Finding elements."""

from __future__ import annotations

from typing import Any

import torch

from unisync.backends.torch._dtypes import (
    BARE as _BARE,
    NUMBERS as _NUMBERS,
    promoted as _promoted,
)


def argmax(x: torch.Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> torch.Tensor:
    return torch.argmax(_orderable(x), axis, keepdims)


def argmin(x: torch.Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> torch.Tensor:
    return torch.argmin(_orderable(x), axis, keepdims)


def _orderable(x: torch.Tensor) -> torch.Tensor:
    """x in a dtype that torch can compare: not bool, which argmax refuses
    (https://github.com/pytorch/pytorch/issues/35529), nor the larger unsigned integers."""
    if x.dtype is torch.bool:
        return x.view(torch.uint8)
    if x.dtype in _BARE:
        return _ordered(x)
    return x


def _ordered(x: torch.Tensor) -> torch.Tensor:
    """int64 numbers in the order of the unsigned x: for uint64, with the sign bit flipped."""
    if x.dtype is torch.uint64:
        return x.view(torch.int64) ^ torch.iinfo(torch.int64).min
    return x.to(torch.int64)


def count_nonzero(
    x: torch.Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> torch.Tensor:
    # torch.count_nonzero has no keepdim (https://docs.pytorch.org/docs/stable/generated/torch.count_nonzero.html)
    truth = x if x.dtype is torch.bool else x != 0
    return truth.to(torch.int64) if axis == () else torch.sum(truth, axis, keepdims)


def nonzero(x: torch.Tensor, /) -> tuple[torch.Tensor, ...]:
    return torch.nonzero(x != 0 if x.dtype in _BARE else x, as_tuple=True)


def searchsorted(
    x1: torch.Tensor, x2: torch.Tensor, /, *, side: str = "left", sorter: torch.Tensor | None = None
) -> torch.Tensor:
    if x1.dtype is not x2.dtype:
        x1, x2 = _promoted(x1, x2)
    if x1.dtype in _BARE or x1.dtype is torch.bool:
        x1, x2 = _orderable(x1), _orderable(x2)
    sorter = None if sorter is None else sorter.to(torch.int64)
    # torch warns of values that are not contiguous
    return torch.searchsorted(x1.contiguous(), x2.contiguous(), side=side, sorter=sorter)


def where(condition: torch.Tensor, x1: Any, x2: Any, /) -> torch.Tensor:
    if type(x2) in _NUMBERS or type(x1) in _NUMBERS or x1.dtype is x2.dtype:
        return torch.where(condition, x1, x2)
    return torch.where(condition, *_promoted(x1, x2))

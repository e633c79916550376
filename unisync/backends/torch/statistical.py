"""Reductions over axes.

To torch an empty tuple of axes means all (https://github.com/pytorch/pytorch/issues/60845), to the standard none.
"""

from __future__ import annotations

from typing import Any

import torch

from unisync._types import Axis
from unisync.backends.torch._dtypes import BARE as _BARE, UNSIGNED as _UNSIGNED, native as _native
from unisync.backends.torch.searching import _ordered
from unisync.errors import ArgumentError


def cumulative_sum(
    x: torch.Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> torch.Tensor:
    if axis is None:
        if x.ndim != 1:
            raise ArgumentError(f"`axis` must be given for an array of {x.ndim} axes, got None. Try: axis=0.")
        axis = 0
    x = _accumulable(x, dtype)
    if x.dtype is torch.uint64:
        result = torch.cumsum(x.view(torch.int64), axis).view(torch.uint64)
    else:
        result = torch.cumsum(x, axis, dtype=x.dtype)
    if include_initial:
        first = list(x.shape)
        first[axis] = 1
        result = torch.cat([result.new_zeros(first), result], axis)
    return result


def _accumulable(x: torch.Tensor, dtype: Any) -> torch.Tensor:
    """x in the dtype in which sums and products accumulate."""
    if dtype is not None:
        return x.to(_native(dtype))
    if x.is_floating_point() or x.is_complex():
        return x
    return x.to(torch.uint64 if x.dtype in _UNSIGNED else torch.int64)


def max(x: torch.Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> torch.Tensor:
    return _extreme(torch.amax, x, axis, keepdims)


def min(x: torch.Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> torch.Tensor:
    return _extreme(torch.amin, x, axis, keepdims)


def _extreme(fn: Any, x: torch.Tensor, axis: Axis, keepdims: bool) -> torch.Tensor:
    if axis == ():
        return x.clone()
    dtype = x.dtype
    if dtype in _BARE:
        result = _ordered(x)
        result = fn(result, () if axis is None else axis, keepdims)
        return (result ^ torch.iinfo(torch.int64).min).view(dtype) if dtype is torch.uint64 else result.to(dtype)
    return fn(x, () if axis is None else axis, keepdims)


def mean(x: torch.Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> torch.Tensor:
    x = _floating(x)
    return x.clone() if axis == () else torch.mean(x, axis, keepdims)


def _floating(x: torch.Tensor) -> torch.Tensor:
    return x if x.is_floating_point() or x.is_complex() else x.to(torch.float32)


def prod(x: torch.Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> torch.Tensor:
    x = _accumulable(x, dtype)
    result = x.view(torch.int64) if x.dtype is torch.uint64 else x
    if axis is None and not keepdims:
        result = torch.prod(result, dtype=result.dtype)
    else:
        # torch.prod takes one axis: https://github.com/pytorch/pytorch/issues/56586
        axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        for a in sorted((a % x.ndim for a in axes), reverse=True):
            result = torch.prod(result, a, keepdims, dtype=result.dtype)
    return result.view(torch.uint64) if x.dtype is torch.uint64 else result


def std(x: torch.Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> torch.Tensor:
    x = _floating(x)
    return torch.zeros_like(x) if axis == () else torch.std(x, axis, correction=correction, keepdim=keepdims)


def sum(x: torch.Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> torch.Tensor:
    if axis == ():
        return _accumulable(x, dtype).clone()
    if dtype is None and x.dtype not in _UNSIGNED:
        return torch.sum(x, axis, keepdims)
    x = _accumulable(x, dtype)
    if x.dtype is torch.uint64:
        return torch.sum(x.view(torch.int64), axis, keepdims).view(torch.uint64)
    return torch.sum(x, axis, keepdims, dtype=x.dtype)


def var(x: torch.Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> torch.Tensor:
    x = _floating(x)
    return torch.zeros_like(x) if axis == () else torch.var(x, axis, correction=correction, keepdim=keepdims)

"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from unisync.backends.torch._dtypes import promoted as _promoted
from unisync.backends.torch.elementwise import _of_arrays

matmul = _of_arrays("matmul", torch.matmul)


def matrix_transpose(x: torch.Tensor, /) -> torch.Tensor:
    return x.mT


def tensordot(
    x1: torch.Tensor, x2: torch.Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> torch.Tensor:
    x1, x2 = _promoted(x1, x2)
    return torch.tensordot(x1, x2, dims=axes)  # type: ignore[arg-type]


def vecdot(x1: torch.Tensor, x2: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    x1, x2 = _promoted(x1, x2)
    if x1.is_floating_point() or x1.is_complex():
        return torch.linalg.vecdot(x1, x2, dim=axis)
    return torch.sum(x1 * x2, axis, dtype=x1.dtype)  # linalg is for floating point only

"""Data types of torch arrays."""

from __future__ import annotations

from typing import Any

import torch

from unisync._types import DType
from unisync.backends.torch._dtypes import NAMES as _NAMES, native as _native


def astype(x: torch.Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> torch.Tensor:
    return x.to(dtype=_native(dtype), device=device, copy=copy)


def dtype_of(x: torch.Tensor, /) -> DType:
    return _NAMES[x.dtype]

"""torch's data types by name and back, and how two of them promote."""

from __future__ import annotations

from typing import Any

import torch

from unisync import _dtypes, _types

NATIVE: dict[Any, torch.dtype] = {name: getattr(torch, name) for name in _types.DTYPES}
"""us dtype, name, Python type or torch dtype → torch dtype."""

NAMES: dict[torch.dtype, _types.DType] = {native: _types.DTYPES[name] for name, native in NATIVE.items()}
"""torch dtype → us dtype."""

NATIVE |= {native: native for native in NAMES}
NATIVE |= {bool: torch.bool, int: torch.int64, float: torch.float32, complex: torch.complex64}

PROMOTED: dict[tuple[torch.dtype, torch.dtype], torch.dtype] = {
    (a, b): NATIVE[_dtypes.promote(NAMES[a], NAMES[b])] for a in NAMES for b in NAMES
}
"""The dtype to which two promote, as a table: torch.compile cannot trace through functools.cache."""

UNSIGNED: frozenset[torch.dtype] = frozenset({torch.uint8, torch.uint16, torch.uint32, torch.uint64})

BARE: dict[torch.dtype, torch.dtype | None] = {
    torch.uint16: torch.int64,
    torch.uint32: torch.int64,
    torch.uint64: None,
}
"""The dtypes with few kernels on the CPU, and the one that holds all their values
(https://github.com/pytorch/pytorch/issues/58734)."""

NUMBERS: frozenset[type] = frozenset({float, int, bool, complex})


def native(dtype: Any) -> torch.dtype:
    """The torch dtype of a us dtype, a name, a Python type, or a framework's dtype object."""
    found = NATIVE.get(dtype)
    return NATIVE[_dtypes.name(dtype)] if found is None else found


def with_scalar(dtype: torch.dtype, value: complex) -> torch.dtype:
    """The dtype of an array of `dtype` combined with a Python number."""
    if dtype.is_floating_point and type(value) is not complex:
        return dtype
    return NATIVE[_dtypes.with_scalar(NAMES[dtype], value)]


def promoted(x1: torch.Tensor, x2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both arrays in the dtype to which theirs promote.

    torch itself lets an array of one or more axes win over a 0-d one
    (https://pytorch.org/docs/stable/tensor_attributes.html#torch.dtype), and has no result for most pairs of
    large unsigned integers.
    """
    dtype = PROMOTED[x1.dtype, x2.dtype]
    return x1.to(dtype), x2.to(dtype)

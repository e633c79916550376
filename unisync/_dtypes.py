"""Data types as names: what a framework's dtype is called, how two promote, and what limits one has."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from unisync import _types as t
from unisync._types import DTYPES, KINDS, DType
from unisync.errors import ArgumentTypeError, unknown


def name(dtype: Any) -> DType:
    """The us dtype of a us dtype, a name, a Python type, or a framework's own dtype object.

    Raises:
        UnknownNameError: it names no dtype; the message names the nearest.

    Example:
        >>> import numpy as np
        >>> from unisync import _dtypes
        >>> _dtypes.name(np.dtype("float32")), _dtypes.name(float)
        (us.float32, us.float32)
    """
    if type(dtype) is DType:
        return dtype
    found = _NAMES.get(dtype) if isinstance(dtype, (str, type)) else None
    if found is None:
        text = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
        found = _NAMES.get(str(text).rpartition(".")[2])
    if found is None:
        raise unknown("dtype", dtype, DTYPES)
    return found


_NAMES: dict[Any, DType] = {
    **DTYPES,
    "bool_": t.bool,
    bool: t.bool,
    int: t.DEFAULT_INT,
    float: t.DEFAULT_FLOAT,
    complex: t.DEFAULT_COMPLEX,
}


def isdtype(dtype: DType, kind: Any) -> bool:
    """Whether `dtype` is `kind`, is of the kind so named, or of one of a tuple of kinds."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind in KINDS:
        return dtype in KINDS[kind]
    if isinstance(kind, str) and kind not in DTYPES:
        raise unknown("kind", kind, [*KINDS, *DTYPES])
    return dtype == name(kind)


@functools.cache
def promote(a: DType, b: DType) -> DType:
    """The dtype of a result of arrays of dtypes a and b.

    Source: the array API standard's table, extended so that every pair has a result: an integer takes a
    floating-point or complex partner's dtype, a boolean any partner's, bfloat16 with float16 gives float32,
    and uint64 with a signed integer gives float32.
    """
    if a == b:
        return a
    rank = _rank(a), _rank(b)
    if rank[0] != rank[1]:
        low, high = (a, b) if rank[0] < rank[1] else (b, a)
        if high in KINDS["complex floating"] and low == t.float64:
            return t.complex128
        return high
    if a in KINDS["integral"]:
        return _promote_integers(a, b)
    if {a, b} == {t.float16, t.bfloat16}:
        return t.float32
    return max(a, b, key=lambda d: bits(d))


def _rank(d: DType) -> int:
    return next(
        i for i, kind in enumerate(("bool", "integral", "real floating", "complex floating")) if d in KINDS[kind]
    )


def _promote_integers(a: DType, b: DType) -> DType:
    signed, unsigned = (a, b) if a in KINDS["signed integer"] else (b, a)
    if (a in KINDS["signed integer"]) == (b in KINDS["signed integer"]):
        return max(a, b, key=bits)
    if bits(signed) > bits(unsigned):
        return signed
    return DTYPES.get(f"int{2 * bits(unsigned)}", t.float32)


def result_type(*operands: Any) -> DType:
    """The dtype to which us dtypes and Python numbers promote; numbers are weak within their kind."""
    dtypes = [x for x in operands if isinstance(x, DType)]
    if not dtypes:
        raise ArgumentTypeError(
            "`arrays_and_dtypes` must hold at least one array or dtype, got none. Try: us.result_type(x, 2.0)."
        )
    result = functools.reduce(promote, dtypes)
    for x in operands:
        if not isinstance(x, DType):
            result = with_scalar(result, x)
    return result


def with_scalar(dtype: DType, value: complex) -> DType:
    """The dtype of an array of `dtype` combined with a Python number: the array's, unless its kind is lower."""
    weak = _NAMES[type(value) if type(value) in _NAMES else complex]
    if _rank(weak) <= _rank(dtype):
        return dtype
    return t.complex128 if weak == t.complex64 and dtype == t.float64 else weak


def accumulator(dtype: DType) -> DType:
    """The dtype in which `sum` and `prod` of an array of `dtype` accumulate and return by default."""
    if dtype in KINDS["unsigned integer"]:
        return t.uint64
    return t.int64 if dtype == t.bool or dtype in KINDS["integral"] else dtype


@functools.cache
def bits(dtype: DType) -> int:
    """The size of one element in bits."""
    return 8 if dtype == t.bool else int("".join(c for c in dtype.removeprefix("b") if c.isdigit()))


@final
@dataclass(frozen=True, slots=True)
class FInfo:
    """The limits of a floating-point dtype; for a complex one, those of its parts."""

    dtype: DType
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float


@final
@dataclass(frozen=True, slots=True)
class IInfo:
    """The limits of an integer dtype."""

    dtype: DType
    bits: int
    max: int
    min: int


def finfo(dtype: DType) -> FInfo:
    """The limits of a floating-point or complex dtype."""
    if not isdtype(dtype, ("real floating", "complex floating")):
        raise ArgumentTypeError(f"`type` must be a floating-point dtype, got {dtype}. Try: us.iinfo for integers.")
    if dtype == t.bfloat16:  # 8 bits of exponent as float32, 7 of mantissa
        largest = (2 - 2**-7) * 2.0**127
        return FInfo(dtype, 16, 2.0**-7, largest, -largest, 2.0**-126)
    info = np.finfo(dtype)
    part = name(info.dtype)
    return FInfo(part, bits(part), float(info.eps), float(info.max), float(info.min), float(info.smallest_normal))


def iinfo(dtype: DType) -> IInfo:
    """The limits of an integer dtype."""
    if not isdtype(dtype, "integral"):
        raise ArgumentTypeError(f"`type` must be an integer dtype, got {dtype}. Try: us.finfo for floating point.")
    info = np.iinfo(dtype)
    return IInfo(dtype, bits(dtype), int(info.max), int(info.min))

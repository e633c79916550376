"""jax's dtypes by the names of unisync, and the one dtype in which the arguments of an operation meet.

jax promotes by a lattice of its own: in 64-bit mode an integer meets a Python float in float64, and a pair like uint64
with int64 in a floating-point dtype that depends on the mode. `meet` applies the table of `_dtypes.promote`
instead. What jax calls weakly typed (Python numbers, and arrays that a compiled function makes of them) keeps yielding.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisync import _dtypes
from unisync._types import DTYPES, DType
from unisync.errors import ArgumentTypeError

NUMBERS = frozenset({bool, int, float, complex})
BOOL = np.dtype("bool")
INTEGER_KINDS = "biu"

_NAMES: dict[np.dtype, DType] = {jnp.dtype(text): dtype for text, dtype in DTYPES.items()}
_NARROW = {"int64": "int32", "uint64": "uint32"}  # what jax can do when its 64-bit mode is off
_NATIVE: dict[Any, np.dtype] = {}


def _fill() -> None:
    x64 = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
    for text, dtype in DTYPES.items():
        if x64 or dtype not in ("float64", "complex128"):
            _NATIVE[dtype] = jnp.dtype(text if x64 else _NARROW.get(text, text))
    _NATIVE.update({native_dtype: native_dtype for native_dtype in list(_NATIVE.values())})
    _NATIVE.update({kind: _NATIVE[_dtypes.name(kind)] for kind in NUMBERS})


def native(dtype: Any) -> np.dtype:
    """jax's dtype for a us dtype, a name, a Python type, or a framework's own dtype.

    Raises:
        UnknownNameError: it names no dtype.
        ArgumentTypeError: jax's 64-bit mode is off and cannot hold it.
    """
    found = _NATIVE.get(dtype)
    if found is None:
        name = _dtypes.name(dtype)
        found = _NATIVE.get(name)
        if found is None:
            raise ArgumentTypeError(
                f"`dtype` must be one that jax's 32-bit mode has, got {name}. Try: unset UNISYNC_JAX_X64."
            )
    return found


_fill()
FLOAT = native("float32")
COMPLEX = native("complex64")
INT = native("int64")


def native_or(dtype: Any, default: Any) -> Any:
    """As `native`, with a default for None."""
    return default if dtype is None else native(dtype)


def name_of(x: Any) -> DType:
    """The us dtype of an array."""
    found = _NAMES.get(x.dtype)
    return _dtypes.name(x.dtype) if found is None else found


def is_integer(x: Any) -> bool:
    """Whether an array holds integers or booleans."""
    return x.dtype.kind in INTEGER_KINDS


def floating(x: Any) -> Any:
    """x, as the default floating-point dtype if it holds integers or booleans."""
    return x.astype(FLOAT) if x.dtype.kind in INTEGER_KINDS else x


@functools.cache
def promoted(a: np.dtype, b: np.dtype) -> np.dtype:
    """The dtype to which two dtypes promote by the rules of unisync."""
    return native(_dtypes.promote(_NAMES[a], _NAMES[b]))


@functools.cache
def with_number(dtype: np.dtype, kind: type) -> np.dtype:
    """The dtype of an array of `dtype` combined with a Python number of type `kind`."""
    return native(_dtypes.with_scalar(_NAMES[dtype], kind(0)))


def meet(*operands: Any) -> list[Any]:
    """The operands in one dtype. Python numbers, and arrays as weak as these, yield to the others within their kind."""
    strong: np.dtype | None = None
    weak: list[type] = []
    for x in operands:
        kind = number_kind(x)
        if kind is not None:
            weak.append(kind)
        else:
            strong = x.dtype if strong is None or strong == x.dtype else promoted(strong, x.dtype)
    if strong is None:
        return list(operands)
    for kind in weak:
        strong = with_number(strong, kind)
    return [jnp.asarray(x, strong) if type(x) in NUMBERS or x.dtype != strong else x for x in operands]


def number_kind(x: Any) -> type | None:
    """The type of Python number that x is, or is as weak as; None for an ordinary array."""
    if type(x) in NUMBERS:
        return type(x)
    if not x.weak_type:
        return None
    return {"b": bool, "i": int, "u": int, "c": complex}.get(x.dtype.kind, float)

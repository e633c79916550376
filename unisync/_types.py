"""The words that users type and the types that signatures name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

Array = TypeVar("Array")
"""A native array of any backend: what goes in is what comes out."""

ArrayLike = Any
"""A native array, a NumPy array, a Python number, or nested sequences of numbers."""

Tree = Any
"""An array, or nested dicts, lists and tuples of arrays."""

F = TypeVar("F", bound=Callable[..., Any])

BackendName = Literal["numpy", "torch", "jax", "tensorflow"]
Shape = tuple[int, ...]
Axis = int | tuple[int, ...] | None
DataFormat = Literal["NHWC", "NCHW"]
SequenceFormat = Literal["NLC", "NCL"]
Padding = int | Sequence[int] | Literal["valid", "same"]


class DType(str):
    """The name of a data type, understood by every backend.

    It is a string, so that it prints, compares and serialises as its name. Functions that take a
    dtype accept it, a plain string, or the framework's own dtype object.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"us.{self}"


bool = DType("bool")
int8 = DType("int8")
int16 = DType("int16")
int32 = DType("int32")
int64 = DType("int64")
uint8 = DType("uint8")
uint16 = DType("uint16")
uint32 = DType("uint32")
uint64 = DType("uint64")
float16 = DType("float16")
bfloat16 = DType("bfloat16")
float32 = DType("float32")
float64 = DType("float64")
complex64 = DType("complex64")
complex128 = DType("complex128")

DTYPES: dict[str, DType] = {
    str(d): d
    for d in (
        bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
        float16, bfloat16, float32, float64, complex64, complex128,
    )
}  # fmt: skip
"""Every data type by its name."""

DEFAULT_FLOAT = float32
DEFAULT_INT = int64
DEFAULT_COMPLEX = complex64

KINDS: dict[str, tuple[DType, ...]] = {
    "bool": (bool,),
    "signed integer": (int8, int16, int32, int64),
    "unsigned integer": (uint8, uint16, uint32, uint64),
    "integral": (int8, int16, int32, int64, uint8, uint16, uint32, uint64),
    "real floating": (float16, bfloat16, float32, float64),
    "complex floating": (complex64, complex128),
}
KINDS["numeric"] = KINDS["integral"] + KINDS["real floating"] + KINDS["complex floating"]
"""The array API standard's names for groups of data types."""

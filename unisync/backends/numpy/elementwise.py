"""Functions of one or two arrays that work element by element: NumPy's ufuncs, with the promotion of unisync."""

from __future__ import annotations

from collections.abc import Callable as _Callable
from typing import Any

import numpy as np
from autograd.tracer import trace_primitives_map as _primitives

from unisync import _dtypes as _us_dtypes
from unisync.backends.numpy import _dtypes, _operations
from unisync.backends.numpy._tape import Box as _Box

_ndarray = np.ndarray


def _named(op: _Callable[..., Any], ufunc: np.ufunc) -> Any:
    op.__name__ = op.__qualname__ = ufunc.__name__
    op.__doc__ = f"`numpy.{ufunc.__name__}`"
    return op


def _floating(ufunc: np.ufunc) -> Any:
    """A ufunc of floating-point numbers; integers become the default floating-point dtype first."""
    traced = _primitives[ufunc]

    single, double = _dtypes.FLOAT, np.dtype("float64")

    def op(x, /):
        if type(x) is _Box:
            return traced(x)
        dtype = x.dtype
        if dtype is single or dtype is double or dtype.kind in "fcV":
            return ufunc(x)
        return ufunc(x.astype(single))

    return _named(op, ufunc)


def _binary(ufunc: np.ufunc, *, divides: bool = False) -> Any:
    """A ufunc of two arrays of one dtype; others are promoted first."""
    traced = _primitives[ufunc]

    def op(x1, x2, /):
        if type(x1) is _ndarray:
            if type(x2) is _ndarray:
                if x1.dtype is x2.dtype and (not divides or x1.dtype.kind in "fcV"):
                    return ufunc(x1, x2)
            elif type(x2) is float and x1.dtype.kind == "f":
                return ufunc(x1, x2)
        x1, x2 = _operands(x1, x2, divides)
        return traced(x1, x2) if type(x1) is _Box or type(x2) is _Box else ufunc(x1, x2)

    return _named(op, ufunc)


def _operands(x1: Any, x2: Any, divides: bool) -> tuple[Any, Any]:
    d1 = _dtypes.dtype_of(x1)
    if isinstance(x2, (bool, int, float, complex)) and not isinstance(x2, np.generic):
        wanted = _dtypes.native(_us_dtypes.with_scalar(_dtypes.name_of(d1), x2))
        if divides and not _dtypes.is_float(wanted):
            wanted = _dtypes.FLOAT
        return (x1 if d1 == wanted else _operations.astype(x1, wanted)), x2
    d2 = _dtypes.dtype_of(x2)
    wanted = d1 if d1 == d2 else _dtypes.promoted(x1, x2)
    if divides and not _dtypes.is_float(wanted):
        wanted = _dtypes.FLOAT
    if d1 != wanted:
        x1 = _operations.astype(x1, wanted)
    if d2 != wanted:
        x2 = _operations.astype(x2, wanted)
    return x1, x2


abs = np.abs
bitwise_invert = np.invert
equal = np.equal
greater = np.greater
greater_equal = np.greater_equal
isfinite = np.isfinite
isinf = np.isinf
isnan = np.isnan
less = np.less
less_equal = np.less_equal
logical_and = np.logical_and
logical_not = np.logical_not
logical_or = np.logical_or
logical_xor = np.logical_xor
negative = np.negative
not_equal = np.not_equal
sign = np.sign
square = np.square

acos = _floating(np.arccos)
acosh = _floating(np.arccosh)
asin = _floating(np.arcsin)
asinh = _floating(np.arcsinh)
atan = _floating(np.arctan)
atanh = _floating(np.arctanh)
cos = _floating(np.cos)
cosh = _floating(np.cosh)
exp = _floating(np.exp)
expm1 = _floating(np.expm1)
log = _floating(np.log)
log10 = _floating(np.log10)
log1p = _floating(np.log1p)
log2 = _floating(np.log2)
reciprocal = _floating(np.reciprocal)
sin = _floating(np.sin)
sinh = _floating(np.sinh)
sqrt = _floating(np.sqrt)
tan = _floating(np.tan)
tanh = _floating(np.tanh)

add = _binary(np.add)
bitwise_and = _binary(np.bitwise_and)
bitwise_left_shift = _binary(np.left_shift)
bitwise_or = _binary(np.bitwise_or)
bitwise_right_shift = _binary(np.right_shift)
bitwise_xor = _binary(np.bitwise_xor)
floor_divide = _binary(np.floor_divide)
maximum = _binary(np.maximum)
minimum = _binary(np.minimum)
multiply = _binary(np.multiply)
pow = _binary(np.power)
remainder = _binary(np.remainder)
subtract = _binary(np.subtract)
atan2 = _binary(np.arctan2, divides=True)
divide = _binary(np.true_divide, divides=True)
logaddexp = _binary(np.logaddexp, divides=True)


def ceil(x, /):
    return x if _dtypes.dtype_of(x).kind in "iub" else np.ceil(x)


def floor(x, /):
    return x if _dtypes.dtype_of(x).kind in "iub" else np.floor(x)


def round(x, /):
    return x if _dtypes.dtype_of(x).kind in "iub" else np.rint(x)


def trunc(x, /):
    return x if _dtypes.dtype_of(x).kind in "iub" else np.trunc(x)


def positive(x, /):
    return x if type(x) is _Box else np.positive(x)


def clip(x, /, min=None, max=None):
    return _operations.clip(x, min, max)


def erf(x, /):
    return _operations.erf(x)


def rsqrt(x, /):
    return 1 / sqrt(x)

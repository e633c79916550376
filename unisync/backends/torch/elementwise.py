"""Element-wise functions: torch's own, with the array API's promotion."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial as _partial
from typing import Any

import torch

from unisync.backends.torch._dtypes import (
    BARE as _BARE,
    NUMBERS as _NUMBERS,
    promoted as _promoted,
    with_scalar as _with_scalar,
)

acos = torch.acos
acosh = torch.acosh
asin = torch.asin
asinh = torch.asinh
atan = torch.atan
atanh = torch.atanh
ceil = torch.ceil
cos = torch.cos
cosh = torch.cosh
erf = torch.erf
exp = torch.exp
expm1 = torch.expm1
floor = torch.floor
isfinite = torch.isfinite
isinf = torch.isinf
isnan = torch.isnan
log = torch.log
log10 = torch.log10
log1p = torch.log1p
log2 = torch.log2
positive = torch.positive
reciprocal = torch.reciprocal
round = torch.round
rsqrt = torch.rsqrt
sin = torch.sin
sinh = torch.sinh
sqrt = torch.sqrt
tan = torch.tan
tanh = torch.tanh
trunc = torch.trunc


def _unary(name: str, fn: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """fn of one array, also of the unsigned integers for which torch has no kernel."""

    def unary(x: torch.Tensor, /) -> torch.Tensor:
        try:
            return fn(x)
        except NotImplementedError:
            return _widened(fn, x)

    unary.__name__ = unary.__qualname__ = name
    return unary


def _binary(name: str, fn: Callable[..., Any]) -> Callable[[Any, Any], torch.Tensor]:
    """fn of two arrays, or an array and a number, where torch takes both; equal dtypes go straight to it."""

    def binary(x1: torch.Tensor, x2: Any, /) -> torch.Tensor:
        if type(x2) in _NUMBERS or x1.dtype is x2.dtype:
            try:
                return fn(x1, x2)
            except NotImplementedError:
                return _widened(fn, x1, x2)
        return binary(*_promoted(x1, x2))

    binary.__name__ = binary.__qualname__ = name
    return binary


def _of_arrays(name: str, fn: Callable[..., Any]) -> Callable[[Any, Any], torch.Tensor]:
    """fn of two arrays, where torch takes no number: it becomes a 0-d array first."""

    def binary(x1: torch.Tensor, x2: Any, /) -> torch.Tensor:
        if type(x2) in _NUMBERS:
            x2 = torch.scalar_tensor(x2, dtype=_with_scalar(x1.dtype, x2), device=x1.device)
        if x1.dtype is x2.dtype:
            try:
                return fn(x1, x2)
            except NotImplementedError:
                return _widened(fn, x1, x2)
        return binary(*_promoted(x1, x2))

    binary.__name__ = binary.__qualname__ = name
    return binary


def _widened(fn: Callable[..., Any], *xs: Any) -> torch.Tensor:
    """fn of large unsigned integers, computed in int64 (https://github.com/pytorch/pytorch/issues/58734).

    uint64 does not fit; where only the low bits count, two's complement gives the same ones.

    Raises:
        NotImplementedError: torch's own, where int64 would not do.
    """
    dtype = xs[0].dtype
    if dtype not in _BARE or (_BARE[dtype] is None and fn not in _LOW_BITS):
        return fn(*xs)
    result = fn(*(x.to(torch.int64) if isinstance(x, torch.Tensor) else x for x in xs))
    return result.to(dtype) if result.dtype is torch.int64 else result


_LOW_BITS = frozenset(
    {torch.add, torch.sub, torch.neg, torch.square, torch.bitwise_not, torch.bitwise_left_shift,
     torch.logical_and, torch.logical_or, torch.logical_xor, torch.logical_not}
)  # fmt: skip

# torch.floor_divide has no derivative (https://github.com/pytorch/pytorch/issues/43327); this has: zero.
_floor_divide = _partial(torch.div, rounding_mode="floor")

add = _binary("add", torch.add)
bitwise_and = _binary("bitwise_and", torch.bitwise_and)
bitwise_left_shift = _binary("bitwise_left_shift", torch.bitwise_left_shift)
bitwise_or = _binary("bitwise_or", torch.bitwise_or)
bitwise_right_shift = _binary("bitwise_right_shift", torch.bitwise_right_shift)
bitwise_xor = _binary("bitwise_xor", torch.bitwise_xor)
divide = _binary("divide", torch.div)
equal = _binary("equal", torch.eq)
floor_divide = _binary("floor_divide", _floor_divide)
greater = _binary("greater", torch.gt)
greater_equal = _binary("greater_equal", torch.ge)
less = _binary("less", torch.lt)
less_equal = _binary("less_equal", torch.le)
multiply = _binary("multiply", torch.mul)
not_equal = _binary("not_equal", torch.ne)
pow = _binary("pow", torch.pow)
remainder = _binary("remainder", torch.remainder)
subtract = _binary("subtract", torch.sub)

atan2 = _of_arrays("atan2", torch.atan2)
logaddexp = _of_arrays("logaddexp", torch.logaddexp)
logical_and = _of_arrays("logical_and", torch.logical_and)
logical_or = _of_arrays("logical_or", torch.logical_or)
logical_xor = _of_arrays("logical_xor", torch.logical_xor)
maximum = _of_arrays("maximum", torch.maximum)
minimum = _of_arrays("minimum", torch.minimum)

abs = _unary("abs", torch.abs)
bitwise_invert = _unary("bitwise_invert", torch.bitwise_not)
logical_not = _unary("logical_not", torch.logical_not)
negative = _unary("negative", torch.neg)
square = _unary("square", torch.square)

_sgn = _unary("sgn", torch.sgn)  # torch.sign refuses complex numbers


def sign(x: torch.Tensor, /) -> torch.Tensor:
    result = _sgn(x)
    if x.is_floating_point():  # to torch the sign of NaN is 0: https://github.com/data-apis/array-api-compat/issues/136
        return torch.where(x != x, x, result)
    return result


def clip(x: torch.Tensor, /, min: Any = None, max: Any = None) -> torch.Tensor:
    if min is None and max is None:
        return x
    # torch.clamp takes two numbers or two arrays: https://github.com/pytorch/pytorch/issues/71918
    if isinstance(min, torch.Tensor) or isinstance(max, torch.Tensor):
        min, max = _bound(min, x), _bound(max, x)
    result = torch.clamp(x, min, max)
    return result if result.dtype is x.dtype else result.to(x.dtype)


def _bound(limit: Any, x: torch.Tensor) -> torch.Tensor | None:
    if limit is None or isinstance(limit, torch.Tensor):
        return limit
    return torch.scalar_tensor(limit, dtype=x.dtype, device=x.device)

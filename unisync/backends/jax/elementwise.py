"""Functions of one or two arrays that work element by element: jax.numpy's, with the promotion of unisync."""

from __future__ import annotations

from collections.abc import Callable as _Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp

from unisync.backends.jax import _dtypes

_NUMBERS = _dtypes.NUMBERS
_INTEGER_KINDS = _dtypes.INTEGER_KINDS
_FLOAT = _dtypes.FLOAT
_with_number = _dtypes.with_number


def _named(op: Any, name: str) -> Any:
    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"`jax.numpy.{name}`"
    return op


def _floating(native: _Callable[[Any], Any], name: str) -> Any:
    """A function of floating-point numbers; integers become the default floating-point dtype first."""

    def op(x, /):
        return native(x.astype(_FLOAT) if x.dtype.kind in _INTEGER_KINDS else x)

    return _named(op, name)


def _binary(native: _Callable[[Any, Any], Any], name: str) -> Any:
    """A function of two arrays that meet in one dtype, or of an array and a Python number."""

    def op(x1, x2, /):
        if type(x2) in _NUMBERS:
            dtype = x1.dtype
            if _with_number(dtype, type(x2)) != dtype:
                x1 = x1.astype(_with_number(dtype, type(x2)))
        elif x1.dtype != x2.dtype:
            x1, x2 = _dtypes.meet(x1, x2)
        return native(x1, x2)

    return _named(op, name)


def _binary_floating(native: _Callable[[Any, Any], Any], name: str) -> Any:
    """As `_binary`; integers become the default floating-point dtype first."""
    meeting = _binary(native, name)

    def op(x1, x2, /):
        if x1.dtype.kind in _INTEGER_KINDS and (type(x2) in _NUMBERS or x2.dtype.kind in _INTEGER_KINDS):
            x1 = x1.astype(_FLOAT)
        return meeting(x1, x2)

    return _named(op, name)


@jax.custom_jvp
def _traced_abs(x):
    return jnp.abs(x)


@_traced_abs.defjvp
def _abs_jvp(primals, tangents):
    return _traced_abs(primals[0]), jnp.sign(primals[0]) * tangents[0]


def abs(x, /):
    if isinstance(x, jax.core.Tracer) and x.dtype.kind not in "ciub":
        return _traced_abs(x)  # jnp.abs has the gradient 1 at 0, other frameworks 0
    return jnp.abs(x)


acos = _floating(jnp.acos, "acos")
acosh = _floating(jnp.acosh, "acosh")
add = _binary(jnp.add, "add")
asin = _floating(jnp.asin, "asin")
asinh = _floating(jnp.asinh, "asinh")
atan = _floating(jnp.atan, "atan")
atan2 = _binary_floating(jnp.atan2, "atan2")
atanh = _floating(jnp.atanh, "atanh")
bitwise_and = _binary(jnp.bitwise_and, "bitwise_and")
bitwise_invert = jnp.bitwise_invert
bitwise_left_shift = _binary(jnp.bitwise_left_shift, "bitwise_left_shift")
bitwise_or = _binary(jnp.bitwise_or, "bitwise_or")
bitwise_right_shift = _binary(jnp.bitwise_right_shift, "bitwise_right_shift")
bitwise_xor = _binary(jnp.bitwise_xor, "bitwise_xor")
ceil = jnp.ceil
cos = _floating(jnp.cos, "cos")
cosh = _floating(jnp.cosh, "cosh")


def clip(x, /, min=None, max=None):
    # Not jnp.clip: where x equals a bound the gradient is 1, as in torch and tensorflow; there it is halved.
    dtype = x.dtype
    if min is not None:
        x = jnp.where(x < min, min, x)
    if max is not None:
        x = jnp.where(x > max, max, x)
    return x if x.dtype == dtype else x.astype(dtype)


divide = _binary_floating(jnp.divide, "divide")
equal = _binary(jnp.equal, "equal")
erf = _floating(jax.lax.erf, "erf")
exp = _floating(jnp.exp, "exp")
expm1 = _floating(jnp.expm1, "expm1")
floor = jnp.floor
floor_divide = _binary(jnp.floor_divide, "floor_divide")
greater = _binary(jnp.greater, "greater")
greater_equal = _binary(jnp.greater_equal, "greater_equal")
isfinite = jnp.isfinite
isinf = jnp.isinf
isnan = jnp.isnan
less = _binary(jnp.less, "less")
less_equal = _binary(jnp.less_equal, "less_equal")
log = _floating(jnp.log, "log")
log10 = _floating(jnp.log10, "log10")
log1p = _floating(jnp.log1p, "log1p")
log2 = _floating(jnp.log2, "log2")
logaddexp = _binary_floating(jnp.logaddexp, "logaddexp")
logical_and = _binary(jnp.logical_and, "logical_and")
logical_not = jnp.logical_not
logical_or = _binary(jnp.logical_or, "logical_or")
logical_xor = _binary(jnp.logical_xor, "logical_xor")
maximum = _binary(jnp.maximum, "maximum")
minimum = _binary(jnp.minimum, "minimum")
multiply = _binary(jnp.multiply, "multiply")
negative = jnp.negative
not_equal = _binary(jnp.not_equal, "not_equal")
positive = jnp.positive
pow = _binary(jnp.pow, "pow")
reciprocal = _floating(jnp.reciprocal, "reciprocal")
remainder = _binary(jnp.remainder, "remainder")


def round(x, /):
    return jnp.round(x)


rsqrt = _floating(jax.lax.rsqrt, "rsqrt")
sign = jnp.sign
sin = _floating(jnp.sin, "sin")
sinh = _floating(jnp.sinh, "sinh")
sqrt = _floating(jnp.sqrt, "sqrt")
square = jnp.square
subtract = _binary(jnp.subtract, "subtract")
tan = _floating(jnp.tan, "tan")
tanh = _floating(jnp.tanh, "tanh")
trunc = jnp.trunc

"""Element-wise functions: TensorFlow's raw ops, with the array API's promotion and the kernels that they lack.

Raw ops cost half of what tf.add and the like cost in eager code, and are the same in a function.
"""

from __future__ import annotations

import math as _math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from unisync.backends.tensorflow import _dtypes, _fast, _shapes

_ops = tf.raw_ops
_both = _dtypes.both


def _of_floats(name: str, op: Callable[..., Any]) -> Callable[[Any], Any]:
    """op of one array; integers become float32."""

    def unary(x: Any, /) -> Any:
        return op(x=x if x.dtype in _dtypes.FLOATS else tf.cast(x, _dtypes.FLOAT))

    unary.__name__ = unary.__qualname__ = name
    return unary


acos = _of_floats("acos", _ops.Acos)
acosh = _of_floats("acosh", _ops.Acosh)
asin = _of_floats("asin", _ops.Asin)
asinh = _of_floats("asinh", _ops.Asinh)
atan = _of_floats("atan", _ops.Atan)
atanh = _of_floats("atanh", _ops.Atanh)
cos = _of_floats("cos", _ops.Cos)
cosh = _of_floats("cosh", _ops.Cosh)
erf = _of_floats("erf", _ops.Erf)
exp = _of_floats("exp", _ops.Exp)
expm1 = _of_floats("expm1", _ops.Expm1)
log = _of_floats("log", _ops.Log)
log1p = _of_floats("log1p", _ops.Log1p)
reciprocal = _of_floats("reciprocal", _ops.Reciprocal)
rsqrt = _of_floats("rsqrt", _ops.Rsqrt)
sin = _of_floats("sin", _ops.Sin)
sinh = _of_floats("sinh", _ops.Sinh)
sqrt = _of_floats("sqrt", _ops.Sqrt)
tan = _of_floats("tan", _ops.Tan)
tanh = _of_floats("tanh", _ops.Tanh)


def log2(x, /):
    return log(x) * (1 / _math.log(2))


def log10(x, /):
    return log(x) * (1 / _math.log(10))


def abs(x, /):
    if x.dtype in _dtypes.COMPLEXES:
        return tf.abs(x)
    return tf.convert_to_tensor(x) if x.dtype in _dtypes.UNSIGNED else _ops.Abs(x=x)


def negative(x, /):
    return _ops.Sub(x=tf.zeros((), x.dtype), y=x) if x.dtype in _dtypes.UNSIGNED else _ops.Neg(x=x)


def positive(x, /):
    return tf.convert_to_tensor(x)


def sign(x, /):
    return _ops.Minimum(x=x, y=1) if x.dtype in _dtypes.UNSIGNED else _ops.Sign(x=x)


def square(x, /):
    return _ops.Square(x=x)


def ceil(x, /):
    return _ops.Ceil(x=x) if x.dtype in _dtypes.FLOATS else tf.convert_to_tensor(x)


def floor(x, /):
    return _ops.Floor(x=x) if x.dtype in _dtypes.FLOATS else tf.convert_to_tensor(x)


def trunc(x, /):
    if x.dtype not in _dtypes.FLOATS:
        return tf.convert_to_tensor(x)
    return _ops.SelectV2(condition=x < 0, t=_ops.Ceil(x=x), e=_ops.Floor(x=x))


def round(x, /):
    if x.dtype in _dtypes.COMPLEXES:
        return tf.complex(_ops.Round(x=tf.math.real(x)), _ops.Round(x=tf.math.imag(x)))
    return _ops.Round(x=x) if x.dtype in _dtypes.FLOATS else tf.convert_to_tensor(x)


def isfinite(x, /):
    if x.dtype in _dtypes.COMPLEXES:
        return tf.math.is_finite(tf.math.real(x)) & tf.math.is_finite(tf.math.imag(x))
    return _ops.IsFinite(x=x) if x.dtype in _dtypes.FLOATS else tf.ones_like(x, tf.bool)


def isinf(x, /):
    if x.dtype in _dtypes.COMPLEXES:
        return tf.math.is_inf(tf.math.real(x)) | tf.math.is_inf(tf.math.imag(x))
    return _ops.IsInf(x=x) if x.dtype in _dtypes.FLOATS else tf.zeros_like(x, tf.bool)


def isnan(x, /):
    if x.dtype in _dtypes.COMPLEXES:
        return tf.math.is_nan(tf.math.real(x)) | tf.math.is_nan(tf.math.imag(x))
    return _ops.IsNan(x=x) if x.dtype in _dtypes.FLOATS else tf.zeros_like(x, tf.bool)


def _of_two(name: str, op: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """op of two arrays, or an array and a Python number."""

    def binary(x1: Any, x2: Any, /) -> Any:
        x1, x2 = _both(x1, x2)
        return op(x=x1, y=x2)

    binary.__name__ = binary.__qualname__ = name
    return binary


add = _of_two("add", _ops.AddV2)
floor_divide = _of_two("floor_divide", _ops.FloorDiv)
greater = _of_two("greater", _ops.Greater)
greater_equal = _of_two("greater_equal", _ops.GreaterEqual)
less = _of_two("less", _ops.Less)
less_equal = _of_two("less_equal", _ops.LessEqual)
logical_and = _of_two("logical_and", _ops.LogicalAnd)
logical_or = _of_two("logical_or", _ops.LogicalOr)
multiply = _of_two("multiply", _ops.Mul)
remainder = _of_two("remainder", _ops.FloorMod)
subtract = _of_two("subtract", _ops.Sub)


def _of_extremes(name: str, op: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """op of two arrays, whose gradient at a tie goes half to each, as on the other backends."""

    def binary(x1: Any, x2: Any, /) -> Any:
        x1, x2 = _both(x1, x2)
        chosen = op(x=x1, y=x2)
        if x1.dtype not in _dtypes.FLOATS or (tf.executing_eagerly() and not _fast.taped()):
            return chosen
        # TensorFlow's own gradient gives all to x1.
        return _ops.SelectV2(condition=_ops.Equal(x=x1, y=x2), t=0.5 * x1 + 0.5 * x2, e=chosen)

    binary.__name__ = binary.__qualname__ = name
    return binary


maximum = _of_extremes("maximum", _ops.Maximum)
minimum = _of_extremes("minimum", _ops.Minimum)


def equal(x1, x2, /):
    x1, x2 = _both(x1, x2)
    return _ops.Equal(x=x1, y=x2)


def not_equal(x1, x2, /):
    x1, x2 = _both(x1, x2)
    return _ops.NotEqual(x=x1, y=x2)


def logical_not(x, /):
    return _ops.LogicalNot(x=x)


def logical_xor(x1, x2, /):
    return not_equal(x1, x2)


def divide(x1, x2, /):
    x1, x2 = _both(x1, x2)
    if x1.dtype not in _dtypes.FLOATS:
        x1, x2 = tf.cast(x1, _dtypes.FLOAT), tf.cast(x2, _dtypes.FLOAT)
    return _ops.RealDiv(x=x1, y=x2)


def pow(x1, x2, /):
    x1, x2 = _both(x1, x2)
    if x1.dtype not in _dtypes.UNSIGNED:
        return _ops.Pow(x=x1, y=x2)
    # No kernel for unsigned integers; in int64 the product is the same modulo their range.
    return tf.cast(_ops.Pow(x=tf.cast(x1, tf.int64), y=tf.cast(x2, tf.int64)), x1.dtype)


def atan2(x1, x2, /):
    x1, x2 = _both(x1, x2)
    if x1.dtype not in _dtypes.FLOATS:
        x1, x2 = tf.cast(x1, _dtypes.FLOAT), tf.cast(x2, _dtypes.FLOAT)
    return _ops.Atan2(y=x1, x=x2)


def logaddexp(x1, x2, /):
    x1, x2 = _both(_dtypes.floating(x1), x2)
    x2 = tf.convert_to_tensor(x2, x1.dtype)
    shape = _shapes.common_shape(_shapes.shape_of(x1), _shapes.shape_of(x2))
    return _logaddexp(tf.broadcast_to(x1, shape), tf.broadcast_to(x2, shape))


@tf.custom_gradient
def _logaddexp(x1, x2):
    # Equal infinities have no difference: what is added to them does not matter.
    difference = tf.where(x1 == x2, tf.zeros_like(x1), x1 - x2)

    def gradient(dy):
        share = tf.sigmoid(difference)
        return dy * share, dy * (1 - share)

    return _ops.Maximum(x=x1, y=x2) + _ops.Log1p(x=_ops.Exp(x=-_ops.Abs(x=difference))), gradient


def clip(x, /, min=None, max=None):
    clipped = x
    for bound, op in ((min, _ops.Maximum), (max, _ops.Minimum)):
        if bound is not None:
            clipped, bound = _both(clipped, bound)
            clipped = op(x=clipped, y=bound)
    return tf.convert_to_tensor(x) if clipped is x else tf.cast(clipped, x.dtype)


def _of_bits(name: str, op: Callable[..., Any], of_booleans: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """op of two integer arrays, and of_booleans of two boolean ones."""

    def binary(x1: Any, x2: Any, /) -> Any:
        x1, x2 = _both(x1, x2)
        return (of_booleans if x1.dtype == tf.bool else op)(x=x1, y=x2)

    binary.__name__ = binary.__qualname__ = name
    return binary


bitwise_and = _of_bits("bitwise_and", _ops.BitwiseAnd, _ops.LogicalAnd)
bitwise_or = _of_bits("bitwise_or", _ops.BitwiseOr, _ops.LogicalOr)
bitwise_xor = _of_bits("bitwise_xor", _ops.BitwiseXor, _ops.NotEqual)
bitwise_left_shift = _of_two("bitwise_left_shift", _ops.LeftShift)
bitwise_right_shift = _of_two("bitwise_right_shift", _ops.RightShift)


def bitwise_invert(x, /):
    return _ops.LogicalNot(x=x) if x.dtype == tf.bool else _ops.Invert(x=x)

"""Functions of one or two arrays that work element by element, as the array API standard defines them.

Two arrays broadcast, and promote by the standard's table; an integer with a floating-point array gives the
floating-point dtype on every backend. A Python number takes the array's dtype.
"""

from __future__ import annotations

from unisync._dispatch import of, pair
from unisync._types import Array

Number = complex  # int, float and bool are accepted where complex is named


def abs(x: Array, /) -> Array:
    """The absolute value, element by element.

    Args:
        x: numeric array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.abs(us.asarray([-1.5, 2.0]))
        array([1.5, 2. ], dtype=float32)
    """
    return of[type(x)].abs(x)


def acos(x: Array, /) -> Array:
    """The inverse cosine in radians, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.acos(us.asarray([1.0, 0.0]))
        array([0.       , 1.5707964], dtype=float32)
    """
    return of[type(x)].acos(x)


def acosh(x: Array, /) -> Array:
    """The inverse hyperbolic cosine, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.acosh(us.asarray([1.0, 2.0]))
        array([0.      , 1.316958], dtype=float32)
    """
    return of[type(x)].acosh(x)


def add(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 + x2, element by element.

    Args:
        x1: numeric array or Python number.
        x2: numeric array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.add(us.asarray([1.0, 2.0]), us.asarray([3.0, 4.0]))
        array([4., 6.], dtype=float32)
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.add(x1, x2)


def asin(x: Array, /) -> Array:
    """The inverse sine in radians, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.asin(us.asarray([0.0, 1.0]))
        array([0.       , 1.5707964], dtype=float32)
    """
    return of[type(x)].asin(x)


def asinh(x: Array, /) -> Array:
    """The inverse hyperbolic sine, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.asinh(us.asarray([0.0, 1.0]))
        array([0.       , 0.8813736], dtype=float32)
    """
    return of[type(x)].asinh(x)


def atan(x: Array, /) -> Array:
    """The inverse tangent in radians, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.atan(us.asarray([0.0, 1.0]))
        array([0.       , 0.7853982], dtype=float32)
    """
    return of[type(x)].atan(x)


def atan2(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The angle in radians of the point (x2, x1), in [−π, π].

    Args:
        x1: floating-point array or Python number.
        x2: floating-point array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.atan2(us.asarray([1.0, 0.0]), us.asarray([1.0, 1.0]))
        array([0.7853981, 0.       ], dtype=float32)
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.atan2(x1, x2)


def atanh(x: Array, /) -> Array:
    """The inverse hyperbolic tangent, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.atanh(us.asarray([0.0, 0.5]))
        array([0.        , 0.54930615], dtype=float32)
    """
    return of[type(x)].atanh(x)


def bitwise_and(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The bitwise and; the logical and for booleans.

    Args:
        x1: integer or boolean array or Python number.
        x2: integer or boolean array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.bitwise_and(us.asarray([6, 5]), us.asarray([3, 4]))
        array([2, 4])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.bitwise_and(x1, x2)


def bitwise_invert(x: Array, /) -> Array:
    """The bits of each element, inverted; the logical not for booleans.

    Args:
        x: integer or boolean array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.bitwise_invert(us.asarray([0, 5]))
        array([-1, -6])
    """
    return of[type(x)].bitwise_invert(x)


def bitwise_left_shift(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The bits of x1 shifted x2 places to the left.

    Args:
        x1: integer array or Python number.
        x2: integer array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.bitwise_left_shift(us.asarray([1, 2]), us.asarray([3, 1]))
        array([8, 4])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.bitwise_left_shift(x1, x2)


def bitwise_or(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The bitwise or; the logical or for booleans.

    Args:
        x1: integer or boolean array or Python number.
        x2: integer or boolean array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.bitwise_or(us.asarray([6, 5]), us.asarray([3, 4]))
        array([7, 5])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.bitwise_or(x1, x2)


def bitwise_right_shift(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The bits of x1 shifted x2 places to the right, keeping the sign.

    Args:
        x1: integer array or Python number.
        x2: integer array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.bitwise_right_shift(us.asarray([8, 5]), us.asarray([2, 1]))
        array([2, 2])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.bitwise_right_shift(x1, x2)


def bitwise_xor(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The bitwise exclusive or; the logical one for booleans.

    Args:
        x1: integer or boolean array or Python number.
        x2: integer or boolean array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.bitwise_xor(us.asarray([6, 5]), us.asarray([3, 4]))
        array([5, 1])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.bitwise_xor(x1, x2)


def ceil(x: Array, /) -> Array:
    """The smallest integer not less than x, in x's dtype.

    Args:
        x: real-valued array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.ceil(us.asarray([0.2, -1.7]))
        array([ 1., -1.], dtype=float32)
    """
    return of[type(x)].ceil(x)


def cos(x: Array, /) -> Array:
    """The cosine of an angle in radians, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.cos(us.asarray([0.0, 1.0]))
        array([1.       , 0.5403023], dtype=float32)
    """
    return of[type(x)].cos(x)


def cosh(x: Array, /) -> Array:
    """The hyperbolic cosine, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.cosh(us.asarray([0.0, 1.0]))
        array([1.       , 1.5430807], dtype=float32)
    """
    return of[type(x)].cosh(x)


def clip(x: Array, /, min: Array | float | None = None, max: Array | float | None = None) -> Array:
    """x limited to the interval [min, max], element by element.

    Args:
        x: real-valued array.
        min: the lower bound: a number, an array that broadcasts with x, or None for no bound.
        max: the upper bound, likewise.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.clip(us.asarray([-1.0, 0.5, 2.0]), 0.0, 1.0)
        array([0. , 0.5, 1. ], dtype=float32)
    """
    return of[type(x)].clip(x, min, max)


def divide(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 / x2, element by element; two integers give the default floating-point dtype.

    Args:
        x1: numeric array or Python number.
        x2: numeric array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.divide(us.asarray([1.0, 3.0]), us.asarray([2.0, 4.0]))
        array([0.5 , 0.75], dtype=float32)
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.divide(x1, x2)


def equal(x1: Array | Number, x2: Array | Number, /) -> Array:
    """Whether x1 equals x2, element by element.

    Args:
        x1: any array or Python number.
        x2: any array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and dtype bool.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.equal(us.asarray([1, 2]), us.asarray([1, 3]))
        array([ True, False])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.equal(x1, x2)


def erf(x: Array, /) -> Array:
    """The error function, element by element (not in the standard; the exact gelu needs it).

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.erf(us.asarray([0.0, 1.0]))
        array([0.       , 0.8427008], dtype=float32)
    """
    return of[type(x)].erf(x)


def exp(x: Array, /) -> Array:
    """e to the power x, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.exp(us.asarray([0.0, 1.0]))
        array([1.      , 2.718282], dtype=float32)
    """
    return of[type(x)].exp(x)


def expm1(x: Array, /) -> Array:
    """exp(x) − 1, accurate for small x.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.expm1(us.asarray([0.0, 1.0]))
        array([0.       , 1.7182819], dtype=float32)
    """
    return of[type(x)].expm1(x)


def floor(x: Array, /) -> Array:
    """The largest integer not greater than x, in x's dtype.

    Args:
        x: real-valued array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.floor(us.asarray([0.2, -1.7]))
        array([ 0., -2.], dtype=float32)
    """
    return of[type(x)].floor(x)


def floor_divide(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 / x2 rounded towards −∞.

    Args:
        x1: real-valued array or Python number.
        x2: real-valued array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.floor_divide(us.asarray([7, -7]), us.asarray([2, 2]))
        array([ 3, -4])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.floor_divide(x1, x2)


def greater(x1: Array | Number, x2: Array | Number, /) -> Array:
    """Whether x1 > x2, element by element.

    Args:
        x1: real-valued array or Python number.
        x2: real-valued array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and dtype bool.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.greater(us.asarray([1, 2]), us.asarray([2, 1]))
        array([False,  True])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.greater(x1, x2)


def greater_equal(x1: Array | Number, x2: Array | Number, /) -> Array:
    """Whether x1 ≥ x2, element by element.

    Args:
        x1: real-valued array or Python number.
        x2: real-valued array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and dtype bool.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.greater_equal(us.asarray([1, 2]), us.asarray([1, 3]))
        array([ True, False])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.greater_equal(x1, x2)


def isfinite(x: Array, /) -> Array:
    """Whether each element is neither infinite nor NaN.

    Args:
        x: numeric array of any shape.

    Returns:
        Array of x's shape and dtype bool.

    Example:
        >>> us.isfinite(us.asarray([1.0, float("inf")]))
        array([ True, False])
    """
    return of[type(x)].isfinite(x)


def isinf(x: Array, /) -> Array:
    """Whether each element is positive or negative infinity.

    Args:
        x: numeric array of any shape.

    Returns:
        Array of x's shape and dtype bool.

    Example:
        >>> us.isinf(us.asarray([1.0, float("inf")]))
        array([False,  True])
    """
    return of[type(x)].isinf(x)


def isnan(x: Array, /) -> Array:
    """Whether each element is NaN.

    Args:
        x: numeric array of any shape.

    Returns:
        Array of x's shape and dtype bool.

    Example:
        >>> us.isnan(us.asarray([1.0, float("nan")]))
        array([False,  True])
    """
    return of[type(x)].isnan(x)


def less(x1: Array | Number, x2: Array | Number, /) -> Array:
    """Whether x1 < x2, element by element.

    Args:
        x1: real-valued array or Python number.
        x2: real-valued array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and dtype bool.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.less(us.asarray([1, 2]), us.asarray([2, 1]))
        array([ True, False])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.less(x1, x2)


def less_equal(x1: Array | Number, x2: Array | Number, /) -> Array:
    """Whether x1 ≤ x2, element by element.

    Args:
        x1: real-valued array or Python number.
        x2: real-valued array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and dtype bool.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.less_equal(us.asarray([1, 2]), us.asarray([1, 1]))
        array([ True, False])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.less_equal(x1, x2)


def log(x: Array, /) -> Array:
    """The natural logarithm, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.log(us.asarray([1.0, 2.0]))
        array([0.       , 0.6931472], dtype=float32)
    """
    return of[type(x)].log(x)


def log10(x: Array, /) -> Array:
    """The logarithm to base 10, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.log10(us.asarray([1.0, 100.0]))
        array([0.       , 2.0000002], dtype=float32)
    """
    return of[type(x)].log10(x)


def log1p(x: Array, /) -> Array:
    """log(1 + x), accurate for small x.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.log1p(us.asarray([0.0, 1.0]))
        array([0.       , 0.6931472], dtype=float32)
    """
    return of[type(x)].log1p(x)


def log2(x: Array, /) -> Array:
    """The logarithm to base 2, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.log2(us.asarray([1.0, 8.0]))
        array([0., 3.], dtype=float32)
    """
    return of[type(x)].log2(x)


def logaddexp(x1: Array | Number, x2: Array | Number, /) -> Array:
    """log(exp(x1) + exp(x2)) without overflow.

    Args:
        x1: floating-point array or Python number.
        x2: floating-point array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.logaddexp(us.asarray([0.0, 1000.0]), us.asarray([0.0, 1000.0]))
        array([6.9314718e-01, 1.0006932e+03], dtype=float32)
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.logaddexp(x1, x2)


def logical_and(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The logical and of booleans.

    Args:
        x1: boolean array or Python number.
        x2: boolean array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and dtype bool.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.logical_and(us.asarray([True, True]), us.asarray([True, False]))
        array([ True, False])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.logical_and(x1, x2)


def logical_not(x: Array, /) -> Array:
    """The logical not of each boolean.

    Args:
        x: boolean array of any shape.

    Returns:
        Array of x's shape and dtype bool.

    Example:
        >>> us.logical_not(us.asarray([True, False]))
        array([False,  True])
    """
    return of[type(x)].logical_not(x)


def logical_or(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The logical or of booleans.

    Args:
        x1: boolean array or Python number.
        x2: boolean array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and dtype bool.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.logical_or(us.asarray([True, False]), us.asarray([False, False]))
        array([ True, False])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.logical_or(x1, x2)


def logical_xor(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The logical exclusive or of booleans.

    Args:
        x1: boolean array or Python number.
        x2: boolean array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and dtype bool.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.logical_xor(us.asarray([True, True]), us.asarray([True, False]))
        array([False,  True])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.logical_xor(x1, x2)


def maximum(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The larger of x1 and x2; NaN if either is NaN.

    Args:
        x1: real-valued array or Python number.
        x2: real-valued array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.maximum(us.asarray([1.0, 5.0]), us.asarray([2.0, 4.0]))
        array([2., 5.], dtype=float32)
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.maximum(x1, x2)


def minimum(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The smaller of x1 and x2; NaN if either is NaN.

    Args:
        x1: real-valued array or Python number.
        x2: real-valued array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.minimum(us.asarray([1.0, 5.0]), us.asarray([2.0, 4.0]))
        array([1., 4.], dtype=float32)
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.minimum(x1, x2)


def multiply(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 · x2, element by element.

    Args:
        x1: numeric array or Python number.
        x2: numeric array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.multiply(us.asarray([1.0, 2.0]), us.asarray([3.0, 4.0]))
        array([3., 8.], dtype=float32)
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.multiply(x1, x2)


def negative(x: Array, /) -> Array:
    """−x, element by element.

    Args:
        x: numeric array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.negative(us.asarray([1.0, -2.0]))
        array([-1.,  2.], dtype=float32)
    """
    return of[type(x)].negative(x)


def not_equal(x1: Array | Number, x2: Array | Number, /) -> Array:
    """Whether x1 differs from x2, element by element.

    Args:
        x1: any array or Python number.
        x2: any array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and dtype bool.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.not_equal(us.asarray([1, 2]), us.asarray([1, 3]))
        array([False,  True])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.not_equal(x1, x2)


def positive(x: Array, /) -> Array:
    """+x, element by element.

    Args:
        x: numeric array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.positive(us.asarray([1.0, -2.0]))
        array([ 1., -2.], dtype=float32)
    """
    return of[type(x)].positive(x)


def pow(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 to the power x2, element by element.

    Args:
        x1: numeric array or Python number.
        x2: numeric array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.pow(us.asarray([2.0, 3.0]), us.asarray([3.0, 2.0]))
        array([8., 9.], dtype=float32)
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.pow(x1, x2)


def reciprocal(x: Array, /) -> Array:
    """1 / x, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.reciprocal(us.asarray([2.0, 4.0]))
        array([0.5 , 0.25], dtype=float32)
    """
    return of[type(x)].reciprocal(x)


def remainder(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The remainder of floor division, with the sign of x2.

    Args:
        x1: real-valued array or Python number.
        x2: real-valued array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.remainder(us.asarray([7, -7]), us.asarray([3, 3]))
        array([1, 2])
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.remainder(x1, x2)


def round(x: Array, /) -> Array:
    """The nearest integer in x's dtype; halves go to the even one.

    Args:
        x: numeric array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.round(us.asarray([0.5, 1.5]))
        array([0., 2.], dtype=float32)
    """
    return of[type(x)].round(x)


def rsqrt(x: Array, /) -> Array:
    """1 / √x, element by element (not in the standard; the norms use it).

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.rsqrt(us.asarray([1.0, 4.0]))
        array([1. , 0.5], dtype=float32)
    """
    return of[type(x)].rsqrt(x)


def sign(x: Array, /) -> Array:
    """−1, 0 or 1 after the sign of each element.

    Args:
        x: numeric array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.sign(us.asarray([-3.0, 0.0]))
        array([-1.,  0.], dtype=float32)
    """
    return of[type(x)].sign(x)


def sin(x: Array, /) -> Array:
    """The sine of an angle in radians, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.sin(us.asarray([0.0, 1.0]))
        array([0.      , 0.841471], dtype=float32)
    """
    return of[type(x)].sin(x)


def sinh(x: Array, /) -> Array:
    """The hyperbolic sine, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.sinh(us.asarray([0.0, 1.0]))
        array([0.       , 1.1752012], dtype=float32)
    """
    return of[type(x)].sinh(x)


def sqrt(x: Array, /) -> Array:
    """The square root, element by element; NaN below zero.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.sqrt(us.asarray([4.0, 2.0]))
        array([2.       , 1.4142135], dtype=float32)
    """
    return of[type(x)].sqrt(x)


def square(x: Array, /) -> Array:
    """x · x, element by element.

    Args:
        x: numeric array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.square(us.asarray([2.0, -3.0]))
        array([4., 9.], dtype=float32)
    """
    return of[type(x)].square(x)


def subtract(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 − x2, element by element.

    Args:
        x1: numeric array or Python number.
        x2: numeric array or Python number; broadcasts with x1.

    Returns:
        Array of the broadcast shape and the promoted dtype.

    Raises:
        MixedBackendsError: the arrays belong to two backends.

    Example:
        >>> us.subtract(us.asarray([1.0, 2.0]), us.asarray([3.0, 5.0]))
        array([-2., -3.], dtype=float32)
    """
    m = of[type(x1)]
    if m is not of[type(x2)]:
        m, x1, x2 = pair(m, of[type(x2)], x1, x2)
    return m.subtract(x1, x2)


def tan(x: Array, /) -> Array:
    """The tangent of an angle in radians, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.tan(us.asarray([0.0, 1.0]))
        array([0.       , 1.5574077], dtype=float32)
    """
    return of[type(x)].tan(x)


def tanh(x: Array, /) -> Array:
    """The hyperbolic tangent, element by element.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.tanh(us.asarray([0.0, 1.0]))
        array([0.       , 0.7615942], dtype=float32)
    """
    return of[type(x)].tanh(x)


def trunc(x: Array, /) -> Array:
    """The integer part of x, towards zero, in x's dtype.

    Args:
        x: real-valued array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.trunc(us.asarray([0.7, -1.7]))
        array([ 0., -1.], dtype=float32)
    """
    return of[type(x)].trunc(x)

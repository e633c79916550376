"""Arithmetic on lists of arrays, for optimizers. Inside a compiled function a list costs nothing more than its ops."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def _like(scalar: Any, x: Any) -> Any:
    """A factor or summand of x: a Python number as it is, an array in x's dtype."""
    if isinstance(scalar, (int, float)) or scalar.dtype == x.dtype:
        return scalar
    return tf.cast(scalar, x.dtype)


def _is_one(scalar: Any) -> bool:
    return isinstance(scalar, (int, float)) and scalar == 1


def multi_add(xs, ys, /, *, alpha=1.0, reuse=None):
    if _is_one(alpha):
        return [x + _like(y, x) for x, y in zip(xs, ys, strict=True)]
    return [x + _like(alpha, x) * _like(y, x) for x, y in zip(xs, ys, strict=True)]


def multi_addcdiv(xs, ys, zs, /, *, value=1.0, reuse=None):
    if _is_one(value):
        return [x + y / z for x, y, z in zip(xs, ys, zs, strict=True)]
    return [x + _like(value, x) * (y / z) for x, y, z in zip(xs, ys, zs, strict=True)]


def multi_addcmul(xs, ys, zs, /, *, value=1.0, reuse=None):
    if _is_one(value):
        return [x + y * z for x, y, z in zip(xs, ys, zs, strict=True)]
    return [x + _like(value, x) * (y * z) for x, y, z in zip(xs, ys, zs, strict=True)]


def multi_all_finite(xs, /):
    if not xs:
        return tf.constant(True)
    parts: dict[Any, list[Any]] = {}
    for x in xs:
        parts.setdefault(x.dtype, []).append(_witness(x))
    finite = [tf.reduce_all(tf.math.is_finite(tf.concat(same, 0) if same[1:] else same[0])) for same in parts.values()]
    return finite[0] if len(finite) == 1 else tf.reduce_all(tf.stack(finite))


_SMALL = 4096
_FACTOR = 2.0**-64  # not 0: Grappler replaces products with zeros by zeros; sums of such products never overflow


def _witness(x: Any) -> Any:
    """Few numbers that are all finite if and only if all of x are: of a matrix, the sums of rows or columns · 2⁻⁶⁴.

    That reads the memory once, at the speed of a matrix product; IsFinite and All take three times as long.
    """
    n = x.shape.num_elements()
    if n is None or n < _SMALL or x.shape.rank < 2 or x.dtype == tf.float16:
        return tf.reshape(x, [-1])
    rows = x.shape[0]
    columns = n // rows
    x = tf.reshape(x, [rows, columns])
    if rows > columns:
        return tf.reshape(tf.matmul(tf.fill([1, rows], tf.constant(_FACTOR, x.dtype)), x), [-1])
    return tf.reshape(tf.matmul(x, tf.fill([columns, 1], tf.constant(_FACTOR, x.dtype))), [-1])


def multi_divide(xs, ys, /):
    return [x / y for x, y in zip(xs, ys, strict=True)]


def multi_lerp(xs, ys, /, *, weight, reuse=None):
    return [x + _like(weight, x) * (y - x) for x, y in zip(xs, ys, strict=True)]


def multi_mean_square(xs, ys, /, *, decay, reuse=None):
    return [decay * x + (1.0 - decay) * (y * y) for x, y in zip(xs, ys, strict=True)]


def multi_multiply(xs, ys, /):
    return [x * y for x, y in zip(xs, ys, strict=True)]


def multi_norm(xs, /):
    return [tf.sqrt(tf.reduce_sum(tf.square(x))) for x in xs]


def multi_scale(xs, scalar, /):
    return [x * _like(scalar, x) for x in xs]


def multi_shift(xs, scalar, /):
    return [x + _like(scalar, x) for x in xs]


def multi_sign(xs, /):
    return [tf.sign(x) for x in xs]


def multi_sqrt(xs, /, *, shift=0.0):
    if isinstance(shift, (int, float)) and shift == 0:
        return [tf.sqrt(x) for x in xs]
    return [tf.sqrt(x) + _like(shift, x) for x in xs]


def multi_where(condition, xs, ys, /):
    # The older Select hands one of the two over; SelectV2 broadcasts, at three times the price of an addition.
    return [tf.raw_ops.Select(condition=condition, x=x, y=y) for x, y in zip(xs, ys, strict=True)]

"""Reductions and cumulative sums over axes."""

from __future__ import annotations

import tensorflow as tf

from unisync import _dtypes as _us_dtypes
from unisync.backends.tensorflow import _dtypes, _shapes
from unisync.errors import ArgumentError


def _accumulated(x, dtype):
    """x in the dtype in which it is to be summed."""
    if dtype is None:
        if x.dtype in _dtypes.FLOATS:
            return x
        dtype = _us_dtypes.accumulator(_dtypes.name_of(x.dtype))
    return tf.cast(x, _dtypes.native(dtype))


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    if axis is None:
        if _shapes.rank(x) != 1:
            raise ArgumentError(f"`axis` must be given for an array of {_shapes.rank(x)} axes, got None. Try: axis=0.")
        axis = 0
    sums = tf.cumsum(_accumulated(x, dtype), axis)
    if not include_initial:
        return sums
    shape = _shapes.shape_of(x)
    shape[axis] = 1
    return tf.concat([tf.zeros(shape, sums.dtype), sums], axis)


def max(x, /, *, axis=None, keepdims=False):
    return tf.reduce_max(x, _shapes.reduction_axes(x, axis), keepdims)


def mean(x, /, *, axis=None, keepdims=False):
    return tf.reduce_mean(_dtypes.floating(x), _shapes.reduction_axes(x, axis), keepdims)


def min(x, /, *, axis=None, keepdims=False):
    return tf.reduce_min(x, _shapes.reduction_axes(x, axis), keepdims)


def prod(x, /, *, axis=None, dtype=None, keepdims=False):
    return tf.reduce_prod(_accumulated(x, dtype), _shapes.reduction_axes(x, axis), keepdims)


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    return tf.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def sum(x, /, *, axis=None, dtype=None, keepdims=False):
    return tf.reduce_sum(_accumulated(x, dtype), _shapes.reduction_axes(x, axis), keepdims)


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    x = _dtypes.floating(x)
    axes = _shapes.reduction_axes(x, axis)
    deviation = tf.math.squared_difference(x, tf.reduce_mean(x, axes, keepdims=True))
    variance = tf.reduce_mean(deviation, axes, keepdims)
    if correction == 0:
        return variance
    n = tf.cast(_shapes.count(x, axis), variance.dtype)
    return variance * (n / (n - correction))

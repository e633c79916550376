"""Functions that find elements."""

from __future__ import annotations

import tensorflow as tf

from unisync import _dtypes as _us_dtypes
from unisync.backends.tensorflow import _dtypes, _shapes, creation as _creation


def argmax(x, /, *, axis=None, keepdims=False):
    return _position(tf.argmax, x, axis, keepdims)


def argmin(x, /, *, axis=None, keepdims=False):
    return _position(tf.argmin, x, axis, keepdims)


def _position(find, x, axis, keepdims):
    if axis is not None:
        found = find(x, axis, tf.int64)
        return tf.expand_dims(found, axis) if keepdims else found
    found = find(tf.reshape(x, [-1]), 0, tf.int64)
    return tf.reshape(found, [1] * _shapes.rank(x)) if keepdims else found


def count_nonzero(x, /, *, axis=None, keepdims=False):
    truth = x if x.dtype == tf.bool else tf.cast(x, tf.bool)
    return tf.reduce_sum(tf.cast(truth, tf.int64), _shapes.reduction_axes(x, axis), keepdims)


def nonzero(x, /):
    # By way of booleans: tf.where has no float16 kernel on the CPU.
    truth = x if x.dtype == tf.bool else tf.cast(x, tf.bool)
    return tuple(tf.unstack(tf.where(truth), num=_shapes.rank(x), axis=1))


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    x1, x2 = _dtypes.both(x1 if sorter is None else tf.gather(x1, sorter), x2)
    found = tf.searchsorted(x1, tf.reshape(x2, [-1]), side, tf.int64)
    return tf.reshape(found, _shapes.shape_of(x2))


def where(condition, x1, x2, /):
    first, second = type(x1) in _dtypes.NUMBERS, type(x2) in _dtypes.NUMBERS
    if first and second:
        dtype = _us_dtypes.result_type(_us_dtypes.name(type(x1)), x2)
        x1, x2 = _creation.asarray(x1, dtype=dtype), _creation.asarray(x2, dtype=dtype)
    elif first:
        x2, x1 = _dtypes.both(x2, x1)
    else:
        x1, x2 = _dtypes.both(x1, x2)
    if type(condition) is bool or condition.dtype != tf.bool:
        condition = tf.cast(condition, tf.bool)
    return tf.raw_ops.SelectV2(condition=condition, t=x1, e=x2)

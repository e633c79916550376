"""Functions that change an array's shape or put arrays together."""

from __future__ import annotations

import tensorflow as tf

from unisync.backends.tensorflow import _dtypes, _shapes


def broadcast_arrays(*arrays):
    shape = _shapes.common_shape(*(_shapes.shape_of(x) for x in arrays))
    return [tf.broadcast_to(x, shape) for x in arrays]


def broadcast_to(x, /, shape):
    return tf.broadcast_to(x, _shapes.as_shape(shape))


def concat(arrays, /, *, axis=0):
    arrays = _dtypes.alike(arrays)
    if axis is None:
        return tf.concat([tf.reshape(x, [-1]) for x in arrays], 0)
    return tf.concat(arrays, axis)


def expand_dims(x, /, *, axis=0):
    return tf.expand_dims(x, axis)


def flip(x, /, *, axis=None):
    return tf.reverse(x, tf.constant(_shapes.axes_of(x, axis), tf.int32))


def moveaxis(x, source, destination, /):
    n = _shapes.rank(x)
    source, destination = _shapes.axes_of(x, source), _shapes.axes_of(x, destination)
    order = [a for a in range(n) if a not in source]
    for to, axis in sorted(zip(destination, source, strict=True)):
        order.insert(to, axis)
    return tf.transpose(x, order)


def permute_dims(x, /, axes):
    return tf.transpose(x, tuple(axes))


def repeat(x, repeats, /, *, axis=None):
    return _tileable(lambda y: tf.repeat(y, repeats, axis), x)


def reshape(x, /, shape, *, copy=None):
    shape = [-1 if n is None else n for n in _shapes.as_shape(shape)]  # None: an axis unknown while tracing
    return tf.reshape(x, shape)


def roll(x, /, shift, *, axis=None):
    if axis is None:
        total = shift if isinstance(shift, int) else sum(shift)
        return tf.reshape(tf.roll(tf.reshape(x, [-1]), total, 0), _shapes.shape_of(x))
    axes = _shapes.axes_of(x, axis)
    shifts = [shift] * len(axes) if isinstance(shift, int) else list(shift)
    return tf.roll(x, shifts, axes * len(shifts) if len(axes) == 1 else axes)


def squeeze(x, /, axis):
    axes = _shapes.axes_of(x, axis)
    return tf.squeeze(x, axes) if axes else tf.convert_to_tensor(x)  # no axes would mean all to TensorFlow


def stack(arrays, /, *, axis=0):
    return tf.stack(_dtypes.alike(arrays), axis)


def tile(x, repetitions, /):
    repetitions = list(repetitions)
    missing = len(repetitions) - _shapes.rank(x)
    if missing > 0:
        x = tf.reshape(x, [1] * missing + _shapes.shape_of(x))
    return _tileable(lambda y: tf.tile(y, [1] * -missing + repetitions), x)


def _tileable(function, x):
    """function(x) for a function that moves elements by tf.tile, which has no uint16 kernel."""
    return tf.bitcast(function(tf.bitcast(x, tf.int16)), tf.uint16) if x.dtype == tf.uint16 else function(x)


def unstack(x, /, *, axis=0):
    return tuple(tf.unstack(x, axis=axis))

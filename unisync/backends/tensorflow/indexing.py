"""Functions that pick elements by position."""

from __future__ import annotations

import tensorflow as tf

from unisync.backends.tensorflow import _shapes
from unisync.errors import ArgumentError


def take(x, indices, /, *, axis=None):
    if axis is None:
        if _shapes.rank(x) != 1:
            raise ArgumentError(f"`axis` must be given for an array of {_shapes.rank(x)} axes, got None. Try: axis=0.")
        axis = 0
    return tf.gather(x, _from_front(indices, _shapes.shape_of(x)[axis]), axis=axis)


def _from_front(indices, length):
    """Positions that may count from the end as positions ≥ 0: tf.gather takes no others."""
    if indices.dtype not in (tf.int32, tf.int64):
        indices = tf.cast(indices, tf.int64)
    return tf.where(indices < 0, indices + tf.cast(length, indices.dtype), indices)


def take_along_axis(x, indices, /, *, axis=-1):
    n = _shapes.rank(x)
    axis = _shapes.position(axis, n)
    length = _shapes.shape_of(x)[axis]
    lengths, wanted = _shapes.shape_of(x), _shapes.shape_of(indices)
    if x.shape.as_list() != indices.shape.as_list() or None in x.shape.as_list():
        others = _shapes.common_shape(lengths[:axis] + lengths[axis + 1 :], wanted[:axis] + wanted[axis + 1 :])
        x = tf.broadcast_to(x, [*others[:axis], length, *others[axis:]])
        indices = tf.broadcast_to(indices, [*others[:axis], wanted[axis], *others[axis:]])
    indices = _from_front(indices, length)
    if axis == n - 1:
        return tf.gather(x, indices, axis=axis, batch_dims=axis)
    order = [a for a in range(n) if a != axis] + [axis]
    back = [*range(axis), n - 1, *range(axis, n - 1)]
    found = tf.gather(tf.transpose(x, order), tf.transpose(indices, order), axis=n - 1, batch_dims=n - 1)
    return tf.transpose(found, back)

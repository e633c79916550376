"""Products of matrices and vectors."""

from __future__ import annotations

import tensorflow as tf

from unisync.backends.tensorflow import _dtypes, _shapes, elementwise as _elementwise


def matrix_transpose(x, /):
    return tf.linalg.matrix_transpose(x)


_WIDER = {
    tf.int8: tf.int32,
    tf.int16: tf.int32,
    tf.uint8: tf.int32,
    tf.uint16: tf.int32,
    tf.uint32: tf.int64,
    tf.uint64: tf.int64,
}
"""Integers that tf.matmul lacks → integers in which the product is the same modulo their range."""


def matmul(x1, x2, /):
    x1, x2 = _dtypes.both(x1, x2)
    dtype = x1.dtype
    if dtype in _WIDER:
        return tf.cast(matmul(tf.cast(x1, _WIDER[dtype]), tf.cast(x2, _WIDER[dtype])), dtype)
    n1, n2 = _shapes.rank(x1), _shapes.rank(x2)
    if n1 > 1 and n2 > 1:
        return tf.matmul(x1, x2)
    if n1 == n2 == 1:
        return tf.tensordot(x1, x2, 1)
    if n1 == 1:
        return tf.squeeze(tf.matmul(x1[None, :], x2), -2)
    return tf.linalg.matvec(x1, x2)


def tensordot(x1, x2, /, *, axes=2):
    x1, x2 = _dtypes.both(x1, x2)
    dtype = x1.dtype
    if dtype in _WIDER:
        return tf.cast(tf.tensordot(tf.cast(x1, _WIDER[dtype]), tf.cast(x2, _WIDER[dtype]), axes), dtype)
    return tf.tensordot(x1, x2, axes)


def vecdot(x1, x2, /, *, axis=-1):
    x1, x2 = _dtypes.both(x1, x2)
    if x1.dtype in _dtypes.COMPLEXES:
        x1 = tf.math.conj(x1)
    return tf.reduce_sum(_elementwise.multiply(x1, x2), axis)

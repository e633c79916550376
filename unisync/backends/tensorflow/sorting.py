"""Functions that sort."""

from __future__ import annotations

import tensorflow as tf


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    return tf.cast(tf.argsort(_ordered(x), axis, _direction(descending), stable=True), tf.int64)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    return tf.cast(tf.sort(_ordered(x), axis, _direction(descending)), x.dtype)


def _direction(descending):
    return "DESCENDING" if descending else "ASCENDING"


def _ordered(x):
    return tf.cast(x, tf.uint8) if x.dtype == tf.bool else x

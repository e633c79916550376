"""Random numbers from keys, drawn by TensorFlow's stateless Philox: the same in eager code and in functions."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from unisync.backends.tensorflow import _dtypes, _shapes
from unisync.backends.tensorflow._device import on as _on

# Named, as the default choice depends on the device: https://www.tensorflow.org/api_docs/python/tf/random/Algorithm
_ALGORITHM = "philox"


def _seed(key: Any) -> tf.Tensor:
    return tf.bitcast(tf.convert_to_tensor(key.words(), tf.uint32), tf.int32)


def uniform(key, shape=(), *, low=0.0, high=1.0, dtype=None, device=None):
    native = _dtypes.native_or(dtype, _dtypes.FLOAT)
    with _on(device):
        return tf.random.stateless_uniform(_shapes.as_shape(shape), _seed(key), low, high, dtype=native, alg=_ALGORITHM)


def normal(key, shape=(), *, mean=0.0, std=1.0, dtype=None, device=None):
    native = _dtypes.native_or(dtype, _dtypes.FLOAT)
    with _on(device):
        return tf.random.stateless_normal(_shapes.as_shape(shape), _seed(key), mean, std, dtype=native, alg=_ALGORITHM)


def bernoulli(key, p, shape=(), *, device=None):
    return uniform(key, shape, device=device) < p

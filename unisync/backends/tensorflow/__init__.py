"""The TensorFlow backend: eager tensors, the symbolic tensors of tf.function, and tf.Variable."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from unisync import _config
from unisync.backends.tensorflow import _device

_reserved = _config.tf_devices_from_environment()
if _reserved is not None:
    _device.reserve(_reserved)

NAME = "tensorflow"

ARRAY_TYPES: tuple[type, ...] = (tf.Tensor, tf.Variable, tf.IndexedSlices)
"""Base classes: eager and symbolic tensors and resource variables are found through them when first met.
IndexedSlices are what a tape gives for the rows of an embedding; every op takes them as tensors."""


def describe() -> dict[str, Any]:
    """Versions, devices and threads, for `unisync doctor`; starts the framework's runtime."""
    devices = [d.name.removeprefix("/device:").lower() for d in tf.config.list_logical_devices()]
    return {
        "framework": "tensorflow",
        "version": tf.version.VERSION,
        "devices": devices,
        "default_device": next((d for d in devices if not d.startswith("cpu")), devices[0]),
        "built_with_cuda": tf.test.is_built_with_cuda(),
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads() or "one per core",
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads() or "one per core",
    }

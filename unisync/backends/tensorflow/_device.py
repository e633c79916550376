"""Where tensors are made: scopes for TensorFlow's devices, by the names that users give."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import tensorflow as tf

_FIRST_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def reserve(count: int) -> None:
    """Make so many logical CPU devices, unless the user has settled them, or the runtime by its start."""
    [cpu] = tf.config.list_physical_devices("CPU")
    if tf.config.get_logical_device_configuration(cpu):
        return
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError as error:
        if "initialized" not in str(error):
            raise


def on(device: Any) -> Any:
    """A context in which tensors are made on a device; none for no device."""
    if not device or (device == _FIRST_CPU and _only_one()):
        return contextlib.nullcontext()
    return tf.device(spelled(device))


@functools.cache
def _only_one() -> bool:
    # Asked only about a tensor's own device, so the runtime has started and the devices are settled.
    return len(tf.config.list_logical_devices()) == 1


def spelled(device: Any) -> Any:
    """A device as TensorFlow spells it: "cuda" is its "GPU"."""
    return device.replace("cuda", "GPU") if isinstance(device, str) else device

"""Between backends, and between the host and a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from unisync import _dispatch, tree as _tree
from unisync._types import Tree
from unisync.backends.tensorflow import _depth, _device, _fast, creation as _creation
from unisync.errors import TraceError


def to_numpy(x: Any, /) -> np.ndarray:
    x = _concrete(x)
    # Unlike x.numpy(), which copies, this shares the tensor's memory, read-only.
    host = np.asarray(x)
    return host.astype(np.float32) if x.dtype == tf.bfloat16 else host


def _concrete(x: Any) -> tf.Tensor:
    tensor = x if isinstance(x, tf.Tensor) else tf.convert_to_tensor(x)
    if not isinstance(tensor, _fast.EagerTensor):
        raise TraceError(
            f"`x` must be a concrete array, got {type(tensor).__name__}, which a compiled function is tracing. "
            "Try: return it from the compiled function and look at it outside."
        )
    if _depth.differentiating() and _fast.recorded([tensor]):
        raise TraceError(
            "`x` must have numbers that do not depend on what is being differentiated, got a traced array. "
            "Try: return it as aux (has_aux=True)."
        )
    return tensor


def from_dlpack(x: Any, /) -> tf.Tensor:
    if isinstance(x, (tf.Tensor, tf.Variable)):
        return tf.convert_to_tensor(x)
    try:
        return _aligned(tf.experimental.dlpack.from_dlpack(x.__dlpack__()))
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError, tf.errors.InvalidArgumentError):
        # Read-only or strided memory, or a device or dtype that TensorFlow does not take: by way of the host.
        if not _dispatch.is_array(x):
            raise
    return _creation.asarray(x)


def _aligned(x: tf.Tensor) -> tf.Tensor:
    """x, or a copy where its memory is not aligned as kernels require: they abort the process otherwise
    ("Check failed: IsAligned()"), and torch and NumPy align to 16 bytes only."""
    if "CPU" not in (x.device or "CPU"):
        return x
    host = np.asarray(x)
    return _creation.asarray(host, copy=True) if host.ctypes.data % 64 else x


def device(x: Any, /) -> Any:
    return x.device


def to_device(x: Any, device: Any, /) -> Any:
    if x.device == device and isinstance(x, tf.Tensor):
        return x
    with tf.device(_device.spelled(device)):
        return tf.identity(x)


def block_until_ready(x: Tree, /) -> Tree:
    # Eager ops on the CPU have finished when they return; those on other devices may be under way.
    if any("CPU" not in (getattr(leaf, "device", "CPU") or "CPU") for leaf in _tree.leaves(x)):
        tf.test.experimental.sync_devices()
    return x

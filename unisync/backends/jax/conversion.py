"""Between jax and the host or other backends, and between devices."""

from __future__ import annotations

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from unisync import _dispatch
from unisync.backends.jax import _devices, _failures
from unisync.errors import TraceError


def to_numpy(x, /):
    if isinstance(x, jax.core.Tracer):
        raise TraceError(
            f"`x` must have numbers, got an array of shape {x.shape} that is being traced by a compiled function or a "
            "gradient and has none yet. Try: return it from the function, and convert the result."
        )
    return _failures.to_host(x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x)


def from_dlpack(x, /):
    if isinstance(x, np.ndarray):
        return jax.device_put(x)  # shares its memory if that is aligned to 64 bytes; jnp.asarray always copies
    if isinstance(x, (jax.Array, np.generic)):
        return jnp.asarray(x)
    try:
        return jnp.from_dlpack(x)
    except (TypeError, RuntimeError, ValueError, BufferError, AttributeError):
        # Not exported (torch: arrays that require a gradient; traced ones), or of strides that jax does not take.
        if not _dispatch.is_array(x):
            raise
        source = _dispatch.namespace(x)
        return jnp.asarray(source.to_numpy(x), dtype=source.dtype_of(x))


def device(x, /):
    return getattr(x, "device", None)  # a tracer has none


def to_device(x, device, /):
    found = _devices.find(device)
    return x if _devices.of(x) == found else jax.device_put(x, found)


def block_until_ready(x, /):
    return _failures.ready(x)

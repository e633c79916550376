"""Between backends, and between the host and a device."""

from __future__ import annotations

import numpy as np

from unisync import _dispatch
from unisync.backends.numpy._tape import is_traced as _is_traced
from unisync.backends.numpy.creation import _check_device
from unisync.errors import TraceError


def to_numpy(x, /):
    if _is_traced(x):
        raise TraceError(
            "`x` must be a concrete array, got one that a gradient is being traced through. "
            "Try: return it as aux (has_aux=True) and look at it outside."
        )
    x = np.asarray(x)
    return x.astype(np.float32) if x.dtype.name == "bfloat16" else x


def from_dlpack(x, /):
    if _is_traced(x):
        raise TraceError("`x` must be a concrete array, got one that a gradient is being traced through.")
    try:
        return np.from_dlpack(x)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        # Not shareable as it is (on a device, or of a dtype that DLPack or NumPy lacks): by way of the host.
        if not _dispatch.is_array(x):
            raise
    m = _dispatch.namespace(x)
    host = m.to_numpy(x)
    if m.dtype_of(x) == "bfloat16":
        from unisync.backends.numpy import _dtypes

        host = host.astype(_dtypes.native("bfloat16"))
    return host


def device(x, /):
    return "cpu"


def to_device(x, device, /):
    _check_device(device)
    return x


def block_until_ready(x, /):
    return x

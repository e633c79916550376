"""The jax backend: jax.numpy with the defaults and the promotion of unisync.

Importing it turns on jax's 64-bit mode, without which float64 and int64 do not exist; `UNISYNC_JAX_X64=0` opts out, and
then int64 means int32 and float64 is an error. It makes no device client: how many CPU devices there are, and how
many threads they share, stays open until the first array or world (more than one device costs a single replica 10 to
25 %), unless `UNISYNC_JAX_DEVICES` asks for devices.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

import jax
import jax.core

from unisync import _config
from unisync.backends.jax import _world

if _config.jax_x64_from_environment():
    jax.config.update("jax_enable_x64", True)

_devices_asked = _config.jax_devices_from_environment()
if _devices_asked is not None and _devices_asked > 1:
    _world.reserve(_devices_asked)

NAME = "jax"
ARRAY_TYPES: tuple[type, ...] = (jax.Array, jax.core.Tracer)


def describe() -> dict[str, Any]:
    """Versions, platform and devices, for `unisync doctor`."""
    devices = jax.local_devices()
    return {
        "version": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "platform": jax.default_backend(),
        "devices": [str(d) for d in devices],
        "device_kinds": sorted({d.device_kind for d in devices}),
        "default_device": str(jax.config.jax_default_device or devices[0]),  # type: ignore[attr-defined]
        "x64": bool(jax.config.jax_enable_x64),  # type: ignore[attr-defined]
    }

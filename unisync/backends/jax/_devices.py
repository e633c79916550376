"""From the name of a device to jax's device, and arrays on it."""

from __future__ import annotations

from typing import Any

import jax
import jax.core

from unisync.errors import ArgumentError


def find(device: Any) -> Any:
    """jax's device for one of its own devices or shardings, or a name such as "cpu" or "cuda:1".

    Raises:
        ArgumentError: there is no such device.
    """
    if not isinstance(device, str):
        return device
    platform, _, index = device.partition(":")
    try:
        return jax.local_devices(backend=platform)[int(index or 0)]
    except (RuntimeError, ValueError, IndexError) as error:
        known = ", ".join(repr(str(d)) for d in jax.local_devices())
        raise ArgumentError(
            f"`device` must be one of {known}, got {device!r}. Try: {str(jax.local_devices()[0])!r}."
        ) from error


def of(x: Any) -> Any:
    """The device of an array; None of one that is being traced, which has its compiled function's."""
    return None if isinstance(x, jax.core.Tracer) else x.device


def place(x: Any, device: Any) -> Any:
    """x on a device; x itself if it is there already or is being traced (a compiled function has its inputs' device).

    An array that is already there is not committed to it, since jax compiles anew when an argument becomes so.
    """
    if device is None or isinstance(x, jax.core.Tracer):
        return x
    found = find(device)
    return x if x.device == found else jax.device_put(x, found)

"""The one reader of unisync's environment variables. An argument always wins over the environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from unisync.errors import ArgumentError


def backend_from_environment() -> str | None:
    """`UNISYNC_BACKEND`: the backend used until `set_backend` is called; None if unset or empty."""
    return os.environ.get("UNISYNC_BACKEND") or None


def jax_x64_from_environment() -> bool:
    """`UNISYNC_JAX_X64`: "0" leaves jax's 64-bit mode as it is; float64 and int64 are then unavailable."""
    return os.environ.get("UNISYNC_JAX_X64", "1") != "0"


def jax_devices_from_environment() -> int | None:
    """`UNISYNC_JAX_DEVICES`: how many CPU devices jax makes as soon as its backend loads; None if unset."""
    return _device_count("UNISYNC_JAX_DEVICES")


def tf_devices_from_environment() -> int | None:
    """`UNISYNC_TF_DEVICES`: how many logical CPU devices tensorflow gets when its backend loads; None if unset."""
    return _device_count("UNISYNC_TF_DEVICES")


def _device_count(name: str) -> int | None:
    text = os.environ.get(name)
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentError(f"`{name}` must be a whole number from 1 up, got {text!r}. Try: 4.")
    return int(text)


def set_default(name: str, value: str) -> None:
    """Set a variable that a framework reads at import, unless the user has set it already."""
    os.environ.setdefault(name, value)


@contextlib.contextmanager
def at_least(name: str, number: int) -> Iterator[None]:
    """A variable that holds a number raised to at least `number` inside the block, for code that reads it there."""
    before = os.environ.get(name)
    os.environ[name] = str(max(whole_number(name), number))
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def jax_device_count_flag() -> bool:
    """Whether `XLA_FLAGS` settles the number of CPU devices."""
    return "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")


def whole_number(name: str) -> int:
    """A variable that holds a whole number; 0 if it is unset or holds something else."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0

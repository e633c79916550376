"""The one reader of unisync's environment variables. An argument always wins over the environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

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


def variable(name: str) -> str:
    """A variable that a framework reads; "" if it is unset."""
    return os.environ.get(name, "")


def child_environment(own: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child process: this one's, with variables of its own, and defaults of what is not set."""
    return {**defaults, **os.environ, **own}


@contextlib.contextmanager
def temporarily(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables that a framework reads while the block runs, and that neither it nor child processes see afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

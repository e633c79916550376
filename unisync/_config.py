"""The one reader of unisync's environment variables. An argument always wins over the environment."""

from __future__ import annotations

import os


def backend_from_environment() -> str | None:
    """`UNISYNC_BACKEND`: the backend used until `set_backend` is called; None if unset or empty."""
    return os.environ.get("UNISYNC_BACKEND") or None


def jax_x64_from_environment() -> bool:
    """`UNISYNC_JAX_X64`: "0" leaves jax's 64-bit mode as it is; float64 and int64 are then unavailable."""
    return os.environ.get("UNISYNC_JAX_X64", "1") != "0"


def set_default(name: str, value: str) -> None:
    """Set a variable that a framework reads at import, unless the user has set it already."""
    os.environ.setdefault(name, value)

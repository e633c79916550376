"""How many gradients of ours are under way in this thread."""

from __future__ import annotations

import threading
from typing import Any


class _Depth(threading.local):
    gradients = 0


_depth = _Depth()


def differentiating() -> bool:
    """Whether a function is being differentiated in this thread."""
    return _depth.gradients > 0


class Differentiating:
    """One level of differentiation around a block."""

    __slots__ = ()

    def __enter__(self) -> None:
        _depth.gradients += 1

    def __exit__(self, *exception: Any) -> None:
        _depth.gradients -= 1

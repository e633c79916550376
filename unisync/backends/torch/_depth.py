"""How many gradients are being taken around the running code, in this thread."""

from __future__ import annotations

import threading


class _Depth(threading.local):
    gradients = 0


depth = _Depth()


def differentiating() -> bool:
    """Whether the running code is being differentiated by `value_and_grad` or `vjp`."""
    return depth.gradients > 0

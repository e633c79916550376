"""How a collective's derivative gets on NumPy's tape; the same for every engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unisync.backends.numpy import _tape


def differentiable(x: Any, forward: Callable[[Any], Any], backward: Callable[[Any], Any] | None, engine: str) -> Any:
    """forward(x), whose derivative is `backward` of the cotangent; None: to take one is an error."""
    if not _tape.is_traced(x):
        return forward(x)
    result = differentiable(x._value, forward, backward, engine)  # traced itself, within an outer gradient
    node = _tape.node((x._node,), lambda g: (_derivative(backward, engine)(g),), result.dtype)
    return _tape.Box(result, x._trace, node)


def _derivative(backward: Callable[[Any], Any] | None, engine: str) -> Callable[[Any], Any]:
    if backward is None:
        raise NotImplementedError(
            f"this collective has no derivative on engine {engine!r}, got one in a gradient. Try: op='sum' or 'mean', "
            "or us.stop_gradient(x)."
        )
    return backward

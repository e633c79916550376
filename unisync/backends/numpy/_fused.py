"""Operations with a hand-written forward and backward pass that keep what the backward pass needs.

The composite form of such an operation, written in other operations, serves where the hand-written one cannot: when
derivatives of derivatives are traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unisync.backends.numpy import _tape
from unisync.backends.numpy._tape import Box


def fused(
    forward: Callable[..., tuple[Any, Any]],
    backward: Callable[..., Sequence[Any]],
    composite: Callable[..., Any],
) -> Callable[..., Any]:
    """One operation of three forms.

    Args:
        forward: (*args) → (value, saved), on plain arrays.
        backward: (cotangent, saved, needed, *args) → the cotangents of the arguments, in order; what stands where
            `needed` is False is not looked at.
        composite: (*args) → value, on traced arrays.
    """

    def op(*args: Any) -> Any:
        trace = -1
        for x in args:
            if type(x) is Box and x._trace > trace:
                trace = x._trace
        if trace < 0:
            return forward(*args)[0]
        values = [x._value if type(x) is Box and x._trace == trace else x for x in args]
        if any(type(x) is Box for x in values):
            return composite(*args)
        needed = [type(x) is Box for x in args]
        value, saved = forward(*values)

        def vjp(g: Any) -> list[Any]:
            if type(g) is Box:
                return _by_composite(composite, values, needed, g)
            parts = backward(g, saved, needed, *values)
            return [part for part, wanted in zip(parts, needed, strict=True) if wanted]

        parents = [x._node for x in args if type(x) is Box]
        return Box(value, trace, _tape.node(parents, vjp, value.dtype))

    return op


def _by_composite(composite: Any, values: list[Any], needed: list[bool], g: Any) -> list[Any]:
    """The cotangents as functions of a traced g, through which a derivative is taken."""
    trace, roots = _tape.start([x for x, wanted in zip(values, needed, strict=True) if wanted])
    remaining = iter(roots)
    result = composite(*(next(remaining) if wanted else x for x, wanted in zip(values, needed, strict=True)))
    found = _tape.backward([result._node], [g]) if _tape.belongs(result, trace) else {}
    return [found[root._node][0] if root._node in found else None for root in roots]


def elementwise(forward: Callable[..., Any], slope: Callable[..., Any], composite: Callable[..., Any]) -> Any:
    """A fused function of one array, by its derivative slope(x, value, *further arguments)."""

    def both(x: Any, *further: Any) -> tuple[Any, Any]:
        value = forward(x, *further)
        return value, value

    def backward(g: Any, value: Any, needed: Any, x: Any, *further: Any) -> Any:
        return (g * slope(x, value, *further), *(None for _ in further))

    return fused(both, backward, composite)

"""The tape that gradients are recorded on: autograd's boxes and primitives, with nodes and a backward pass of our own.

autograd differentiates one argument at a time, keeps no dtype, and numbers its traces with one counter that all threads
raise and lower. Here a trace has many roots, a cotangent is kept in the dtype of what it belongs to, and no two traces
share a number.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import autograd.numpy
import autograd.tracer
import numpy as np
from autograd.core import VJPNode, add_outgrads, primitive_vjps
from autograd.numpy.numpy_boxes import ArrayBox as Box
from autograd.tracer import getval as getval, notrace_primitives

anp: Any = autograd.numpy
"""autograd's NumPy, whose functions take traced arrays; Any, as its names are made at run time."""


def is_traced(x: Any) -> bool:
    """Whether x is an array that a gradient is being traced through."""
    return type(x) is Box


_serials = itertools.count()


@final
class Node(VJPNode):
    """One operation on the tape: where its inputs come from and how a cotangent goes back to them."""

    __slots__ = ("dtype", "serial")

    def __init__(self, value: Any, fun: Any, args: Any, kwargs: Any, parent_argnums: Any, parents: Any) -> None:
        maker = primitive_vjps.get(fun)
        if maker is None:
            name = getattr(fun, "__name__", str(fun))
            raise NotImplementedError(f"the derivative of {name} is not known on NumPy. Try: us.{name} if it exists.")
        self.parents = parents
        self.vjp = maker(parent_argnums, value, args, kwargs)
        self.dtype = getattr(value, "dtype", None)
        self.serial = next(_serials)


# Which functions are constants is known per class of node.
notrace_primitives[Node] = notrace_primitives[VJPNode]


def node(parents: Sequence[Any], vjp: Callable[[Any], Any], dtype: Any) -> Node:
    """A node that no primitive made; with no parents, the root of a trace."""
    made = object.__new__(Node)
    made.parents, made.vjp, made.dtype, made.serial = parents, vjp, dtype, next(_serials)
    return made


class _Traces:
    """Numbers traces by one ever-rising count: an inner trace has the higher number, in every thread.

    autograd's own stack is one counter for all threads: a trace that begins while another thread leaves one can get
    the number of an outer trace that still runs, and the two levels of derivatives are then mixed up. It also keeps
    counting from too high a number after an exception.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()  # next() is atomic

    @contextlib.contextmanager
    def new_trace(self) -> Iterator[int]:
        yield next(self._numbers)


traces = _Traces()
autograd.tracer.trace_stack = traces  # type: ignore[assignment]  # autograd's own transformations take it from here


def start(leaves: Sequence[Any]) -> tuple[int, list[Box]]:
    """A new trace with each leaf as a root: its number, and the traced leaves."""
    with traces.new_trace() as trace:
        return trace, [Box(x, trace, node((), _nothing, x.dtype)) for x in leaves]


def _nothing(g: Any) -> tuple[()]:
    return ()


def belongs(x: Any, trace: int) -> bool:
    """Whether x was computed from the roots of the trace."""
    return type(x) is Box and x._trace == trace


def backward(
    ends: Sequence[Any], cotangents: Sequence[Any], stop: frozenset[Any] = frozenset()
) -> dict[Any, tuple[Any, bool]]:
    """The cotangents of the roots (or of the nodes in `stop`) by node; a node that gets none is left out.

    A cotangent comes with whether it is ours to write to. A missing one at an end is None.
    """
    given = [(end, g) for end, g in zip(ends, cotangents, strict=True) if g is not None]
    found: dict[Any, tuple[Any, bool]] = {}
    for end, g in given:
        _accumulate(found, end, g)
    for n in _latest_first([end for end, _ in given], stop):
        g = found.pop(n, None)
        if g is not None:
            for parent, part in zip(n.parents, n.vjp(g[0]), strict=True):
                if part is not None:
                    _accumulate(found, parent, part)
    return found


def _latest_first(ends: Sequence[Any], stop: frozenset[Any]) -> list[Any]:
    """The nodes behind the ends, each after all that were computed from it; without the roots and those in `stop`."""
    seen: set[Any] = set()
    stack = list(ends)
    while stack:
        n = stack.pop()
        if n not in seen and n.parents and n not in stop:
            seen.add(n)
            stack.extend(n.parents)
    return sorted(seen, key=_serial, reverse=True)


_serial = operator.attrgetter("serial")


@final
class Parts:
    """The cotangents of some outputs of a node that has several: (position, cotangent) pairs."""

    __slots__ = ("items",)

    def __init__(self, items: list[tuple[int, Any]]) -> None:
        self.items = items


def _accumulate(found: dict[Any, tuple[Any, bool]], parent: Any, g: Any) -> None:
    kind, dtype = type(g), parent.dtype
    if dtype is not None and (kind is Box or (isinstance(g, (np.ndarray, np.generic)) and g.dtype is not dtype)):
        g = _in_dtype(g, dtype)
    before = found.get(parent)
    if kind is Parts:
        found[parent] = (Parts(before[0].items + g.items) if before else g), False  # type: ignore[union-attr]
    elif before is None and kind is np.ndarray:
        found[parent] = g, False
    elif kind is np.ndarray and type(before[0]) is np.ndarray and before[0].shape == g.shape:  # type: ignore[index]
        total, ours = before  # type: ignore[misc]
        found[parent] = (np.add(total, g, out=total) if ours else total + g), True
    else:
        found[parent] = add_outgrads(before, g)


def _in_dtype(g: Any, dtype: np.dtype) -> Any:
    """A cotangent in the dtype of its node: derivatives mix in float64 numbers and complex factors in places."""
    own = getval(g).dtype
    if own == dtype:
        return g
    return (g if own.kind != "c" or dtype.kind == "c" else anp.real(g)).astype(dtype)

"""The tape that gradients are recorded on: autograd's boxes and primitives, with nodes and a backward pass of our own.

autograd differentiates one argument at a time, keeps no dtype, and numbers its traces with one counter that all threads
raise and lower. Here a trace has many roots, a cotangent is kept in the dtype of what it belongs to, and no two traces
share a number.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import autograd.tracer
import numpy as np
from autograd.core import VJPNode, add_outgrads, primitive_vjps
from autograd.numpy.numpy_boxes import ArrayBox as Box
from autograd.tracer import getval as getval, notrace_primitives
from autograd.util import toposort


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

    autograd's own stack is one counter for all threads: a trace that begins while another thread leaves one can get the
    number of an outer trace that still runs, and the two levels of derivatives are then mixed up. It also keeps counting
    from too high a number after an exception.
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
    ends: Sequence[Any], cotangents: Sequence[Any], stop: frozenset[Any] | None = None
) -> dict[Any, tuple[Any, bool]]:
    """The cotangents of the roots (or of the nodes in `stop`) by node; a node that gets none is left out.

    A cotangent comes with whether it is ours to write to. A missing one at an end is None.
    """
    given = [(end, g) for end, g in zip(ends, cotangents, strict=True) if g is not None]
    top = node([end for end, _ in given], lambda _: [g for _, g in given], None)
    found: dict[Any, tuple[Any, bool]] = {top: (None, False)}
    parents = _parents if stop is None else lambda n: () if n in stop else n.parents
    for n in toposort(top, parents):
        sources = parents(n)
        if not sources:
            continue
        g = found.pop(n, None)
        if g is None:
            continue
        for parent, part in zip(sources, n.vjp(g[0]), strict=True):
            if part is not None:
                _accumulate(found, parent, part)
    return found


def _parents(n: Any) -> Any:
    return n.parents


@final
class Parts:
    """The cotangents of some outputs of a node that has several: (position, cotangent) pairs."""

    __slots__ = ("items",)

    def __init__(self, items: list[tuple[int, Any]]) -> None:
        self.items = items


def _accumulate(found: dict[Any, tuple[Any, bool]], parent: Any, g: Any) -> None:
    kind, dtype = type(g), parent.dtype
    if (kind is np.ndarray or kind is Box) and g.dtype is not dtype and dtype is not None:
        g = _in_dtype(g, dtype)
    before = found.get(parent)
    if kind is Parts:
        found[parent] = (Parts(before[0].items + g.items) if before else g), False
    elif before is None and kind is np.ndarray:
        found[parent] = g, False
    elif kind is np.ndarray and type(before[0]) is np.ndarray and before[0].shape == g.shape:  # type: ignore[index]
        total, ours = before  # type: ignore[misc]
        found[parent] = (np.add(total, g, out=total) if ours else total + g), True
    else:
        found[parent] = add_outgrads(before, g)


def _in_dtype(g: Any, dtype: np.dtype) -> Any:
    """A cotangent in the dtype of its node: autograd's derivatives mix in float64 numbers in places."""
    if g.dtype == dtype or g.dtype.kind != dtype.kind:
        return g
    return g.astype(dtype)

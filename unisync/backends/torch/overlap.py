"""Gradients that are summed over the replicas while the backward pass still computes others.

As in DistributedDataParallel (Li et al., https://arxiv.org/abs/2006.15704) gradients are copied into flat buckets as
they appear, and the sum of a bucket over the replicas starts as soon as it is full. Buckets start in one order on all
replicas; a parameter that the loss does not depend on leaves its bucket for the end, with zeros in its place. What is
returned are views of the buckets: nothing is copied back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, final

import torch

from unisync import tree as _tree
from unisync._events import site
from unisync._types import Tree
from unisync.backends._engine import Handle
from unisync.backends.torch import _dtypes
from unisync.backends.torch.gradients import _backward_pass, _of_layout

FIRST_BUCKET_BYTES = 2**20  # small, so that communication starts early
BUCKET_BYTES = 25 * 2**20

_HALF = (torch.float16, torch.bfloat16)


@final
class Bucket:
    """Some leaves side by side in one buffer.

    Attributes:
        dtype: of the buffer; half precision travels as float32, and is rounded once.
        leaves: their numbers.
        offsets: where each begins in the buffer.
        figures: where other numbers begin, that come along.
        length: of the buffer.
    """

    __slots__ = ("dtype", "figures", "leaves", "length", "offsets")

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.leaves: list[int] = []
        self.offsets: list[int] = []
        self.figures = 0
        self.length = 0

    def add(self, leaf: int, length: int) -> None:
        """Put a leaf at the end."""
        self.leaves.append(leaf)
        self.offsets.append(self.length)
        self.length += length
        self.figures = self.length


def buckets(leaves: Sequence[torch.Tensor], order: Sequence[int], figures: int, dtype: torch.dtype) -> list[Bucket]:
    """The buckets of leaves whose gradients appear in some order; the figures are in the first of their dtype. A bucket
    is full with the leaf that takes it past its bytes."""
    made: list[Bucket] = []
    filling: dict[torch.dtype, Bucket] = {}
    for i in order:
        wide = torch.float32 if leaves[i].dtype in _HALF else leaves[i].dtype
        bucket = filling.get(wide)
        if bucket is None:
            bucket = filling[wide] = Bucket(wide)
            made.append(bucket)
        bucket.add(i, leaves[i].numel())
        if bucket.length * wide.itemsize >= (FIRST_BUCKET_BYTES if bucket is made[0] else BUCKET_BYTES):
            del filling[wide]
    first = next((b for b in made if b.dtype is dtype), None)
    if first is None:
        first = Bucket(dtype)
        made.insert(0, first)
    first.length += figures
    return made


@final
class Overlapped:
    """(params, *args) → ((value, aux), figures, gradients), of which the last two are sums over the replicas.

    Args:
        engine: of the replicas.
        objective: (params, *args) → (value, aux).
        figures: (aux, *args) → arrays of shape () and of one dtype, summed beside the gradients.
        counts: (*args) → whether this replica's gradients count; else they are zeros.
        start: begins the sum of an array into itself: (array, call in words) → its handle.
    """

    def __init__(
        self, engine: Any, objective: Callable[..., Any], figures: Callable[..., list[torch.Tensor]],
        counts: Callable[..., bool], start: Callable[[torch.Tensor, str], Handle],
    ) -> None:  # fmt: skip
        self._engine, self._start = engine, start
        self._objective, self._figures, self._counts = objective, figures, counts
        self._flattener = _tree.Flattener()
        self._form: Any = None  # what the plan was made for
        self._plan: list[Bucket] = []

    def __call__(self, params: Tree, *args: Any) -> tuple[tuple[Any, Any], list[torch.Tensor], Tree]:
        run: list[_Run] = []

        def before_backward(leaves: list[torch.Tensor], traced: list[torch.Tensor], aux: Any) -> None:
            figures = self._figures(aux, *args)
            self._prepare(params, leaves, figures)
            run.append(_Run(self._engine, self._start, self._plan, traced, figures, self._counts(*args)))

        value, aux, leaves, structure = _backward_pass(self._objective, params, args, self._flattener, before_backward)
        sums, gradients = run[0].finish(leaves)
        return (value, aux), sums, _tree.unflatten(structure, gradients)[0]

    def _prepare(self, params: Tree, leaves: list[torch.Tensor], figures: list[torch.Tensor]) -> None:
        form = [(x.shape, x.dtype) for x in leaves], len(figures), figures[0].dtype
        if form != self._form:
            self._plan = buckets(leaves, last_first(_tree.paths(params)), len(figures), figures[0].dtype)
            self._form = form


def last_first(paths: Sequence[str]) -> list[int]:
    """Leaves in the order in which their gradients are likely to appear: what comes last in a model comes first.

    Numbers in paths count as such: layer "10" comes after "9". The order in which they appear in a first pass would be
    surer, but sums between more than two replicas depend in their last bits on where in a bucket a number is, and a
    run that is resumed must give the same bits.
    """
    keys = [[(int(n), "") if n else (-1, text) for n, text in re.findall(r"(\d+)|(\D+)", path)] for path in paths]
    return sorted(range(len(paths)), key=keys.__getitem__, reverse=True)


@final
class _Run:
    """One backward pass."""

    def __init__(
        self, engine: Any, start: Callable[[torch.Tensor, str], Handle], plan: list[Bucket],
        traced: list[torch.Tensor], figures: list[torch.Tensor], counts: bool,
    ) -> None:  # fmt: skip
        self._engine, self._start, self._plan, self._counts = engine, start, plan, counts
        self._site = site()  # here, since hooks have torch's frames around them
        self._buffers = [engine.empty((b.length,), b.dtype) for b in plan]
        self._missing = [len(b.leaves) for b in plan]
        self._under_way: list[tuple[Handle, Any]] = []
        self._views: list[Any] = [None] * len(traced)
        self._arrived = [False] * len(traced)
        for number, (bucket, buffer) in enumerate(zip(plan, self._buffers, strict=True)):
            for i, low in zip(bucket.leaves, bucket.offsets, strict=True):
                x = traced[i]
                self._views[i] = buffer[low : low + x.numel()].view(x.shape)
                x.register_post_accumulate_grad_hook(self._hook(i, number))
            if bucket.length > bucket.figures:
                torch.stack(figures, out=buffer[bucket.figures :])
        self._start_full()

    def _hook(self, leaf: int, number: int) -> Callable[[torch.Tensor], None]:
        def taken(x: torch.Tensor) -> None:
            assert x.grad is not None
            if self._counts:
                self._views[leaf].copy_(x.grad)
            else:
                self._views[leaf].zero_()
            x.grad = None
            self._arrived[leaf] = True
            self._missing[number] -= 1
            if not self._missing[number]:
                self._start_full()

        return taken

    def _start_full(self) -> None:
        """Start the buckets that are full, in their order."""
        while len(self._under_way) < len(self._plan) and not self._missing[len(self._under_way)]:
            number = len(self._under_way)
            buffer, engine = self._buffers[number], self._engine
            label, dtype = f"all_reduce(sum, bucket {number})", str(_dtypes.NAMES[buffer.dtype])
            event = engine.ring.begin(engine.rank, label, self._site, tuple(buffer.shape), dtype, buffer.nbytes)
            self._under_way.append((self._start(buffer, f"{label} of {dtype}[{buffer.numel()}]"), event))

    def finish(self, leaves: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The sums of the figures and of the gradients."""
        for i, arrived in enumerate(self._arrived):
            if not arrived:
                self._views[i].zero_()
        self._missing = [0] * len(self._plan)
        self._start_full()
        figures: list[torch.Tensor] = []
        for (handle, event), bucket, buffer in zip(self._under_way, self._plan, self._buffers, strict=True):
            handle.wait()
            self._engine.ring.end(event, *self._engine.waited())
            if bucket.length > bucket.figures:
                figures = list(buffer[bucket.figures :].unbind())
        return figures, [_like(view, leaf) for view, leaf in zip(self._views, leaves, strict=True)]


def _like(view: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """A gradient in its parameter's dtype and memory layout, in which it need not have travelled."""
    return _of_layout(view.to(leaf.dtype), leaf)

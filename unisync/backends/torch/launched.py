"""PyTorch's engines of launched worlds: torch.distributed, with gloo on CPUs and nccl on CUDA devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import torch
from torch.distributed import AllreduceOptions, ReduceOp as _Op

from unisync import _dispatch
from unisync.backends._engine import Done, Groups, Handle, ReduceOp
from unisync.backends._launched import Member
from unisync.backends._memory import LARGE_BYTES, Pool
from unisync.backends.torch._direct import Direct
from unisync.backends.torch._group import use_interface
from unisync.backends.torch._nccl import NcclProcesses, cuda_device
from unisync.backends.torch._processes import Pending, TorchProcesses
from unisync.errors import ArgumentError, unknown

ENGINES: tuple[str, ...] = ("gloo", "nccl")

FLUSH_S = 5.0
"""How long the end of a world waits for messages that others have not received."""


def make_engine(name: str | None, member: Member, device: Any, timeout_s: float) -> TorchProcesses:
    """The engine of this process: nccl where there are CUDA devices, unless `device` is "cpu"; else gloo."""
    if name not in (None, *ENGINES):
        raise unknown("engine", str(name), ENGINES)
    try:
        asked = None if device is None else torch.device(device)
    except RuntimeError as error:
        raise ArgumentError(f"`device` must name a torch device, got {device!r}. Try: 'cpu'.") from error
    if name is None:
        on_cuda = torch.cuda.is_available() if asked is None else asked.type == "cuda"
        name = "nccl" if on_cuda else "gloo"
    kind = {"nccl": "cuda", "gloo": "cpu"}[name]
    if asked is not None and asked.type != kind:
        raise ArgumentError(
            f"`device` must be {kind!r} for engine {name!r}, got {device!r}. Try: device={kind!r}, or leave it out."
        )
    use_interface(name, member.interface)
    backend = _dispatch.load("torch")
    if name == "nccl":
        return NcclProcesses(backend, member, cuda_device(asked, member), timeout_s)
    return GlooProcesses(backend, member, torch.device("cpu"), timeout_s)


@final
class GlooProcesses(TorchProcesses):
    """Replicas as processes on CPUs.

    Sums are made in the order of the group, so that all replicas have the same bits, and those that threads have.
    Sums that are not waited for at once are gloo's own, which goes on beside other work: the same bits on all replicas,
    between more than two not always those of the others.
    """

    name = "gloo"

    def __init__(self, backend: Any, member: Member, device: torch.device, timeout_s: float) -> None:
        super().__init__(backend, member, device, timeout_s)
        self._pool = Pool()
        self._direct = Direct(self._groups.whole, self.rank, self.empty)

    def end(self) -> None:
        # A message sent last is on its way still; one that nobody receives must not hold up the end for long.
        if self.channel.verdict is None:
            self._direct.flush(min(self.timeout_s, FLUSH_S))
        self._direct.end()
        self._pool.clear()
        super().end()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        size = math.prod(shape) * dtype.itemsize
        if size < LARGE_BYTES:
            return super().empty(shape, dtype)
        return torch.from_numpy(self._pool.empty((size,), np.uint8)).view(dtype).view(tuple(shape))

    def plain_reduce(self, x: Any, op: str, groups: Groups | None) -> Any:
        x, back = _addable(x, op)
        label = self.call(op, x, groups)
        result = self.guarded(label, lambda: self._direct.all_reduce(x, op, self.members(groups), label))
        return back(result)

    def start_all_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Handle:
        self.check_not_traced(x)
        x, back = _addable(x, op)
        members, label = self.members(groups), self.call(op, x, groups)
        # What gloo cannot do, or does wrong: which of a number and NaN is the larger depends on the rank there.
        ordered = op in ("max", "min") and x.is_floating_point()
        if not x.numel() or ordered or (op == "prod" and x.is_complex()):
            return Done(back(self.guarded(label, lambda: self._direct.all_reduce(x, op, members, label))))
        dtype = x.dtype
        result = self.empty(x.shape, torch.int32 if dtype is torch.int16 else dtype).copy_(x)
        work = self.guarded(label, lambda: start_in_place(self._groups.within(groups), result, op))

        def wait() -> torch.Tensor:
            work.wait()
            return back(result.to(dtype))

        return Pending(self, label, wait, work.is_completed)

    def start_sum_in_place(self, x: torch.Tensor, label: str) -> Handle:
        work = self.guarded(label, lambda: start_in_place(self._groups.whole, x, "sum"))
        return Pending(self, label, work.wait, work.is_completed)

    def plain_gather(self, x: Any, groups: Groups | None) -> Any:
        x, label = _contiguous(x), self.call("all_gather", x, groups)
        return self.guarded(label, lambda: self._direct.all_gather(x, self.members(groups), label))

    def lengths(self, own: int, groups: Groups | None) -> list[int]:
        return self.guarded("lengths", lambda: self._direct.lengths(own, self.members(groups)))

    def same_shapes(self, shapes: Sequence[tuple[int, ...]], groups: Groups | None) -> bool:
        text = f"all_gather of {len(shapes)} arrays"
        own = self._direct.number_of(str(shapes))
        numbers = self.guarded(text, lambda: self._direct.lengths(own, self.members(groups)))
        return all(number == own for number in numbers)

    def plain_reduce_scatter(self, x: Any, groups: Groups | None) -> Any:
        x, back = _addable(x, "sum")
        label = self.call("reduce_scatter", x, groups)
        return back(self.guarded(label, lambda: self._direct.reduce_scatter(x, self.members(groups), label)))

    def plain_broadcast(self, x: Any, root: int, groups: Groups | None) -> Any:
        x, label = _contiguous(x), self.call("broadcast", x, groups)
        return self.guarded(label, lambda: self._direct.broadcast(x, root, self.members(groups), label))

    def plain_all_to_all(self, x: Any, groups: Groups | None) -> Any:
        x, label = _contiguous(x), self.call("all_to_all", x, groups)
        return self.guarded(label, lambda: self._direct.all_to_all(x, self.members(groups), label))

    def plain_permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        x, label = _contiguous(x), self.call("permute", x, None)
        return self.guarded(label, lambda: self._direct.permute(x, pairs, label))

    def send(self, x: Any, to: int) -> None:
        def forward(y: Any) -> Any:
            y = _contiguous(y)
            label = _message(y)
            self.guarded(label, lambda: self._direct.post(y, to, label))
            return y

        self.differentiable(x, forward, None)

    def recv(self, like: Any, source: int) -> Any:
        label = _message(like)
        return self.guarded(label, lambda: self._direct.fetch(_contiguous(like), source, label))

    def barrier(self) -> None:
        self.guarded("barrier", lambda: self._direct.barrier(self._everyone))


def start_in_place(group: Any, x: torch.Tensor, op: str) -> Any:
    """The all-reduce of an array into itself, under way, by the process group's own means."""
    options = AllreduceOptions()
    native = {"sum": _Op.SUM, "prod": _Op.PRODUCT, "max": _Op.MAX, "min": _Op.MIN}[op]
    options.reduceOp = native  # type: ignore[assignment]
    options.asyncOp = True
    return group.allreduce([torch.view_as_real(x) if x.is_complex() else x], options)


def _message(x: torch.Tensor) -> str:
    return f"a message of {str(x.dtype).removeprefix('torch.')}{list(x.shape)}"


def _contiguous(x: torch.Tensor) -> torch.Tensor:
    if x.requires_grad:
        x = x.detach()
    return (x.resolve_conj().resolve_neg() if x.is_complex() else x).contiguous()


_SIGN = -(2**63)


def _addable(x: torch.Tensor, op: str) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
    """A contiguous array of a dtype in which torch adds on the CPU, and the way back."""
    x = _contiguous(x)
    if x.dtype is not torch.uint64:
        return x, _same
    x = x.view(torch.int64)  # sums and products have the same bits
    if op not in ("max", "min"):
        return x, lambda y: y.view(torch.uint64)
    return x ^ _SIGN, lambda y: (y ^ _SIGN).view(torch.uint64)


def _same(x: torch.Tensor) -> torch.Tensor:
    return x

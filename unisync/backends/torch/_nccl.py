"""PyTorch's engine of launched worlds on CUDA devices: nccl. Arrays stay on the device; the host waits for nothing but
lengths. Not yet run on hardware; see docs/status.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch
from torch.distributed import AllreduceOptions, ReduceOp as _Op

from unisync.backends._engine import Groups, Handle, ReduceOp
from unisync.backends._launched import Member
from unisync.backends.torch._processes import Pending, TorchProcesses
from unisync.errors import ArgumentError


def cuda_device(asked: torch.device | None, member: Member) -> torch.device:
    """The device of this process: of all that it sees, the one with its number on the machine."""
    if asked is not None and asked.index is not None:
        return asked
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    # A launcher such as srun may let each process see one device alone, which is then its number 0.
    index = 0 if count == 1 else member.local_rank
    if index >= count:
        raise ArgumentError(
            f"`engine` 'nccl' needs a CUDA device for each of the {member.local_size} processes of this machine, got "
            f"{count}. Try: engine='gloo', or fewer replicas."
        )
    return torch.device("cuda", index)


_OPS = {"sum": _Op.SUM, "prod": _Op.PRODUCT, "max": _Op.MAX, "min": _Op.MIN, "mean": _Op.AVG}


@final
class NcclProcesses(TorchProcesses):
    """Replicas as processes with a CUDA device each."""

    name = "nccl"

    def __init__(self, backend: Any, member: Member, device: torch.device, timeout_s: float) -> None:
        torch.cuda.set_device(device)
        super().__init__(backend, member, device, timeout_s)

    def plain_reduce(self, x: Any, op: str, groups: Groups | None) -> Any:
        if op == "prod" and x.is_complex():
            parts = self.plain_gather(x[None], groups).unbind()
            return torch.stack(parts).prod(0)
        result, back = self._own(x)
        label = self.call(op, x, groups)
        self.guarded(label, lambda: self._start(result, op, groups, False))
        return back(result)

    def start_all_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Handle:
        self.check_not_traced(x)
        result, back = self._own(x)
        label = self.call(op, x, groups)
        work = self.guarded(label, lambda: self._start(result, op, groups, True))

        def wait() -> torch.Tensor:
            work.wait()
            return back(result)

        return Pending(self, label, wait, work.is_completed)

    def _start(self, x: torch.Tensor, op: str, groups: Groups | None, later: bool) -> Any:
        options = AllreduceOptions()
        options.reduceOp, options.asyncOp = _OPS[op], later
        work = self._groups.within(groups).allreduce([torch.view_as_real(x) if x.is_complex() else x], options)
        if work is not None and not later:
            work.wait()  # lets the current stream wait, not the host
        return work

    def _own(self, x: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
        """A copy of x on the device in a dtype that nccl adds, and the way back."""
        dtype = x.dtype
        wide = {torch.int16: torch.int32, torch.uint64: torch.int64}.get(dtype, dtype)
        result = torch.empty(x.shape, dtype=wide, device=self.devices[0]).copy_(x.detach())
        return result, lambda y: y if y.dtype is dtype else y.to(dtype)

    def plain_gather(self, x: Any, groups: Groups | None) -> Any:
        members, x = self.members(groups), self._bytes(x)
        lengths = self.lengths(x.shape[0], groups)
        parts = [x.new_empty((length, *x.shape[1:])) for length in lengths]
        label = self.call("all_gather", x, groups)
        self.guarded(label, lambda: self._swap([(r, x) for r in members], list(zip(members, parts, strict=True))))
        return torch.cat(parts)

    def lengths(self, own: int, groups: Groups | None) -> list[int]:
        members = self.members(groups)
        group, ascending = self._groups.within(groups), sorted(members)
        found = torch.empty(len(members), dtype=torch.int64, device=self.devices[0])
        mine = torch.tensor([own], device=self.devices[0])
        self.guarded("lengths", lambda: group._allgather_base(found, mine).wait())
        numbers = found.tolist()
        return [numbers[ascending.index(r)] for r in members]

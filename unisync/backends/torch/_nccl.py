"""PyTorch's engine of launched worlds on CUDA devices: nccl. Arrays stay on the device, and the host waits for nothing
but lengths and headers. It has not run on hardware yet (docs/status.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
import torch.distributed as dist
from torch.distributed import AllreduceOptions, AllToAllOptions, ReduceOp as _Op, ReduceScatterOptions

from unisync.backends._engine import Groups, Handle, ReduceOp
from unisync.backends._launched import Member
from unisync.backends.torch._messages import as_bytes, hash_of
from unisync.backends.torch._processes import Pending, TorchProcesses
from unisync.errors import ArgumentError, CollectiveMismatchError

_OPS = {"sum": _Op.SUM, "prod": _Op.PRODUCT, "max": _Op.MAX, "min": _Op.MIN, "mean": _Op.AVG}
_WIDER = {torch.int16: torch.int32, torch.uint64: torch.int64}  # nccl adds neither of the first


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


@final
class NcclProcesses(TorchProcesses):
    """Replicas as processes with a CUDA device each."""

    name = "nccl"

    def __init__(self, backend: Any, member: Member, device: torch.device, timeout_s: float) -> None:
        torch.cuda.set_device(device)
        super().__init__(backend, member, device, timeout_s)

    # Reductions, by nccl's own means: in place, on a copy

    def plain_reduce(self, x: Any, op: str, groups: Groups | None) -> Any:
        if (op == "prod" and x.is_complex()) or (op in ("max", "min") and x.dtype is torch.uint64):
            return self._by_gathering(x, op, groups)
        result, back = self._copy(x)
        label = self.call(op, x, groups)
        self.guarded(label, lambda: self._start(result, op, groups, later=False))
        return back(result)

    def start_all_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Handle:
        self.check_not_traced(x)
        result, back = self._copy(x)
        label = self.call(op, x, groups)
        work = self.guarded(label, lambda: self._start(result, op, groups, later=True))

        def wait() -> torch.Tensor:
            work.wait()
            return back(result)

        return Pending(self, label, wait, work.is_completed)

    def start_sum_in_place(self, x: torch.Tensor, label: str) -> Handle:
        work = self.guarded(label, lambda: self._start(x, "sum", None, later=True))
        return Pending(self, label, work.wait, work.is_completed)

    def plain_reduce_scatter(self, x: Any, groups: Groups | None) -> Any:
        members, ascending = self._orders(groups)
        x, back = self._copy(x)
        slices = x.chunk(len(members))
        inputs = torch.cat([slices[members.index(r)] for r in ascending])
        result = torch.empty_like(slices[0])
        options = ReduceScatterOptions()
        options.reduceOp = _Op.SUM  # type: ignore[assignment]
        group, flat = self._groups.within(groups), _real(inputs)
        self.guarded("reduce_scatter", lambda: _finish(group._reduce_scatter_base(_real(result), flat, options)))
        return back(result)

    def _start(self, x: torch.Tensor, op: str, groups: Groups | None, *, later: bool) -> Any:
        options = AllreduceOptions()
        options.reduceOp, options.asyncOp = _OPS[op], later  # type: ignore[assignment]
        work = self._groups.within(groups).allreduce([_real(x)], options)
        return work if later else _finish(work)

    def _by_gathering(self, x: torch.Tensor, op: str, groups: Groups | None) -> torch.Tensor:
        parts = list(self.plain_gather(x[None].contiguous(), groups).unbind())
        if op == "prod":
            return torch.stack(parts).prod(0)
        flipped = torch.stack([part.view(torch.int64) ^ _SIGN for part in parts])
        return ((flipped.amax(0) if op == "max" else flipped.amin(0)) ^ _SIGN).view(torch.uint64)

    def _copy(self, x: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
        """A copy of x on the device in a dtype that nccl adds, and the way back."""
        dtype = x.dtype
        result = torch.empty(x.shape, dtype=_WIDER.get(dtype, dtype), device=self.devices[0]).copy_(x.detach())
        return result, lambda y: y if y.dtype is dtype else y.to(dtype)

    # Moves, of bytes

    def plain_gather(self, x: Any, groups: Groups | None) -> Any:
        members, ascending = self._orders(groups)
        x = self._here(x)
        lengths = self.lengths(x.shape[0], groups)
        rows = [x.new_empty((length, *x.shape[1:])) for length in lengths]
        if len(set(lengths)) == 1 and members == ascending:
            out = x.new_empty((sum(lengths), *x.shape[1:]))
            group = self._groups.within(groups)
            self.guarded("all_gather", lambda: _finish(group._allgather_base(as_bytes(out), as_bytes(x))))
            return out
        own = members.index(self.rank)
        rows[own].copy_(x)
        outgoing = [(r, as_bytes(x)) for r in members if r != self.rank]
        self._swap("all_gather", outgoing, [(r, as_bytes(part)) for r, part in zip(members, rows, strict=True)])
        return torch.cat(rows)

    def lengths(self, own: int, groups: Groups | None) -> list[int]:
        members, ascending = self._orders(groups)
        found = torch.empty(len(members), dtype=torch.int64, device=self.devices[0])
        mine = torch.tensor([own], device=self.devices[0])
        group = self._groups.within(groups)
        self.guarded("lengths", lambda: _finish(group._allgather_base(found, mine)))
        numbers = found.tolist()
        return [numbers[ascending.index(r)] for r in members]

    def same_shapes(self, shapes: Sequence[tuple[int, ...]], groups: Groups | None) -> bool:
        own = hash_of(str(shapes)) >> 1
        return all(number == own for number in self.lengths(own, groups))

    def plain_broadcast(self, x: Any, root: int, groups: Groups | None) -> Any:
        members, ascending = self._orders(groups)
        out = torch.empty(x.shape, dtype=x.dtype, device=self.devices[0])
        if members[root] == self.rank:
            out.copy_(x)
        group, place = self._groups.within(groups), ascending.index(members[root])
        self.guarded("broadcast", lambda: _finish(group.broadcast(as_bytes(out), place)))
        return out

    def plain_all_to_all(self, x: Any, groups: Groups | None) -> Any:
        members, ascending = self._orders(groups)
        slices = self._here(x).chunk(len(members))
        inputs = torch.cat([slices[members.index(r)] for r in ascending])
        arrived, options = torch.empty_like(inputs), AllToAllOptions()
        group = self._groups.within(groups)
        self.guarded(
            "all_to_all", lambda: _finish(group.alltoall_base(as_bytes(arrived), as_bytes(inputs), [], [], options))
        )
        parts = arrived.chunk(len(members))
        return arrived if members == ascending else torch.cat([parts[ascending.index(r)] for r in members])

    def plain_permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        x, out = self._here(x), torch.zeros(x.shape, dtype=x.dtype, device=self.devices[0])
        targets = [target for source, target in pairs if source == self.rank]
        sources = [source for source, target in pairs if target == self.rank]
        if targets == [self.rank]:
            return out.copy_(x)
        self._swap("permute", [(r, as_bytes(x)) for r in targets], [(r, as_bytes(out)) for r in sources])
        return out

    def send(self, x: Any, to: int) -> None:
        def forward(y: Any) -> Any:
            y = self._here(y)
            self._swap("send", [(to, self._form(y)), (to, as_bytes(y))], [])
            return y

        self.differentiable(x, forward, None)

    def recv(self, like: Any, source: int) -> Any:
        out = torch.empty(like.shape, dtype=like.dtype, device=self.devices[0])
        form = torch.empty(1, dtype=torch.int64, device=self.devices[0])
        self._swap("recv", [], [(source, form)])
        if not torch.equal(form, self._form(out)):
            raise CollectiveMismatchError(
                f"`like` must have the shape and dtype of what replica {source} sent, got {str(out.dtype)[6:]}"
                f"{list(out.shape)}, which is another. Try: us.zeros of the sender's shape and dtype."
            )
        self._swap("recv", [], [(source, as_bytes(out))])
        return out

    def barrier(self) -> None:
        self.lengths(0, None)  # reads what arrives, so the host waits too

    def _form(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([hash_of(f"{x.dtype}{tuple(x.shape)}") >> 1], device=self.devices[0])

    def _swap(
        self, label: str, outgoing: list[tuple[int, torch.Tensor]], incoming: list[tuple[int, torch.Tensor]]
    ) -> None:
        group = self._groups.whole
        messages = [dist.P2POp(dist.isend, x, r, group) for r, x in outgoing]
        messages += [dist.P2POp(dist.irecv, x, r, group) for r, x in incoming if r != self.rank]
        if messages:
            self.guarded(label, lambda: [work.wait() for work in dist.batch_isend_irecv(messages)])

    def _here(self, x: torch.Tensor) -> torch.Tensor:
        x = x.detach()
        return (x.resolve_conj().resolve_neg() if x.is_complex() else x).to(self.devices[0]).contiguous()

    def _orders(self, groups: Groups | None) -> tuple[list[int], list[int]]:
        """The group in its order, and in that of its process group."""
        members = list(self.members(groups))
        return members, sorted(members)


_SIGN = -(2**63)


def _real(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x) if x.is_complex() else x


def _finish(work: Any) -> Any:
    """Let the current stream wait for what has been started; the host does not."""
    if work is not None:
        work.wait()
    return work

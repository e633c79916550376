"""NumPy's engine for a world of processes: MPI, through mpi4py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from unisync import _dispatch
from unisync.backends import load_mpi
from unisync.backends._derivatives import DifferentiableEngine
from unisync.backends._engine import Groups, Handle, ReduceOp
from unisync.backends._launched import LaunchedEngine, Member
from unisync.backends._memory import Pool
from unisync.backends.numpy import _mpi, _tape
from unisync.backends.numpy._differentiable import differentiable
from unisync.errors import ArgumentError, CollectiveMismatchError, unknown

ENGINES: tuple[str, ...] = ("mpi",)
KEEPS_MPI = True
"""Whether MPI stays in use after the processes have found each other by it."""

SMALL_BYTES = 64 * 2**10
"""Up to this size data are sent before it is known that the others bring the same: one wait instead of two."""

_HEAD, _DATA, _MOVE = 1, 2, 3  # tags of messages
_HEAD_BYTES = 256


def make_engine(name: str | None, member: Member, device: Any, timeout_s: float) -> MpiEngine:
    """The engine of this process in a world of MPI processes."""
    if name not in (None, *ENGINES):
        raise unknown("engine", name, ENGINES)
    if device is not None and str(device) != "cpu":
        raise ArgumentError(f"`device` must be 'cpu' on NumPy, got {device!r}. Try: leave it out.")
    return MpiEngine(load_mpi(), member, timeout_s)


@final
class MpiEngine(DifferentiableEngine, LaunchedEngine):
    """One replica, this process, whose collectives are MPI's on the arrays' own memory.

    Every result is memory of its own. Reductions are MPI's: of the same bits on every rank with MPICH and Open MPI,
    whose algorithms compute each element once or symmetrically, but in an order that depends on size and ranks.
    """

    name = "mpi"
    uneven = True

    def __init__(self, mpi: Any, member: Member, timeout_s: float) -> None:
        comm = _mpi.world_of(mpi, member.rank, member.size)
        _mpi.forget_shared_memory(comm)
        LaunchedEngine.__init__(self, _dispatch.load("numpy"), member, "cpu", timeout_s)
        self._mpi = mpi
        self.comm = comm
        self._waiter = _mpi.Waiter(mpi, self.channel, timeout_s, self._label)
        self._world = self._last = _mpi.Peers(mpi, comm, self._waiter)
        self._groups: dict[tuple[int, ...], _mpi.Peers] = {}
        self._results = Pool()
        self._sends: list[tuple[Any, Any]] = []  # requests, and the memory that they read
        self._under_way: list[_Pending] = []
        self._given_up: list[Any] = []  # requests that will not end, and the memory that they may still use
        _mpi.leave_at_exit(mpi, self.channel)

    def differentiable(self, x: Any, forward: Callable[[Any], Any], backward: Callable[[Any], Any] | None) -> Any:
        return differentiable(x, forward, backward, self.name)

    def traced(self, x: Any) -> bool:
        return _tape.is_traced(x)

    def waited(self) -> tuple[int | None, int | None]:
        return self._last.met_ns

    # Collectives

    def plain_reduce(self, x: Any, op: str, groups: Groups | None) -> Any:
        peers, host = self._peers(groups), _contiguous(x)
        self._last = peers
        result = self._results.empty(host.shape, host.dtype)
        peers.ask(_mpi.number_of((op, host.shape, host.dtype.char)))
        large = host.nbytes > SMALL_BYTES  # what does not fit together must not begin, unless it can do no harm
        if large and not peers.agree():
            raise self._mismatch()
        request = self._waiter.start(peers.comm.Iallreduce, host, result, _mpi.op_of(self._mpi, op, host.dtype))
        if not large and not peers.agree():
            self._given_up.append((request, host, result))
            raise self._mismatch()
        self._waiter.complete(request)
        return np.divide(result, peers.size, out=result) if op == "mean" else result

    def start_all_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Handle:
        self.check_not_traced(x)
        peers, host = self._peers(groups), _contiguous(x)
        meeting = peers.start_meeting(_mpi.number_of((op, host.shape, host.dtype.char)))
        result = self._results.empty(host.shape, host.dtype)
        request = self._waiter.start(peers.comm.Iallreduce, host, result, _mpi.op_of(self._mpi, op, host.dtype))
        # A request does not keep the memory that it uses, and the caller may drop the handle.
        self._under_way = [pending for pending in self._under_way if not pending.is_completed()]
        self._under_way.append(_Pending(self, meeting, request, host, result))
        return self._under_way[-1]

    def plain_gather(self, x: Any, groups: Groups | None) -> Any:
        peers, host = self._peers(groups), _contiguous(x)
        self._last = peers
        if peers.meet(_mpi.number_of(("all_gather", host.shape, host.dtype.char))):
            result = self._results.empty((peers.size * host.shape[0], *host.shape[1:]), host.dtype)
            self._run(peers.comm.Iallgather, _bytes(host), _bytes(result))
            return result
        lengths = peers.meet_with(_mpi.number_of(("all_gather", host.shape[1:], host.dtype.char)), host.shape[0])
        if lengths is None:
            raise self._mismatch()
        result = self._results.empty((sum(lengths), *host.shape[1:]), host.dtype)
        counts = [length * (result.nbytes // max(1, result.shape[0])) for length in lengths]
        into = [_bytes(result), counts, _offsets(counts), self._mpi.BYTE]
        self._run(peers.comm.Iallgatherv, _bytes(host), into)
        return result

    def lengths(self, own: int, groups: Groups | None) -> list[int]:
        self._last = self._peers(groups)
        lengths = self._last.meet_with(_mpi.number_of("lengths"), own)
        if lengths is None:
            raise self._mismatch()
        return lengths

    def plain_reduce_scatter(self, x: Any, groups: Groups | None) -> Any:
        peers, host = self._peers(groups), _contiguous(x)
        self._meet(peers, ("reduce_scatter", host.shape, host.dtype.char))
        result = self._results.empty((host.shape[0] // peers.size, *host.shape[1:]), host.dtype)
        if host.size:
            self._run(peers.comm.Ireduce_scatter_block, host, result, self._mpi.SUM)
        return result

    def plain_broadcast(self, x: Any, root: int, groups: Groups | None) -> Any:
        peers, host = self._peers(groups), _contiguous(x)
        self._meet(peers, ("broadcast", root, host.shape, host.dtype.char))
        result = self._results.empty(host.shape, host.dtype)
        if peers.comm.Get_rank() == root:
            np.copyto(result, host)
        if host.size:
            self._run(peers.comm.Ibcast, _bytes(result), root)
        return result

    def plain_all_to_all(self, x: Any, groups: Groups | None) -> Any:
        peers, host = self._peers(groups), _contiguous(x)
        self._meet(peers, ("all_to_all", host.shape, host.dtype.char))
        result = self._results.empty(host.shape, host.dtype)
        if host.size:
            self._run(peers.comm.Ialltoall, _bytes(host), _bytes(result))
        return result

    def plain_permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        host = _contiguous(x)
        self._meet(self._world, ("permute", tuple(pairs), host.shape, host.dtype.char))
        targets, sources = dict(pairs), {target: source for source, target in pairs}
        result = self._results.empty(host.shape, host.dtype)
        source, requests = sources.get(self.rank), []
        if source is None:
            result[...] = 0
        elif source == self.rank:
            np.copyto(result, host)
        else:
            requests.append(self._waiter.start(self._world.comm.Irecv, _bytes(result), source, _MOVE))
        if targets.get(self.rank, self.rank) != self.rank:
            requests.append(self._waiter.start(self._world.comm.Isend, _bytes(host), targets[self.rank], _MOVE))
        for request in requests:
            self._waiter.complete(request)
        return result

    def barrier(self) -> None:
        self._meet(self._world, "barrier")

    def same_shapes(self, shapes: Sequence[tuple[int, ...]], groups: Groups | None) -> bool:
        return self._peers(groups).meet(_mpi.number_of(("shapes", *shapes)))

    # Messages from one to another

    def send(self, x: Any, to: int) -> None:
        def forward(y: Any) -> Any:
            array = _contiguous(np.array(y))
            head = f"{self.backend.dtype_of(y)} {array.dtype.char} {' '.join(map(str, array.shape))}"
            header = np.frombuffer(head.encode().ljust(_HEAD_BYTES), np.uint8)
            comm = self._world.comm
            self._sends = [(request, memory) for request, memory in self._sends if not request.Test()]
            self._sends.append((self._waiter.start(comm.Isend, header, to, _HEAD), header))
            self._sends.append((self._waiter.start(comm.Isend, _bytes(array), to, _DATA), array))
            return y

        self.differentiable(x, forward, None)

    def recv(self, like: Any, source: int) -> Any:
        comm, header = self._world.comm, np.empty(_HEAD_BYTES, np.uint8)
        self._run(comm.Irecv, header, source, _HEAD)
        dtype, char, *lengths = header.tobytes().decode().split()
        shape = tuple(map(int, lengths))
        result = self._results.empty(shape, like.dtype if char == like.dtype.char else np.dtype(char))
        self._run(comm.Irecv, _bytes(result), source, _DATA)
        expected = tuple(like.shape), str(self.backend.dtype_of(like))
        if (shape, dtype) != expected:
            raise CollectiveMismatchError(
                f"`like` must have the shape and dtype of what replica {source} sent, {dtype}{list(shape)}, got "
                f"{expected[1]}{list(expected[0])}. Try: like=us.zeros({shape}, dtype={dtype!r})."
            )
        return result

    def end(self) -> None:
        """Let messages under way arrive, and give the communicators back."""
        if self._ended:
            return
        super().end()
        everyone = (*self._groups.values(), self._world)
        if self.channel.verdict is not None or self._given_up or any(peers.asking for peers in everyone):
            _mpi.never_finalize(self)  # requests that will not end may still use their memory
            return
        for pending in self._under_way:
            pending.wait()
        for request, _ in self._sends:
            self._waiter.complete(request)
        for peers in everyone:
            peers.free()
        self._sends.clear()
        self._under_way.clear()
        self._groups.clear()

    # How they meet

    def _run(self, call: Callable[..., Any], *args: Any) -> None:
        self._waiter.complete(self._waiter.start(call, *args))

    def _meet(self, peers: _mpi.Peers, call: Any) -> None:
        self._last = peers
        if not peers.meet(_mpi.number_of(call)):
            raise self._mismatch()

    def _mismatch(self) -> Exception:
        said = ValueError("the replicas of the group are in different collectives, or with different arrays")
        return self.channel.explain(said, self._label())

    def _label(self) -> str:
        events = self.ring.events
        return f"{events[-1].op} at {events[-1].site}" if events else "mpi"

    def _peers(self, groups: Groups | None) -> _mpi.Peers:
        if self._ended:
            self.check_alive()
        if groups is None:
            return self._world
        group = self.group(groups)
        peers = self._groups.get(group)
        if peers is None:
            # Making a communicator cannot be interrupted: see first that all are there.
            self.channel.exchange(f"mpi/{'.'.join(map(str, group))}", None, group, self.timeout_s)
            world = self._world.comm
            comm = world.Create_group(world.Get_group().Incl(list(group)))
            peers = self._groups[group] = _mpi.Peers(self._mpi, comm, self._waiter)
        return peers


@final
class _Pending(Handle):
    """An all-reduce under way: the agreement on it, and the data."""

    def __init__(self, engine: MpiEngine, meeting: Any, request: Any, host: np.ndarray, result: np.ndarray) -> None:
        self._engine, self._meeting, self._request, self._result = engine, meeting, request, result
        self._host: Any = host

    def wait(self) -> Any:
        if self._host is not None:
            engine, (agreement, _, theirs) = self._engine, self._meeting
            engine._waiter.complete(agreement)
            if theirs[0] != -theirs[1]:
                engine._given_up.append(self)
                raise engine._mismatch()
            engine._waiter.complete(self._request)
            self._host = None
        return self._result

    def is_completed(self) -> bool:
        run = self._engine._waiter.start
        return bool(run(self._meeting[0].Test) and run(self._request.Test))


def _contiguous(x: Any) -> np.ndarray:
    """x as an array that MPI can send, not copied where it is one."""
    host = np.asarray(x, order="C")
    return host if host.dtype.isnative else host.astype(host.dtype.newbyteorder("="))


def _bytes(array: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8)


def _offsets(counts: list[int]) -> list[int]:
    found, total = [], 0
    for count in counts:
        found.append(total)
        total += count
    return found

"""MPI as the engine needs it: groups whose members agree on a call before they make it, and waits that can be ended.

A blocking MPI call cannot be interrupted, and calls that do not fit together hang, crash or return nonsense. So the
members of a group first reduce two numbers that stand for the call: a microsecond, after which all are known to be
there and to mean the same. All requests are non-blocking and tested in a loop, which hears of other replicas' ends.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any, final

import numpy as np

from unisync import _config
from unisync._events import now_ns
from unisync.backends._channel import EXIT_CODE, GRACE_S, Channel
from unisync.errors import StateError

SPINS = 20
"""How often a request is tested before the process begins to give way to others, whose answer it may wait for."""

YIELD_S = 0.002
"""How long it then only yields, which costs nothing where no one waits; after that it sleeps a part of the time that
it has waited."""

SLEEP_PART, MAX_SLEEP_S = 1 / 16, 0.001
LATE_S = 5.0
"""How long after the timeout the coordinator may take to say who is missing."""


@final
class Waiter:
    """Waits for MPI's requests, and hears of the other replicas meanwhile.

    Args:
        mpi: mpi4py's MPI.
        channel: has the verdict when the world cannot go on.
        timeout_s: how long a collective may wait.
        label: what the process does now, in words.
    """

    def __init__(self, mpi: Any, channel: Channel, timeout_s: float, label: Callable[[], str]) -> None:
        self._failure, self._channel, self._timeout_s, self._label = mpi.Exception, channel, timeout_s, label

    def start(self, call: Callable[..., Any], *args: Any) -> Any:
        """The request that a non-blocking call makes.

        Raises:
            CollectiveError: it failed.
        """
        try:
            return call(*args)
        except self._failure as error:
            raise self._channel.explain(error, self._label()) from error

    def complete(self, request: Any) -> None:
        """Wait until a request is done.

        Raises:
            CollectiveError: it failed, the world cannot go on, or the time is up.
        """
        test = request.Test
        try:
            for _ in range(SPINS):
                if test():
                    return
            self._patiently(test)
        except self._failure as error:
            raise self._channel.explain(error, self._label()) from error

    def _patiently(self, test: Callable[[], bool]) -> None:
        begin = time.monotonic()
        while not test():
            waited = time.monotonic() - begin
            if self._channel.verdict is not None:
                raise self._channel.explain(None, self._label())
            if waited > self._timeout_s + LATE_S:
                raise self._channel.explain(TimeoutError(f"no answer within {waited:.0f} s"), self._label())
            if waited < YIELD_S:
                os.sched_yield()
            else:
                time.sleep(min(MAX_SLEEP_S, waited * SLEEP_PART))


@final
class Peers:
    """The members of a group, with a communicator of their own.

    Args:
        mpi: mpi4py's MPI.
        comm: their communicator, which no one else uses; freed by `free`.
        waiter: how to wait.

    Attributes:
        comm, size: the communicator, and how many members it has.
        met_ns: when the member began to wait in the last `meet`, and when all were there.
        asking: whether it is between `ask` and the end of `agree`.
    """

    def __init__(self, mpi: Any, comm: Any, waiter: Waiter) -> None:
        self.comm, self.size = comm, comm.Get_size()
        self.met_ns: tuple[int, int] = 0, 0
        self.asking = False
        self._mpi, self._waiter = mpi, waiter
        mine, theirs = np.zeros(2, np.int64), np.zeros(2, np.int64)
        self._mine, self._theirs = mine.data, theirs.data
        self._persistent: Any = None
        with contextlib.suppress(NotImplementedError):  # MPI before 4.0
            self._persistent = comm.Allreduce_init(mine, theirs, mpi.MAX)
        self._asked = self._persistent
        self._buffers = mine, theirs

    def meet(self, call: int) -> bool:
        """Wait until all members have come; whether all make the same call."""
        self.ask(call)
        return self.agree()

    def ask(self, call: int) -> None:
        """Begin to `meet`; `agree` ends it."""
        self.met_ns = now_ns(), 0
        self._mine[0], self._mine[1] = call, -call
        self.asking = True
        if self._persistent is None:
            self._asked = self._waiter.start(self.comm.Iallreduce, *self._buffers, self._mpi.MAX)
        else:
            self._waiter.start(self._persistent.Start)

    def agree(self) -> bool:
        """Wait until all members have asked; whether all make the same call."""
        self._waiter.complete(self._asked)
        self.met_ns = self.met_ns[0], now_ns()
        self.asking = False
        return self._theirs[0] == -self._theirs[1]

    def meet_with(self, call: int, number: int) -> list[int] | None:
        """As `meet`, and every member's number; None if they do not make the same call."""
        begun = now_ns()
        mine, theirs = np.asarray([call, number], np.int64), np.empty((self.size, 2), np.int64)
        self._waiter.complete(self._waiter.start(self.comm.Iallgather, mine, theirs))
        self.met_ns = begun, now_ns()
        return theirs[:, 1].tolist() if bool((theirs[:, 0] == call).all()) else None

    def start_meeting(self, call: int) -> tuple[Any, np.ndarray, np.ndarray]:
        """`meet` without waiting: a request, and its two buffers, which must be kept: the
        second is then (n, -n) if all make the same call."""
        mine, theirs = np.asarray([call, -call], np.int64), np.empty(2, np.int64)
        return self._waiter.start(self.comm.Iallreduce, mine, theirs, self._mpi.MAX), mine, theirs

    def free(self) -> None:
        """Give the communicator back."""
        if self._persistent is not None:
            self._persistent.Free()
        self.comm.Free()


_numbers: dict[Any, int] = {}


def number_of(call: Any) -> int:
    """A number that stands for a call, the same in every process; `call` is hashable and has a faithful repr."""
    found = _numbers.get(call)
    if found is None:
        if len(_numbers) > 4096:
            _numbers.clear()
        digest = hashlib.blake2b(repr(call).encode(), digest_size=8).digest()
        found = _numbers[call] = int.from_bytes(digest, "big") >> 2
    return found


def world_of(mpi: Any, rank: int, size: int) -> Any:
    """A communicator of our own of all ranks, in the world's order.

    Raises:
        StateError: MPI does not know of the others.
    """
    known = mpi.COMM_WORLD.Get_size()
    if known != size:
        forget_shared_memory(mpi.COMM_WORLD)
        library = mpi.Get_library_version().splitlines()[0].strip("\0 ")
        raise StateError(
            f"MPI must have been started with the world's {size} processes, but {library} knows of {known}. "
            "Try: unisync run --backend numpy --replicas N script.py, or the mpiexec that belongs to that library; or "
            "UNISYNC_BACKEND or us.set_backend, if another backend than NumPy was meant."
        )
    return mpi.COMM_WORLD.Split(0, rank)


# Floating-point maximum and minimum: MPI's own lose NaN, on some ranks and not on others.
_own_ops: dict[tuple[str, str], Any] = {}


def op_of(mpi: Any, op: str, dtype: np.dtype) -> Any:
    """MPI's operation for a dtype."""
    if op not in ("max", "min") or dtype.kind != "f":
        return {"sum": mpi.SUM, "mean": mpi.SUM, "prod": mpi.PROD, "max": mpi.MAX, "min": mpi.MIN}[op]
    key = op, dtype.char
    if key not in _own_ops:
        ufunc: Any = np.maximum if op == "max" else np.minimum

        def reduce(a: Any, b: Any, datatype: Any) -> None:
            total = np.frombuffer(b, dtype)
            ufunc(np.frombuffer(a, dtype), total, out=total)

        _own_ops[key] = mpi.Op.Create(reduce, commute=True)
    return _own_ops[key]


_leaving = False
_unfinished: list[Any] = []


def forget_shared_memory(comm: Any) -> None:
    """Unlink the files of MPICH's shared memory, which every process has mapped by now and killed ones would leave."""
    comm.Barrier()
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8") as maps:
        for path in {line.split()[-1] for line in maps if "/dev/shm/mpich_shm_" in line}:
            with contextlib.suppress(OSError):  # another rank of this machine was first
                os.unlink(path)


def never_finalize(kept: Any) -> None:
    """Leave MPI as it is at exit, and keep what has memory that it may still use."""
    _unfinished.append(kept)


def leave_at_exit(mpi: Any, channel: Channel) -> None:
    """When this process ends well, end MPI once all others do; when it or another one fails, leave MPI as it is.

    MPI_Finalize waits for all ranks, and for ever if one has died.
    """
    global _leaving
    if _leaving:
        return
    _leaving = True
    comm, pid = mpi.COMM_WORLD.Dup(), os.getpid()

    def leave() -> None:
        if os.getpid() != pid:  # a child made by os.fork; its MPI is its parent's
            return
        failed = channel.verdict is not None or getattr(sys, "last_value", None) is not None
        if failed or _unfinished or mpi.Is_finalized():
            return
        channel.bye()
        begin = time.monotonic()
        all_done = comm.Ibarrier()
        while not all_done.Test():
            if channel.verdict is not None:
                if not _config.variable("UNISYNC_RANK"):  # mpiexec would end the others now, and call that a success
                    time.sleep(GRACE_S)
                    mpi.COMM_WORLD.Abort(EXIT_CODE)
                return
            time.sleep(min(0.01, (time.monotonic() - begin) * SLEEP_PART))
        mpi.Finalize()

    atexit.register(leave)

"""The thread engine: replicas are threads that share memory. NumPy does the adding, for torch on its own memory too."""

from __future__ import annotations

import contextvars
import copy
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from unisync import _context, _dispatch, tree as _tree
from unisync._context import Scope
from unisync._events import Ring, now_ns
from unisync._per_replica import PerReplica
from unisync._types import Tree
from unisync.backends._collectives import checked_result, noted
from unisync.backends._derivatives import DifferentiableEngine
from unisync.backends._engine import Groups, Handle, ReduceOp
from unisync.backends._memory import Pool
from unisync.backends._reduction import reduction, sum_of_slices
from unisync.backends._rendezvous import SMALL_BYTES, Bring, Meeting, Run, Work, told
from unisync.backends._workers import Worker, cores, stop
from unisync.errors import CollectiveMismatchError, StateError, TraceError, unknown

GRACE_S = 5.0
"""How long the caller waits for the other replicas after one has failed; then they are left behind."""


class ThreadEngine(DifferentiableEngine):
    """Replicas as threads of this process; a world of one runs in the calling thread."""

    name = "threads"
    uneven = True
    separate = True

    def __init__(self, backend: Any, devices: Sequence[Any], timeout_s: float) -> None:
        self.backend = backend
        self.devices = tuple(devices)
        self.size = len(devices)
        self.timeout_s = timeout_s
        self.rings = [Ring() for _ in devices]
        self._pool = Pool()
        self._workers: list[Worker] = []
        self._local = threading.local()  # .run: the run that the thread belongs to
        self._run: Run | None = None
        self._busy = threading.Lock()
        self._restore: Callable[[], None] | None = None
        self._ended = False
        self._stop = weakref.finalize(self, stop, self._workers)
        self._stop.atexit = False  # they are daemons

    # What a backend adds

    @abstractmethod
    def to_host(self, x: Any) -> np.ndarray:
        """The numbers of x, not copied where that can be, in a dtype that NumPy has."""

    @abstractmethod
    def from_host(self, array: np.ndarray, like: Any) -> Any:
        """A native array of the dtype and on the device of `like`, from what `to_host` would have given."""

    @abstractmethod
    def limit_threads(self, count: int) -> Callable[[], None]:
        """Let mathematics in each replica use `count` threads; returns how to undo it."""

    def thread_state(self) -> Callable[[], Any]:
        """Settings of the calling thread that its replicas take over: a function that makes a context manager."""
        return _nothing

    # Running and moving

    def spmd(self, fn: Callable[..., Tree]) -> Callable[..., PerReplica]:
        def run(*args: Any, **kwargs: Any) -> PerReplica:
            if self._ended or _context.scope() is not None:
                self._refuse_run()
            if self.size == 1:
                return PerReplica([self._alone(fn, args, kwargs)])
            return PerReplica(self._together(fn, args, kwargs))

        return run

    def _refuse_run(self) -> None:
        if self._ended:
            raise StateError(
                "a function of us.spmd must run in the world it was made in, got one that has ended. "
                "Try: us.init_distributed and us.spmd again."
            )
        raise StateError("a world must be used outside replicas, got a call inside us.spmd. Try: call it outside.")

    def _alone(self, fn: Callable[..., Tree], args: Any, kwargs: Any) -> Tree:
        args, kwargs = _of(0, args, kwargs)
        with _dispatch.backend(self.backend.NAME), _context.inside(Scope(self, 0, self.rings[0])):
            return checked_result(fn(*args, **kwargs))

    def _together(self, fn: Callable[..., Tree], args: Any, kwargs: Any) -> list[Tree]:
        if not self._busy.acquire(blocking=False):
            raise StateError("a world runs one us.spmd call at a time, got a second one. Try: wait for the first.")
        try:
            self._start()
            run = self._run = Run(self.rings, self.timeout_s, self._where)
            state = self.thread_state()
            number = max(ring.sequence for ring in self.rings)  # they differ after a failure
            for ring in self.rings:
                ring.sequence = number
            for rank, worker in enumerate(self._workers):
                context = contextvars.copy_context()
                worker.give(
                    lambda rank=rank, context=context: context.run(self._replica, run, rank, state, fn, args, kwargs)
                )
            self._join(run)
            results, run.results = run.results, []
            return results
        finally:
            self._busy.release()

    def _replica(self, run: Run, rank: int, state: Any, fn: Callable[..., Tree], args: Any, kwargs: Any) -> None:
        self._local.run = run
        result, error = None, None
        try:
            args, kwargs = _of(rank, args, kwargs)
            with state(), _dispatch.backend(self.backend.NAME), _context.inside(Scope(self, rank, self.rings[rank])):
                result = checked_result(fn(*args, **kwargs))
        except BaseException as raised:
            error = raised
        run.finish(rank, result, error)

    def _join(self, run: Run) -> None:
        try:
            run.join(GRACE_S)
        except BaseException as interruption:  # Ctrl-C: the replicas leave at their next collective
            run.cancel(interruption)
            try:
                run.join(GRACE_S)
            finally:
                self._leave_behind(run, interruption)
            raise
        error = run.error
        if error is not None:
            self._leave_behind(run, error)
            try:
                raise error
            finally:
                run.error = error = None  # they would keep each other alive

    def _leave_behind(self, run: Run, error: BaseException) -> None:
        """Replace the threads that still run the function; they fail at their next collective."""
        for rank, done in enumerate(run.finished):
            if not done:
                error.add_note(f"replica {rank} still runs, at {self._where(rank)}, and is left behind")
                self._workers[rank].stop()
                self._workers[rank] = Worker(rank)
                self.rings[rank] = Ring()

    def _start(self) -> None:
        if not self._workers:
            if self._restore is None:
                self._restore = self.limit_threads(max(1, cores() // self.size))
            self._workers.extend(Worker(rank) for rank in range(self.size))

    def _where(self, rank: int) -> str:
        """The line of the user's code that a replica is at."""
        return self._workers[rank].where() if rank < len(self._workers) else "?"

    def place(self, trees: Sequence[Tree]) -> PerReplica:
        def moved(leaf: Any, device: Any) -> Any:
            return self.backend.to_device(self.backend.asarray(leaf), device)

        return PerReplica([_map(moved, t, device) for t, device in zip(trees, self.devices, strict=True)])

    def replicate(self, tree: Tree) -> PerReplica:
        def copied(leaf: Any, device: Any) -> Any:
            return self.backend.asarray(leaf, device=device, copy=True)

        return PerReplica([_map(copied, tree, device) for device in self.devices])

    def end(self) -> None:
        self._ended = True
        self._stop()
        self._pool.clear()
        if self._restore is not None:
            self._restore()
            self._restore = None

    # Collectives

    def plain_reduce(self, x: Any, op: str, groups: Groups | None) -> Any:
        host = np.asarray(self.to_host(x), order="C")
        flat = host.reshape(-1)
        small = flat.nbytes * self._members(groups) <= SMALL_BYTES
        result = self._meet(x, (op, host.shape), groups, [flat], small, lambda v: reduction(v, [op], self._pool))
        return self.from_host(result[0].reshape(host.shape), x)

    def all_reduce_separate(self, xs: Sequence[Any], ops: Sequence[str], groups: Groups | None) -> list[Any]:
        hosts = [np.asarray(self.to_host(x), order="C") for x in xs]
        flats = [host.reshape(-1) for host in hosts]
        small = sum(flat.nbytes for flat in flats) * self._members(groups) <= SMALL_BYTES
        call = [(op, host.shape, host.dtype) for op, host in zip(ops, hosts, strict=True)]
        results = self._meet(None, call, groups, flats, small, lambda v: reduction(v, ops, self._pool))
        return [self.from_host(r.reshape(h.shape), x) for r, h, x in zip(results, hosts, xs, strict=True)]

    def start_all_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Handle:
        def forward(y: Any) -> Any:
            return _Pending(self, y, op, groups)

        if self.traced(x):
            raise TraceError(
                "`async_op` must be False where a gradient is being taken, got True. Try: us.all_reduce(x) without it."
            )
        return forward(x)

    def plain_gather(self, x: Any, groups: Groups | None) -> Any:
        return self._exchange(x, ("all_gather", tuple(x.shape[1:])), groups, lambda xs, _: np.concatenate(xs))

    def plain_reduce_scatter(self, x: Any, groups: Groups | None) -> Any:
        return self._exchange(x, ("reduce_scatter", tuple(x.shape)), groups, sum_of_slices)

    def plain_broadcast(self, x: Any, root: int, groups: Groups | None) -> Any:
        return self._exchange(x, ("broadcast", root, tuple(x.shape)), groups, lambda xs, _: xs[root].copy())

    def plain_all_to_all(self, x: Any, groups: Groups | None) -> Any:
        def cut(xs: list[np.ndarray], i: int) -> np.ndarray:
            n = xs[0].shape[0] // len(xs)
            return np.concatenate([a[i * n : (i + 1) * n] for a in xs])

        return self._exchange(x, ("all_to_all", tuple(x.shape)), groups, cut)

    def plain_permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        sources = {target: source for source, target in pairs}

        def take(xs: list[np.ndarray], i: int) -> np.ndarray:
            return xs[sources[i]].copy() if i in sources else np.zeros_like(xs[i])

        return self._exchange(x, ("permute", tuple(pairs), tuple(x.shape)), None, take)

    def lengths(self, own: int, groups: Groups | None) -> list[int]:
        return self._meet(None, "lengths", groups, own, True, lambda ns: Work([ns] * len(ns)))

    def send(self, x: Any, to: int) -> None:
        def forward(y: Any) -> Any:
            self._current.post(self._rank, to, (self.to_host(y).copy(), str(self.backend.dtype_of(y))))
            return y

        self.differentiable(x, forward, None)

    def recv(self, like: Any, source: int) -> Any:
        array, dtype = self._current.receive(source, self._rank)
        expected = tuple(like.shape), str(self.backend.dtype_of(like))
        if (array.shape, dtype) != expected:
            raise CollectiveMismatchError(
                f"`like` must have the shape and dtype of what replica {source} sent, {dtype}{list(array.shape)}, got "
                f"{expected[1]}{list(expected[0])}. Try: like=us.zeros({array.shape}, dtype={dtype!r})."
            )
        return self.from_host(array, like)

    def barrier(self) -> None:
        self._meet(None, "barrier", None, None, True, Work)

    def replica_index(self) -> int:
        return self._rank

    def all_gather_object(self, value: Any, groups: Groups | None) -> list[Any]:
        def work(values: list[Any]) -> Work:
            return Work([_own(values, i) for i in range(len(values))])

        return self._meet(None, "all_gather_object", groups, value, True, work)

    def broadcast_object(self, value: Any, root: int, groups: Groups | None) -> Any:
        def work(values: list[Any]) -> Work:
            return Work([values[root] if i == root else copy.deepcopy(values[root]) for i in range(len(values))])

        return self._meet(None, ("broadcast_object", root), groups, value, True, work)

    def same_shapes(self, shapes: Sequence[tuple[int, ...]], groups: Groups | None) -> bool:
        gathered = noted(self._scope, "all_gather(shapes)", None, lambda: self.all_gather_object(shapes, groups))
        return all(other == shapes for other in gathered)

    def waited(self) -> tuple[int | None, int | None]:
        return self._current.waits[self._rank]

    def report(self) -> str:
        run = self._run
        lines = [f"unisync: {self.size} replicas of {self.backend.NAME} in threads"]
        for rank, ring in enumerate(self.rings):
            lines.append(run.describe(rank) if run is not None else f"replica {rank} has not run yet")
            for event in list(ring.events)[-4:]:
                state = (
                    "not finished"
                    if event.done_ns is None
                    else f"took {(event.done_ns - event.arrival_ns) / 1e6:.3f} ms"
                )
                ago_s = (now_ns() - event.arrival_ns) / 1e9
                lines.append(f"  {told(event)}: begun {ago_s:.1f} s ago, {state}")
        return "\n".join(lines)

    # How they meet

    @property
    def _current(self) -> Run:
        return self._local.run

    @property
    def _scope(self) -> Scope:
        scope = _context.scope()
        assert scope is not None
        return scope

    @property
    def _rank(self) -> int:
        return self._scope.index

    def _members(self, groups: Groups | None) -> int:
        return self.size if groups is None else len(groups[0])

    def _meet(self, x: Any, call: Any, groups: Any, value: Any, small: bool, work: Callable[[list[Any]], Work]) -> Any:
        """The replica's result of a meeting with its group."""
        run, rank = self._local.run, self._rank
        return run.settle(rank, run.enter(rank, self._bring(x, call, groups, value, small, work)))

    def _bring(
        self, x: Any, call: Any, groups: Any, value: Any, small: bool, work: Callable[[list[Any]], Work]
    ) -> Bring:
        noted_last = self._scope.ring.events[-1]  # has the dtype that x had before it was widened
        dtype = None if x is None else self.backend.dtype_of(x)
        return Bring((call, dtype, noted_last.op, noted_last.dtype), groups, value, small, work)

    def _exchange(
        self, x: Any, call: Any, groups: Groups | None, part: Callable[[list[np.ndarray], int], np.ndarray]
    ) -> Any:
        """A meeting in which member i gets part(all arrays, i), which must be new memory."""
        host = self.to_host(x)

        def work(values: list[np.ndarray]) -> Work:
            results: list[Any] = [None] * len(values)

            def do(i: int) -> None:
                results[i] = part(values, i)

            return Work(results, len(values), do)

        small = host.nbytes * self._members(groups) <= SMALL_BYTES
        return self.from_host(self._meet(x, call, groups, host, small, work), x)


def check_name(name: str | None) -> None:
    """Check the name of an engine, where there is only this one."""
    if name not in (None, ThreadEngine.name):
        raise unknown("engine", name, (ThreadEngine.name,))


@final
class _Pending(Handle):
    """An all-reduce on its way: whoever comes last adds up, for all."""

    def __init__(self, engine: ThreadEngine, x: Any, op: str, groups: Groups | None) -> None:
        self._engine, self._x = engine, x
        self._run, self._rank = engine._current, engine._rank
        host = np.asarray(engine.to_host(x), order="C")
        self._shape = host.shape
        value = [host.reshape(-1)]
        bring = engine._bring(
            x, (op, host.shape), groups, value, True, lambda values: reduction(values, [op], engine._pool)
        )
        self._meeting: Meeting | None = self._run.enter(self._rank, bring)
        self._result: Any = None

    def wait(self) -> Any:
        if self._meeting is not None:
            array = self._run.settle(self._rank, self._meeting)
            self._result = self._engine.from_host(array[0].reshape(self._shape), self._x)
            self._meeting = None
        return self._result

    def is_completed(self) -> bool:
        return self._meeting is None or self._meeting.state == 2


def _of(rank: int, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """A replica's own arguments."""
    own = [a[rank] if type(a) is PerReplica else a for a in args]
    return own, {k: a[rank] if type(a) is PerReplica else a for k, a in kwargs.items()}


def _map(function: Callable[[Any, Any], Any], tree: Tree, device: Any) -> Tree:
    return _tree.map(lambda leaf: function(leaf, device), tree)


def _own(values: list[Any], i: int) -> list[Any]:
    """The objects of all for member i: copies of those of the others."""
    return [value if i == j else copy.deepcopy(value) for j, value in enumerate(values)]


class _Nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...


def _nothing() -> _Nothing:
    return _Nothing()

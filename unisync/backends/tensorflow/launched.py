"""The engine "multi_worker": each process is a replica, and a worker of a TensorFlow cluster.

A tf.distribute.MultiWorkerMirroredStrategy owns the cluster. A function is traced into one tf.function with raw
collective ops, and run by the shortest way into the runtime; a collective outside such a function runs its op at once.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, final

import tensorflow as tf

from unisync import _context, _dispatch, tree as _tree
from unisync._context import Scope
from unisync._events import Event, Ring
from unisync._per_replica import PerReplica
from unisync._types import Tree
from unisync.backends._collectives import noted
from unisync.backends._derivatives import DifferentiableEngine
from unisync.backends._engine import Groups
from unisync.backends._launched import LaunchedEngine, Member
from unisync.backends.tensorflow import _cluster, _fast
from unisync.backends.tensorflow._raw import Wire
from unisync.backends.tensorflow._replicas import Program, Spmd, form_of
from unisync.backends.tensorflow.engines import moved
from unisync.errors import ArgumentError, CollectiveError, StateError, TraceError, unknown

ENGINES = ("multi_worker",)


def make_engine(name: str | None, member: Member, device: Any, timeout_s: float) -> LaunchedEngine:
    """The engine of a launched world.

    Args:
        name: "multi_worker", or None.
        member: this process's place.
        device: "cpu", "gpu" ("cuda"), or None for an accelerator where there is one.
        timeout_s: how long a collective may wait for the others.

    Raises:
        UnknownNameError: there is no such engine or kind of device.
        StateError: TensorFlow has started already, or there are fewer accelerators than processes.
    """
    if name not in (None, *ENGINES):
        raise unknown("engine", name, ENGINES)
    return MultiWorker(_cluster.strategy(member, device, timeout_s), member, timeout_s)


@final
class MultiWorker(LaunchedEngine, DifferentiableEngine):
    """This process as a worker of a MultiWorkerMirroredStrategy.

    Attributes:
        strategy: the tf.distribute.MultiWorkerMirroredStrategy, for code of the user's own.
    """

    name = "multi_worker"
    uneven = True

    def __init__(self, strategy: tf.distribute.MultiWorkerMirroredStrategy, member: Member, timeout_s: float) -> None:
        self.strategy = strategy
        [device] = strategy.extended.worker_devices
        super().__init__(_dispatch.load("tensorflow"), member, device, timeout_s)
        self.one_device = "CPU" in device
        self.step = 0  # of programs with collectives
        self._wire = Wire(device, self.rank, self.channel.generation)
        self._explained = _Explained(self.channel)
        self._functions: list[Spmd] = []
        self._told: dict[Program, tuple[str, list[str]] | None] = {}

    # Running and moving.

    def spmd(self, fn: Callable[..., Tree]) -> Callable[..., PerReplica]:
        function = Spmd(self, fn)
        self._functions.append(function)
        return functools.update_wrapper(lambda *args, **kwargs: function(args, kwargs), fn)

    def round(self) -> _Round:
        """The replica of this process while a program is traced."""
        return _Round(self._wire)

    def run(self, name: str, program: Program, tensors: list[Any]) -> PerReplica:
        """One step of a program, of which the others are told what it waits for."""
        if program not in self._told:
            self._told[program] = _told(name, program.events()[0])
        told = self._told[program]
        if told is None:
            return program(tensors)
        channel = self.channel
        channel.step(self.step, *told)
        channel.waiting("")
        self.step += 1
        try:
            with self._explained:
                result = program(tensors)
        except CollectiveError:
            raise
        except BaseException:  # what the function itself raised: nothing is waited for any more
            channel.stepped()
            raise
        channel.stepped()
        return result

    def place(self, trees: Sequence[Tree]) -> PerReplica:
        self.check_alive()
        if len(trees) != 1:
            raise ArgumentError(f"`trees` must be this process's one, got {len(trees)}. Try: world.scatter.")
        [device] = self.devices
        with tf.device(device):
            own = _tree.map(lambda leaf: moved(leaf, device), trees[0])
        return form_of([own]).per_replica()

    def replicate(self, tree: Tree) -> PerReplica:
        return self.place([tree])  # tensors do not change, so it may be the caller's own

    def end(self) -> None:
        super().end()
        for function in self._functions:
            function.programs.clear()
        self._functions.clear()
        self._told.clear()

    # Collectives of one array: in a program that is being traced, or at once.

    def traced(self, x: Any) -> bool:
        return _fast.taped() and _fast.recorded((x,))

    def differentiable(self, x: Any, forward: Callable[[Any], Any], backward: Callable[[Any], Any] | None) -> Any:
        x = tf.convert_to_tensor(x)
        if not self.traced(x) or not (x.dtype.is_floating or x.dtype.is_complex):
            return forward(x)
        back = _refuse_gradient if backward is None else backward
        if _fast.record_operation is None or _fast.stop_recording is None:
            return tf.custom_gradient(lambda y: (forward(y), back))(x)
        with _fast.stop_recording():
            result = forward(x)
        _fast.record_operation("collective", [result], [x], lambda g: [back(tf.convert_to_tensor(g))])
        return result

    def plain_reduce(self, x: Any, op: str, groups: Groups | None) -> Any:
        group = self._group("all_reduce", groups)
        with self._explained:
            return self._wire.reduce(x, op, group)

    def plain_gather(self, x: Any, groups: Groups | None) -> Any:
        group = self._group("all_gather", groups)
        if not tf.executing_eagerly():
            self.lengths(x.shape[0], groups)
            return self._wire.gather(x, group)
        with self._explained:
            try:
                return self._wire.gather_at_once(x, group)
            except ValueError as error:  # the coordinator sees it too, and knows the lines
                raise self.channel.explain(error, "all_gather") from error

    def plain_reduce_scatter(self, x: Any, groups: Groups | None) -> Any:
        group = self._group("reduce_scatter", groups)
        with self._explained:
            return self._wire.reduce_scatter(x, group)

    def plain_broadcast(self, x: Any, root: int, groups: Groups | None) -> Any:
        group = self._group("broadcast", groups)
        with self._explained:
            return self._wire.broadcast(x, root, group)

    def plain_all_to_all(self, x: Any, groups: Groups | None) -> Any:
        group = self._group("all_to_all", groups)
        with self._explained:
            slices = tf.reshape(x, [len(group), x.shape[0] // len(group), *x.shape[1:]])
            return tf.reshape(self._wire.all_to_all(slices, group), x.shape)

    def plain_permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        group = self._group("permute", None)
        with self._explained:
            return self._wire.permute(x, pairs, group)

    def barrier(self) -> None:
        group = self._group("barrier", None)
        with self._explained:
            self._wire.gather(tf.zeros([1], tf.int32), group, "barrier")

    def lengths(self, own: int, groups: Groups | None) -> list[int]:
        group = self._group("all_gather", groups)
        if tf.executing_eagerly():
            with self._explained:
                return self._wire.gather(tf.constant([own], tf.int64), group, "lengths").numpy().tolist()
        # A program is compiled for arrays of one shape; those of the others must be alike, as in every shared program.
        if own is None:
            raise TraceError(
                "`x` must have a first axis of known length where us.all_gather is traced, got an unknown one. "
                "Try: call it outside us.spmd."
            )
        return [own] * len(group)

    def same_shapes(self, shapes: Sequence[tuple[int, ...]], groups: Groups | None) -> bool:
        if not tf.executing_eagerly():
            return True
        digest = int.from_bytes(hashlib.blake2b(repr(list(shapes)).encode(), digest_size=7).digest(), "little")
        of = tf.constant([digest], tf.int64)
        found = noted(self.scope, "all_gather(shapes)", of, lambda: self.plain_gather(of, groups)).numpy()
        return bool((found == digest).all())

    def all_gather_object(self, value: Any, groups: Groups | None) -> list[Any]:
        self._check_untraced("all_gather_object")
        return super().all_gather_object(value, groups)

    def broadcast_object(self, value: Any, root: int, groups: Groups | None) -> Any:
        self._check_untraced("broadcast_object")
        return super().broadcast_object(value, root, groups)

    def _check_untraced(self, op: str) -> None:
        if not tf.executing_eagerly():
            raise TraceError(
                f"us.{op} must be called where code runs as it is, got it in a function that engine {self.name!r} "
                "compiles: it would run once, while it is traced. Try: call it outside us.spmd."
            )

    def _group(self, op: str, groups: Groups | None) -> tuple[int, ...]:
        self.check_alive()
        if _context.scope() is None and not tf.executing_eagerly():
            raise TraceError(
                f"us.{op} must be called at once or in a function of us.spmd, got a call in a function compiled by "
                "us.jit or tf.function, of whose calls the other processes hear nothing. Try: us.spmd(fn)."
            )
        return self.group(groups)


@final
class _Round:
    """The replica of this process, for one trace."""

    def __init__(self, wire: Wire) -> None:
        self.rings = [Ring()]
        self._wire = wire

    def run(self, engine: MultiWorker, replica: Callable[[int], None]) -> None:
        scope = Scope(engine, engine.rank, self.rings[0])
        with _dispatch.backend("tensorflow"), _context.inside(scope), self._wire.program():
            replica(0)


def _told(name: str, events: Sequence[Event]) -> tuple[str, list[str]] | None:
    """What must be the same on all processes, and the collectives with their lines; None if there are none."""
    if not events:
        return None
    calls = [f"{e.op} of {e.dtype}{list(e.shape)}" for e in events]
    digest = hashlib.blake2b("; ".join(calls).encode(), digest_size=4).hexdigest()
    shown = calls if len(calls) <= _SHOWN else [*calls[:_SHOWN], f"{len(calls) - _SHOWN} more"]
    sites = [f"{call} at {e.site}" for call, e in zip(calls, events, strict=True)]
    return f"{name} [{'; '.join(shown)}; {digest}]", sites


_SHOWN = 8


@final
class _Explained:
    """Turns what TensorFlow raises when a collective fails into an error that names the replica, the call and its line.

    Used by `with` around each collective; one object for all, as it holds nothing.
    """

    __slots__ = ("_channel",)

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, tf.errors.OpError) and (self._channel.verdict is not None or _of_collective(error)):
            raise self._channel.explain(error, "a collective") from error


def _of_collective(error: tf.errors.OpError) -> bool:
    return isinstance(error, _BROKEN) or "ollective" in str(error)


_BROKEN = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


def _refuse_gradient(_: Any) -> Any:
    raise StateError(
        "`op` must be 'sum' or 'mean' where us.grad goes through us.all_reduce, got another. "
        "Try: us.all_reduce(us.stop_gradient(x), ...)."
    )

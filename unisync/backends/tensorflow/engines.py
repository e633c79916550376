"""The engine "mirrored": the replicas of one process on logical or real devices, as one TensorFlow program.

A tf.distribute.MirroredStrategy owns the devices. A function is traced once per replica under `strategy.run`, all
replicas into one tf.function over a flat list of tensors, and run by the shortest way into the runtime: `strategy.run`
itself handles its arguments in Python on every call (a small step then takes five times as long).
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import tensorflow as tf

from unisync import _dispatch, tree as _tree
from unisync._events import Event
from unisync._per_replica import PerReplica
from unisync._types import Tree
from unisync.backends._engine import Engine, Groups, ReduceOp
from unisync.backends.tensorflow import _device, _fast
from unisync.backends.tensorflow._meeting import Meeting, Round
from unisync.backends.tensorflow._replicas import Program, Spmd, form_of
from unisync.backends.tensorflow.creation import asarray
from unisync.errors import ArgumentError, StateError, TraceError, unknown

RESERVED = 4
"""Logical CPU devices made for the first world of several replicas: a later one may have more."""


def make_engine(name: str | None, replicas: int | None, device: Any, timeout_s: float) -> Engine:
    """The engine of a new world.

    Args:
        name: "mirrored", or None.
        replicas: how many; None for one per accelerator, on a CPU one.
        device: "cpu", "gpu" ("cuda"), or None for accelerators where there are some.
        timeout_s: not needed: the replicas share one program, in which none can be late for ever.

    Raises:
        UnknownNameError: there is no such engine or kind of device.
        StateError: TensorFlow runs already, with too few devices.
    """
    if name not in (None, "mirrored"):
        raise unknown("engine", name, ("mirrored",))
    if replicas is not None and replicas < 1:
        raise ArgumentError(f"`replicas` must be 1 or more, got {replicas}. Try: replicas=2.")
    return Mirrored(_devices(replicas, _kind(device)), timeout_s)


def _kind(device: Any) -> str:
    if device is None:
        return "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    kinds = {"cpu": "CPU", "gpu": "GPU", "cuda": "GPU"}
    if str(device).lower() not in kinds:
        raise unknown("device", device, kinds)
    return kinds[str(device).lower()]


def _devices(replicas: int | None, kind: str) -> tuple[str, ...]:
    if kind == "CPU":
        replicas = replicas or 1
        if replicas > 1:
            _device.reserve(max(RESERVED, replicas))
    found = [d.name for d in tf.config.list_logical_devices(kind)]
    replicas = replicas or len(found)
    if not replicas or len(found) < replicas:
        cure = (
            f"us.init_distributed(replicas={replicas}) before the first array, or UNISYNC_TF_DEVICES={replicas} in the "
            "environment"
            if kind == "CPU"
            else 'device="cpu"'
        )
        raise StateError(
            f"`replicas` must be at most the {len(found)} {kind} devices of the running TensorFlow, got {replicas}; "
            f"their number is settled when it makes its first tensor. Try: {cure}."
        )
    return tuple(found[:replicas])


@functools.cache
def _strategy(devices: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    # One for all worlds of the same devices: a strategy takes 3 ms to make.

    class Strategy(tf.distribute.MirroredStrategy):
        # Strategies of one process number their collective groups from the same key, and TensorFlow refuses a key that
        # comes back with another size. The attribute is private and meant for tests; where it is gone, nothing changes.
        _collective_key_base = next(_key_bases)

    return Strategy(list(devices))


_key_bases = itertools.count(1000, 1000)


class Mirrored(Engine):
    """Replicas as one program over the devices of a MirroredStrategy.

    Attributes:
        strategy: the tf.distribute.MirroredStrategy, for code of the user's own.
    """

    name = "mirrored"
    uneven = True
    separate = True
    one_device = False  # whether all that the process runs is on one device

    def __init__(self, devices: tuple[str, ...], timeout_s: float) -> None:
        self.backend = _dispatch.load("tensorflow")
        self.size = len(devices)
        self.timeout_s = timeout_s
        self.strategy = _strategy(devices)
        self.devices = tuple(self.strategy.extended.worker_devices)
        self.meeting = threading.local()  # .current: the Meeting of the replica that this thread traces
        self.step = 0
        self.last: tuple[str, Program] | None = None
        self._functions: list[Spmd] = []
        self._ended = False

    # Running and moving.

    def spmd(self, fn: Callable[..., Tree]) -> Callable[..., PerReplica]:
        function = Spmd(self, fn)
        self._functions.append(function)
        return functools.update_wrapper(lambda *args, **kwargs: function(args, kwargs), fn)

    def check_alive(self) -> None:
        """Raises StateError after `end`."""
        if self._ended:
            raise StateError(
                "the world must be running, got a call after its end. Try: us.init_distributed(...) again."
            )

    def round(self) -> Round:
        """Where the replicas meet while a program is traced."""
        return Round(self.strategy, self.devices)

    def run(self, name: str, program: Program, tensors: list[Any]) -> PerReplica:
        """One step of a program."""
        self.step += 1
        self.last = name, program
        return program(tensors)

    def place(self, trees: Sequence[Tree]) -> PerReplica:
        self.check_alive()
        if len(trees) != self.size:
            raise ArgumentError(f"`trees` must be one per replica, {self.size}, got {len(trees)}. Try: world.scatter.")
        return form_of(
            [self._moved(each, device) for each, device in zip(trees, self.devices, strict=True)]
        ).per_replica()

    def _moved(self, each: Tree, device: str) -> Tree:
        with tf.device(device):
            return _tree.map(lambda leaf: moved(leaf, device), each)

    def replicate(self, tree: Tree) -> PerReplica:
        first = self._moved(tree, self.devices[0])  # from the host once
        return self.place([first] * self.size)

    def end(self) -> None:
        self._ended = True
        for function in self._functions:
            function.programs.clear()
        self._functions.clear()
        self.last = None

    # Collectives of one array, called inside a replica.

    def all_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Any:
        return self._meeting("all_reduce").all_reduce(x, op, groups)

    def all_reduce_mean(self, x: Any, groups: Groups | None) -> Any:
        return self._meeting("all_reduce").all_reduce(x, "mean", groups)

    def all_gather(self, x: Any, groups: Groups | None) -> Any:
        return self._meeting("all_gather").all_gather(x, groups)

    def reduce_scatter(self, x: Any, groups: Groups | None) -> Any:
        return self._meeting("reduce_scatter").reduce_scatter(x, groups)

    def broadcast(self, x: Any, root: int, groups: Groups | None) -> Any:
        return self._meeting("broadcast").broadcast(x, root, groups)

    def all_to_all(self, x: Any, groups: Groups | None) -> Any:
        return self._meeting("all_to_all").all_to_all(x, groups)

    def permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        return self._meeting("permute").permute(x, tuple((source, target) for source, target in pairs))

    def barrier(self) -> None:
        self._meeting("barrier").barrier()

    def same_shapes(self, shapes: Sequence[tuple[int, ...]], groups: Groups | None) -> bool:
        return self._meeting("all_gather").all_agree(list(shapes), groups)

    def all_reduce_separate(self, xs: Sequence[Any], ops: Sequence[str], groups: Groups | None) -> list[Any]:
        meeting = self._meeting("all_reduce")
        return [meeting.all_reduce(x, op, groups) for x, op in zip(xs, ops, strict=True)]

    def replica_index(self) -> int:
        return self._meeting("replica_index").index

    def all_gather_object(self, value: Any, groups: Groups | None) -> list[Any]:
        _refuse("all_gather_object")

    def broadcast_object(self, value: Any, root: int, groups: Groups | None) -> Any:
        _refuse("broadcast_object")

    def _meeting(self, op: str) -> Meeting:
        found = getattr(self.meeting, "current", None)
        if found is None:
            raise StateError(
                f"us.{op} must be called by a replica in the thread that traces it, got a call from elsewhere. "
                "Try: call it in the function given to us.spmd."
            )
        return found

    def report(self) -> str:
        if self.last is None:
            return f"{self.size} replicas in one program; no step has run."
        name, program = self.last
        lines = [
            f"{self.size} replicas in one program; step {self.step} was {name}, with these collectives when traced:"
        ]
        for replica, events in enumerate(program.events()):
            lines += [f"  replica {replica}: {_described(event)}" for event in events] or [f"  replica {replica}: none"]
        return "\n".join(lines)


def moved(leaf: Any, device: str) -> Any:
    """An array on a device; what is none stays what it is."""
    if not _dispatch.is_array(leaf):
        return leaf  # Python numbers and constants stay what they are
    array = asarray(leaf)
    return array if type(array) is _fast.EagerTensor and array.device == device else tf.identity(array)


def _described(event: Event) -> str:
    return f"{event.op} of {event.dtype} {event.shape} at {event.site}"


def _refuse(op: str) -> NoReturn:
    raise TraceError(
        f"us.{op} must be called where replicas run code of their own, got it on engine 'mirrored', whose replicas are "
        "traced into one program that knows no Python objects. Try: an array, or PerReplica values outside us.spmd."
    )

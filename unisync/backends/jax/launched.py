"""jax's engine for a world of processes: jit(shard_map) over one device of each, joined by jax.distributed.

Functions of `us.spmd` are compiled for all processes together, and their arrays stay the processes' shards of global
arrays from step to step. A collective outside spmd is a compiled program of its own.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.core
import jax.monitoring
import jax.numpy as jnp
from jax.sharding import NamedSharding

from unisync import _dispatch
from unisync._per_replica import PerReplica
from unisync._types import Tree
from unisync.backends._channel import GRACE_S, Channel
from unisync.backends._engine import Groups, ReduceOp
from unisync.backends._launched import LaunchedEngine, Member
from unisync.backends.jax import _cluster, _failures, _layout, _pace
from unisync.backends.jax.engines import SharedProgramEngine, shard_mapped
from unisync.errors import ArgumentTypeError, CollectiveMismatchError, CollectiveTimeoutError, TraceError, unknown

ENGINES: tuple[str, ...] = ("distributed",)

_AXIS = _layout.AXIS


def make_engine(name: str | None, member: Member, device: Any, timeout_s: float) -> DistributedEngine:
    """The engine of this process in a world of jax processes, of which each has one device.

    Raises:
        UnknownNameError: there is no such engine.
        StateError: jax has made its first array already, or belongs to other processes.
    """
    if name is not None and name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    if not (device is None or isinstance(device, str)):
        raise ArgumentTypeError(f"`device` must be a platform's name, got {device!r}. Try: 'cpu'.")
    _dispatch.load("jax")
    _cluster.join(member, timeout_s)
    platform = None if device is None else device.partition(":")[0]
    return DistributedEngine(member, _cluster.device_of_each(member, platform), timeout_s)


@final
class DistributedEngine(LaunchedEngine):
    """One replica, this process, of a world that runs common programs.

    Collectives outside of spmd are started and not waited for, as everything in jax; `us.barrier` waits.
    """

    name = "distributed"

    def __init__(self, member: Member, devices: Sequence[Any], timeout_s: float) -> None:
        super().__init__(_dispatch.load("jax"), member, devices[member.rank], timeout_s)
        self._programs = _Programs(devices, timeout_s, member.channel)
        self.channel.count_steps(self._programs.started)
        self.sharding = self._programs.sharding
        self._everywhere = NamedSharding(self.sharding.mesh, _layout.SHARED)
        self._compiled: dict[Any, Any] = {}

    # Running and moving

    def spmd(self, fn: Callable[..., Tree], *, donate_argnums: Sequence[int] = ()) -> Callable[..., PerReplica]:
        """As `Engine.spmd`; the memory of the positional arguments in donate_argnums may be used for the results."""
        return self._programs.spmd(fn, donate_argnums=donate_argnums)

    def place(self, trees: Sequence[Tree]) -> PerReplica:
        return self._programs.place(trees)

    def replicate(self, tree: Tree) -> PerReplica:
        return self._programs.replicate(tree)

    def end(self) -> None:
        super().end()
        self._compiled.clear()
        self._programs.end()
        self.channel.stepped()  # whatever nobody asked after has ended too
        self.channel.waiting(None)

    # Collectives, outside of spmd

    def all_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Any:
        return self._alone("all_reduce", x, op, groups)

    def all_reduce_mean(self, x: Any, groups: Groups | None) -> Any:
        return self._alone("all_reduce_mean", x, groups)

    def all_gather(self, x: Any, groups: Groups | None) -> Any:
        return self._alone("all_gather", x, groups)

    def reduce_scatter(self, x: Any, groups: Groups | None) -> Any:
        return self._alone("reduce_scatter", x, groups)

    def broadcast(self, x: Any, root: int, groups: Groups | None) -> Any:
        return self._alone("broadcast", x, root, groups)

    def all_to_all(self, x: Any, groups: Groups | None) -> Any:
        return self._alone("all_to_all", x, groups)

    def permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        return self._alone("permute", x, tuple(pairs))

    def barrier(self) -> None:
        self._programs.wait(self._alone("all_reduce", jnp.zeros((), jnp.int32), "max", None))

    def _alone(self, op: str, x: Any, *rest: Any) -> Any:
        """A collective as a program of its own.

        Its argument is declared to be the same on all devices, though each has its own: that spares an axis for the
        replicas, and with it two programs that would add and remove it.
        """
        self.check_alive()
        if isinstance(x, jax.core.Tracer):
            raise TraceError(
                f"us.{op} must be called inside us.spmd to be compiled or differentiated on engine {self.name!r}, got "
                "an array that us.jit or us.grad traces. Try: us.spmd(fn), with us.grad inside fn."
            )
        key = (op, x.shape, x.dtype, rest)
        known = self._compiled.get(key)
        if known is None:
            known = self._compiled[key] = self._compile(key)
        if x.sharding.device_set != self._programs.own_device_set:
            x = jax.device_put(x, self.devices[0])
        compiled, aval, small = known
        return self._programs.run_alone(compiled, _layout.assembled(x, self._everywhere, aval), small)

    def _compile(self, key: Any) -> tuple[Any, Any, bool]:
        op, shape, dtype, rest = key
        call = f"{op}{rest} of {dtype}{list(shape)}"
        site = self.ring.events[-1].site if self.ring.events else "?"
        self._programs.agree([(call, f"{call} at {site}")])
        carry = getattr(self._programs, op)
        compiled = jax.jit(
            jax.shard_map(
                lambda x: carry(x, *rest),
                mesh=self._everywhere.mesh,
                in_specs=_layout.SHARED,
                out_specs=_layout.SHARED,
                check_vma=False,
            )
        )
        small = math.prod(shape) * dtype.itemsize * self.size <= _pace.SMALL_BYTES
        return compiled, jax.typeof(jax.ShapeDtypeStruct(shape, dtype)), small


@final
class _Programs(SharedProgramEngine):
    """The programs that all processes run together, and the collectives in them."""

    name = DistributedEngine.name

    def __init__(self, devices: Sequence[Any], timeout_s: float, channel: Channel) -> None:
        self._alarm = _ChannelAlarm(self, channel, timeout_s)
        super().__init__(devices, timeout_s, self._alarm)
        self.rank, self.processes = channel.rank, channel.size
        self.own_device_set = frozenset(self.devices)
        self._channel = channel
        self._on_cpu = self.devices[0].platform == "cpu"
        self._groups: list[Groups | None] = []  # of the collectives of the program that is being traced
        # For each program and form of its arguments its name and its collectives, in words.
        self._told: dict[Any, tuple[str, tuple[str, ...]]] = {}
        self._agreed = 0
        self._noted: Any = None  # the step that the channel was told of last

    def compile(self, fn: Callable[..., Tree], per_replica: Sequence[bool], donated: Sequence[int]) -> Any:
        return shard_mapped(fn, self.sharding, per_replica, donated)

    def run_alone(self, compiled: Any, whole: Any, small: bool) -> Any:
        """This process's part of the result of a compiled collective."""
        self._newest, self._starting = None, whole
        try:
            with self._lock:
                result = compiled(whole).addressable_data(0)
                self._pace.stepped(result, small)
        except Exception as error:
            self.when_failed(error, "a collective")
            raise
        self._starting = None
        return result

    def when_failed(self, error: Exception, label: str) -> None:
        super().when_failed(error, label)
        self._alarm.compiling = False
        if isinstance(error, (jax.errors.JaxRuntimeError, ValueError)):
            self.note()
            _failures.raise_explained(error, label)

    def started(self) -> int:
        """How many steps with collectives were started."""
        return self._number

    def note(self) -> None:
        """Tell the channel of the newest step, unless that is a collective of its own, which is in the ring.

        It is worked out here, seldom, and not with every step: what is told depends on the step alone, so that no two
        processes tell of one step in different words because one of them has traced it for other shapes already.
        """
        step = self._newest
        if step is not None and step is not self._noted and step.given is not None:
            told = self._told.get((step.program, _form(step.given)))
            if told is not None:  # else it is being traced
                self._noted = step
                self._channel.step(step.number, *told)

    def forget(self) -> None:
        """Let go of the newest step's arguments: all steps have ended."""
        step = self._newest
        if step is not None and step is not self._starting:
            step.given = None

    def end(self) -> None:
        super().end()
        self._told.clear()
        self._noted = None

    def starting(self) -> Any:
        """What stands for the step that is being started, which may mean run, in the caller's thread; else None."""
        return self._starting

    def wait(self, x: Any) -> None:
        """Wait for an array that a collective gives."""
        self._pace.wait(x)

    def when_traced(self, program: Any) -> None:
        groups, self._groups = self._groups, []
        events = list(program.ring.events)
        if not events:  # it may well be run by one process alone
            program.communicates = False
            return
        calls = [f"{e.op} of {e.dtype}{list(e.shape)}" for e in events]
        sites = tuple(f"{call} at {e.site}" for call, e in zip(calls, events, strict=True))
        step = self._starting
        if step.number < 0:
            step.number = self._number
            self._number += 1
            program.communicates, self._newest = True, step
        # The number of the comparison stands for whatever must be the same on all.
        self._told.setdefault((program, _form(step.given)), (f"{program.name} (program {self._agreed + 1})", sites))
        self.note()
        self.agree([*zip(calls, sites, strict=True), (f"groups {groups}", f"groups {groups} in {program.name}")])

    def agree(self, calls: list[tuple[str, str]]) -> None:
        """Compare collectives that are about to be compiled with those of the other processes: gloo would end the
        process if sizes differed, or put the wrong numbers together.

        Args:
            calls: for each collective what must be the same on all, and how to tell of it.

        Raises:
            CollectiveMismatchError: they differ.
        """
        self._agreed += 1
        self._alarm.compiling = True  # what follows takes its time without waiting for anybody
        name = f"compiled/{self._agreed}"
        found = self._channel.exchange(name, (self.rank, calls), range(self.processes), self.timeout_s)
        own = [call for call, _ in calls]
        for rank, others in found:
            theirs = [call for call, _ in others]
            if theirs == own:
                continue
            place = next(
                (i for i, (a, b) in enumerate(zip(own, theirs, strict=False)) if a != b), min(len(own), len(theirs))
            )
            texts = [
                f"\n  rank {r}: {listed[place][1] if place < len(listed) else 'no further collective'}"
                for r, listed in sorted([(self.rank, calls), (rank, others)], key=lambda entry: entry[0])
            ]
            raise CollectiveMismatchError(
                "all ranks must call the same collectives with the same shapes, dtypes and groups, got"
                + "".join(texts)
                + "\nTry: pad to one shape; keep collectives out of branches that depend on the rank."
            )

    # Collectives, while a program is traced

    def all_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Any:
        self._groups.append(groups)
        return super().all_reduce(x, op, groups)

    def all_gather(self, x: Any, groups: Groups | None) -> Any:
        self._groups.append(groups)
        return super().all_gather(x, groups)

    def broadcast(self, x: Any, root: int, groups: Groups | None) -> Any:
        self._groups.append(groups)
        return super().broadcast(x, root, groups)

    def all_to_all(self, x: Any, groups: Groups | None) -> Any:
        self._groups.append(groups)
        return super().all_to_all(x, groups)

    def reduce_scatter(self, x: Any, groups: Groups | None) -> Any:
        if not self._on_cpu or not x.size:
            self._groups.append(groups)
            return super().reduce_scatter(x, groups)
        # gloo's own makes later collectives slow with 4 processes: 3.5 s instead of 10 ms for 4 MB (jaxlib 0.10).
        parts = self.all_to_all(x, groups)
        members = self.size if groups is None else len(groups[0])
        return jnp.sum(parts.reshape(members, -1, *parts.shape[1:]), axis=0, dtype=x.dtype)


def _form(given: Any) -> tuple[Any, ...]:
    """What tells apart the arguments for which a program is traced: shapes, dtypes and constants."""
    leaves = jax.tree_util.tree_leaves(given)
    return tuple(
        (x.shape, str(x.dtype)) if hasattr(x, "dtype") else (type(x), x if isinstance(x, (str, bool)) else None)
        for x in leaves
    )


@final
class _ChannelAlarm(_pace.Alarm):
    """Of steps with other processes: the channel knows who does not come, and ends the process if it has to."""

    def __init__(self, programs: _Programs, channel: Channel, timeout_s: float) -> None:
        self._programs, self._channel, self._timeout_s = programs, channel, timeout_s
        self._oldest: Any = None
        self.compiling = False
        self.period_s = min(0.1, timeout_s / 8)
        jax.monitoring.register_event_duration_secs_listener(_Listener(self))

    def check(self, waited_s: float) -> None:
        if self._channel.verdict is not None:
            raise self._channel.explain(None, "a step")
        if waited_s > self._timeout_s + 2 * GRACE_S:
            raise CollectiveTimeoutError(
                f"a step must end within timeout_s={self._timeout_s:g} s, got one that has not.\n"
                f"{self._channel.report()}\nTry: a longer timeout_s in us.init_distributed, if a rank is only slow."
            )

    def look(self, pace: _pace.Pace) -> None:
        if _failures.failing:  # what has failed is no more under way, but it is what the process is in
            return
        oldest = pace.oldest() or (None if self.compiling else self._programs.starting())
        if oldest is None:
            self._programs.forget()
            if self._oldest is not None:
                self._channel.stepped()
        elif oldest is not self._oldest:
            self._programs.note()
            self._channel.waiting("")
        self._oldest = oldest

    def token(self, mark: Any) -> Any:
        return _first(mark.addressable_data(0))

    def ended(self, mark: Any) -> None:
        try:
            mark.block_until_ready()  # it is there, or an error in its place
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            _failures.raise_explained(error, "a step")
            raise


@jax.jit
def _first(x: Any) -> Any:
    return jax.lax.slice(x, (0,) * x.ndim, (1,) * x.ndim)


@final
class _Listener:
    """Tells an alarm when jax has compiled something; jax keeps its listeners for ever."""

    def __init__(self, alarm: _ChannelAlarm) -> None:
        self._alarm = weakref.ref(alarm)

    def __call__(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        alarm = self._alarm()
        if alarm is not None and event.endswith("backend_compile_duration"):
            alarm.compiling = False

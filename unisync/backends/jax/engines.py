"""jax's engines: all replicas run one compiled program, over the local devices.

"shard_map" compiles `jit(shard_map(fn))`; "pmap" is the same through `jax.pmap`, whose calls cost more. The engine
whose devices are those of several processes is in `launched.py`.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from unisync import _context, _dispatch
from unisync._events import Ring
from unisync._per_replica import PerReplica
from unisync._types import Tree
from unisync.backends._engine import Engine, Groups, ReduceOp
from unisync.backends.jax import _constants, _dtypes, _layout, _world
from unisync.backends.jax._pace import Alarm, LocalAlarm, Mark, Pace
from unisync.errors import StateError, TraceError, unknown

_AXIS = _layout.AXIS


def make_engine(name: str | None, replicas: int | None, device: Any, timeout_s: float) -> SharedProgramEngine:
    """The engine of a world of `replicas` (default: one per accelerator; on a CPU one).

    Raises:
        UnknownNameError: there is no such engine.
        ArgumentError: there are not enough accelerators, or no such device.
        StateError: jax has made fewer CPU devices already; says what to do.
    """
    if name is not None and name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    return ENGINES[name or "shard_map"](_world.devices_for(replicas, device, timeout_s), timeout_s)


class SharedProgramEngine(Engine):
    """Replicas that run one traced program on one device each; abstract in how it is compiled.

    Args:
        devices: those of all replicas, in all processes.
        timeout_s: how long a step may take.
        alarm: what is done about steps that do not end. Default: an error in this process.
    """

    def __init__(self, devices: Sequence[Any], timeout_s: float, alarm: Alarm | None = None) -> None:
        self.backend = _dispatch.load("jax")
        mesh = Mesh(np.array(devices), (_AXIS,))
        self.sharding = NamedSharding(mesh, _layout.SHARDED)
        self.devices, self.size, self.timeout_s = tuple(mesh.local_devices), len(devices), timeout_s
        self._local = len(self.devices)
        queued = _world.has_threads(self.devices)
        if not queued:
            _world.warn_of_few_threads(self.size)
        self._pace = Pace(queued, alarm or LocalAlarm(timeout_s, _world.patience_s, self.report))
        self._programs: list[_Program] = []
        self._last: _Program | None = None
        self._number = 0  # counts the steps of programs with collectives
        self._newest: Step | None = None  # the step of such a program that was started last
        self._starting: Any = None  # the step that is being started
        # Two threads that start programs at the same time could reach the devices in different orders.
        self._lock = threading.RLock()
        self._ended = False

    @abstractmethod
    def compile(self, fn: Callable[..., Tree], per_replica: Sequence[bool], donated: Sequence[int]) -> Any:
        """fn compiled for all replicas; it sees one replica's trees.

        Args:
            fn: function of positional arguments.
            per_replica: for each argument whether the replicas have trees of their own.
            donated: positions of arguments whose memory the results may use.
        """

    def spmd(self, fn: Callable[..., Tree], *, donate_argnums: Sequence[int] = ()) -> Callable[..., PerReplica]:
        """As `Engine.spmd`; the memory of the positional arguments in donate_argnums may be used for the results."""
        programs: dict[Any, _Program] = {}
        donated = tuple(donate_argnums)

        def call(*args: Any, **kwargs: Any) -> PerReplica:
            if kwargs:
                names = tuple(sorted(kwargs))
                args = (*args, *[kwargs[name] for name in names])
            else:
                names = ()
            key = (names, *[type(arg) is PerReplica for arg in args])
            program = programs.get(key)
            if program is None:
                program = programs[key] = _Program(self, fn, names, key[1:], donated)
                self._programs.append(program)
            return self._run(program, args)

        return call

    def _run(self, program: _Program, args: tuple[Any, ...]) -> PerReplica:
        if self._ended:
            raise StateError(
                "a function of us.spmd must run in the world it was made in, got one that has ended. "
                "Try: us.init_distributed and us.spmd again."
            )
        given = [self._native(arg) if type(arg) is PerReplica else arg for arg in args]
        if program.communicates:
            self._newest = self._starting = Step(program, given, self._number)
            self._number += 1
        else:
            self._starting = Step(program, given, -1)
        try:
            with self._lock:
                results = program(given)
                self._last = program
                mark = program.mark.of(results)
                if isinstance(mark, jax.core.Tracer):
                    raise TraceError(
                        "a function of us.spmd must be called outside us.jit and us.grad: it is compiled as a whole. "
                        "Try: us.jit and us.grad inside it."
                    )
                if mark is not None:
                    self._pace.stepped(mark, program.mark.small)
        except Exception as error:
            self.when_failed(error, program.name)
            raise
        self._starting = None
        return PerReplica(None, native=results, size=self._local, take=_layout.take)

    def when_failed(self, error: Exception, label: str) -> None:
        """Called when a step could not be started, or one before it has failed; may raise a better error."""
        self._starting = None

    def when_traced(self, program: _Program) -> None:
        """Called when a program has been traced, before it is compiled."""

    def _native(self, value: PerReplica) -> Tree:
        if _layout.is_native(value):
            return value.native
        return _layout.stack(list(value), self.sharding)

    def place(self, trees: Sequence[Tree]) -> PerReplica:
        return self._per_replica(_layout.stack(trees, self.sharding))

    def replicate(self, tree: Tree) -> PerReplica:
        return self._per_replica(_layout.replicate(tree, self.sharding))

    def _per_replica(self, native: Tree) -> PerReplica:
        return PerReplica(native=native, size=self._local, take=_layout.take)

    def end(self) -> None:
        self._ended = True
        try:
            self._pace.end()
        finally:
            for program in self._programs:
                program.clear()
            self._programs.clear()
            self._last = self._newest = self._starting = None

    def report(self) -> str:
        pace, program = self._pace, self._last
        what = f"{self.size} replicas on engine {self.name!r}, which run one program together"
        if program is None:
            return f"{what}: no step was started."
        state = "has not ended" if pace.unfinished() else "is the last that was started"
        lines = [
            f"{what}: step {pace.steps - 1}, of {program.name}, started {time.monotonic() - pace.started_s:.1f} s ago, "
            f"{state}. Its collectives, as traced:"
        ]
        lines += [f"  {e.sequence}: {e.op} of {e.dtype}{list(e.shape)} at {e.site}" for e in program.ring.events]
        return "\n".join(lines if program.ring.events else [*lines, "  none"])

    # Collectives, while a program is traced.

    def all_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Any:
        if op == "prod":  # XLA's CPU devices have no such reduction
            gathered = jax.lax.all_gather(x, _AXIS, axis_index_groups=groups)
            return jnp.prod(gathered, axis=0, dtype=x.dtype)
        return _REDUCTIONS[op](x, _AXIS, axis_index_groups=groups)

    def all_gather(self, x: Any, groups: Groups | None) -> Any:
        if not x.size:  # XLA refuses collectives along an axis of length 0
            members = self.size if groups is None else len(groups[0])
            return jnp.concatenate([x] * members)
        return jax.lax.all_gather(x, _AXIS, axis_index_groups=groups, tiled=True)

    def reduce_scatter(self, x: Any, groups: Groups | None) -> Any:
        if not x.size:
            members = self.size if groups is None else len(groups[0])
            return x[: x.shape[0] // members]
        return jax.lax.psum_scatter(x, _AXIS, axis_index_groups=groups, tiled=True)

    def broadcast(self, x: Any, root: int, groups: Groups | None) -> Any:
        roots = np.zeros(self.size, bool)
        for group in groups or (tuple(range(self.size)),):
            roots[group[root]] = True
        return _broadcast(x, jnp.asarray(roots)[jax.lax.axis_index(_AXIS)], groups)

    def all_to_all(self, x: Any, groups: Groups | None) -> Any:
        if not x.size:
            return x
        return jax.lax.all_to_all(x, _AXIS, 0, 0, axis_index_groups=groups, tiled=True)

    def permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        return jax.lax.ppermute(x, _AXIS, list(pairs))

    def barrier(self) -> None:
        """Nothing to do: the replicas run one program, whose collectives already keep them together."""

    def replica_index(self) -> Any:
        return jax.lax.axis_index(_AXIS).astype(_dtypes.INT)

    def all_gather_object(self, value: Any, groups: Groups | None) -> list[Any]:
        raise _no_objects("all_gather_object")

    def broadcast_object(self, value: Any, root: int, groups: Groups | None) -> Any:
        raise _no_objects("broadcast_object")


def _no_objects(op: str) -> StateError:
    return StateError(
        f"us.{op} must be called where replicas run code of their own, got it inside a program that all replicas "
        "share: jax traces it once, and an object would be the same for all. Try: us.all_gather of arrays; or work "
        "with the object outside us.spmd, where this process holds it once."
    )


_REDUCTIONS: dict[str, Any] = {"sum": jax.lax.psum, "max": jax.lax.pmax, "min": jax.lax.pmin}


def _broadcast(x: Any, is_root: Any, groups: Groups | None) -> Any:
    """x of the replicas where is_root holds, bit by bit: what the others hold (NaN, say) leaves no trace."""

    def total(x: Any) -> Any:
        return jax.lax.psum(jnp.where(is_root, x, jnp.zeros_like(x)), _AXIS, axis_index_groups=groups)

    if x.dtype.kind in "iu":
        return total(x)
    if x.dtype == _dtypes.BOOL:
        return total(x.astype(jnp.uint8)).astype(_dtypes.BOOL)
    if x.dtype.kind == "c":
        return jax.lax.complex(_broadcast(x.real, is_root, groups), _broadcast(x.imag, is_root, groups))

    # A sum of floats starts at 0 and so loses the sign of −0; one of their bits does not, but has no derivative.
    @jax.custom_vjp
    def bits(x: Any) -> Any:
        words = jax.lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}")
        return jax.lax.bitcast_convert_type(total(words), x.dtype)

    def backward(_: None, g: Any) -> tuple[Any]:
        g = jax.lax.psum(g, _AXIS, axis_index_groups=groups)
        return (jnp.where(is_root, g, jnp.zeros_like(g)),)

    bits.defvjp(lambda x: (bits(x), None), backward)
    return bits(x)


@final
class Step:
    """A run of a program.

    Attributes:
        program: the program.
        given: its arguments, as long as it may be under way.
        number: which step of programs with collectives it is; -1 if it is none, as far as is known.
    """

    __slots__ = ("given", "number", "program")

    def __init__(self, program: _Program, given: Any, number: int) -> None:
        self.program, self.given, self.number = program, given, number


@final
class _Program:
    """A function compiled for one choice of which arguments are per replica.

    Attributes:
        name: the function's.
        ring: the collectives of its latest trace.
        mark: which of its results tells that a step is done.
        communicates: whether it is known to have collectives.
    """

    def __init__(
        self,
        engine: SharedProgramEngine,
        fn: Callable[..., Tree],
        names: tuple[str, ...],
        per_replica: Sequence[bool],
        donated: tuple[int, ...],
    ) -> None:
        self.name = getattr(fn, "__qualname__", type(fn).__name__)
        self.ring, self.mark = Ring(), Mark()
        self.communicates = False
        self._sharding, self._per_replica = engine.sharding, per_replica
        self._careful = False  # whether arguments have to be looked through before each call

        def traced(*values: Any) -> Tree:
            values = _layout.open_constants(values)
            first_named = len(values) - len(names)
            kwargs = dict(zip(names, values[first_named:], strict=True))
            self.ring = Ring()
            with _context.inside(_context.Scope(engine, engine.replica_index(), self.ring)):
                result = fn(*values[:first_named], **kwargs)
            engine.when_traced(self)
            return jax.tree_util.tree_map(_output, result)

        self._compiled = engine.compile(traced, per_replica, donated)

    def __call__(self, given: list[Any]) -> Tree:
        if self._careful:
            given = self._prepared(given)
        else:
            # Straight into the compiled function, whose C++ flattens the arguments. It refuses with a TypeError what is
            # no array, and with a ValueError an array that belongs to another device; only then are these looked for.
            try:
                return self._compiled(*given)
            except (TypeError, ValueError):
                prepared = self._prepared(given)
                if _same_leaves(given, prepared):
                    raise
                given = prepared
        results = self._compiled(*given)
        self._careful = True
        return results

    def _prepared(self, given: list[Any]) -> list[Any]:
        pairs = zip(given, self._per_replica, strict=True)
        return [arg if own else _layout.shared(arg, self._sharding) for arg, own in pairs]

    def clear(self) -> None:
        """Drop the compiled program: jax's caches know it through a weak reference."""
        self._compiled = _cleared


def _cleared(*values: Any) -> Any:
    raise StateError("a program must not be called after its world's end")


def _output(leaf: Any) -> Any:
    return leaf if _constants.is_input(leaf) else _layout.constant(leaf)


def _same_leaves(before: Any, after: Any) -> bool:
    a, b = jax.tree_util.tree_leaves(before), jax.tree_util.tree_leaves(after)
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


@final
class ShardMapEngine(SharedProgramEngine):
    """Programs compiled by jit(shard_map(...)): the engine by default."""

    name = "shard_map"

    def compile(self, fn: Callable[..., Tree], per_replica: Sequence[bool], donated: Sequence[int]) -> Any:
        return shard_mapped(fn, self.sharding, per_replica, donated)


def shard_mapped(
    fn: Callable[..., Tree], sharding: NamedSharding, per_replica: Sequence[bool], donated: Sequence[int]
) -> Any:
    """fn as `SharedProgramEngine.compile` wants it, by jit(shard_map(...))."""

    def local(*values: Any) -> Tree:
        pairs = zip(values, per_replica, strict=True)
        result = fn(*[_squeezed(value) if own else value for value, own in pairs])
        return jax.tree_util.tree_map(lambda x: jnp.expand_dims(x, 0), result)

    specs = tuple(_layout.SHARDED if own else _layout.SHARED for own in per_replica)
    # check_vma=True would refuse groups, and give collectives other derivatives than those of unisync.
    mapped = jax.shard_map(local, mesh=sharding.mesh, in_specs=specs, out_specs=_layout.SHARDED, check_vma=False)
    return jax.jit(mapped, donate_argnums=tuple(donated))


def _squeezed(tree: Tree) -> Tree:
    return jax.tree_util.tree_map(lambda x: jax.lax.squeeze(x, (0,)), tree)


@final
class PmapEngine(SharedProgramEngine):
    """Programs compiled by jax.pmap."""

    name = "pmap"

    def compile(self, fn: Callable[..., Tree], per_replica: Sequence[bool], donated: Sequence[int]) -> Any:
        def local(_: Any, *values: Any) -> Tree:
            return fn(*values)

        compiled = jax.pmap(
            local,
            _AXIS,
            in_axes=(0, *[0 if own else None for own in per_replica]),
            devices=self.devices,
            donate_argnums=tuple(i + 1 for i in donated),
        )
        # pmap wants at least one mapped argument.
        ranks = jax.device_put(np.arange(self.size, dtype=np.int32), self.sharding)

        def call(*values: Any) -> Tree:
            return compiled(ranks, *values)

        return call


ENGINES: dict[str, type[SharedProgramEngine]] = {"shard_map": ShardMapEngine, "pmap": PmapEngine}

"""The world: the replicas, the axes they are laid out along, and the way of trees to the replicas and back."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, final

import numpy as np

from unisync import _context, _dispatch, tree as _tree
from unisync._per_replica import PerReplica
from unisync._types import Tree
from unisync.backends import _collectives, import_engines, import_launched
from unisync.backends._engine import Engine
from unisync.distributed import joining, signals
from unisync.errors import ArgumentError, ArgumentTypeError, ShapeError, StateError, unknown

Mode = Literal["data_parallel", "model_parallel"] | Mapping[str, int]
AXES = ("data", "model")
"""The axes of a world; the first varies slowest."""


@final
class World:
    """The replicas that work together, made by `us.init_distributed`.

    They are all in this process; or, if a launcher started it (`unisync run`, torchrun, mpiexec, srun), each is a
    process of its own, and this one is the replica `process_index`. Usable as a context manager, which ends it.

    Attributes:
        size: how many replicas there are in all.
        process_index: this process's number.
        process_count: how many processes there are.
        local_replicas: how many replicas this process has.
        backend: the name of their backend.
        engine: the name of what carries their collectives: "threads", "shard_map", "pmap", "mirrored"; between
            processes "mpi", "gloo", "nccl", "distributed", "multi_worker".
        axes: the length of each axis along which they are laid out; "data" varies slowest.
        devices: the device of each local replica.
        own_scope: the replica that this process is, in a launched world; None in a world within one process.
    """

    def __init__(self, engine: Engine, axes: dict[str, int]) -> None:
        self._engine = engine
        if engine.size > 1:
            signals.report_on_signal(launched=engine.processes > 1)
        self.size = engine.size
        self.process_index = engine.rank
        self.process_count = engine.processes
        self.local_replicas = len(engine.devices)
        self.backend: str = engine.backend.NAME
        self.engine = engine.name
        self.axes = axes
        self.devices = engine.devices
        self.own_scope: _context.Scope | None = getattr(engine, "scope", None)
        self._ended = False

    @property
    def device(self) -> Any:
        """The device of the first local replica."""
        return self.devices[0]

    def groups(self, axis: str) -> list[list[int]]:
        """The groups of replicas that differ only in their place along an axis, for the `groups` of a collective.

        Args:
            axis: a name in `axes`.

        Example:
            >>> with us.init_distributed(mode={"data": 2, "model": 2}) as world:
            ...     print(world.groups("data"), world.groups("model"))
            [[0, 2], [1, 3]] [[0, 1], [2, 3]]
        """
        if axis not in self.axes:
            raise unknown("axis", axis, self.axes)
        ranks = np.arange(self.size).reshape(tuple(self.axes.values()))
        place = list(self.axes).index(axis)
        return np.moveaxis(ranks, place, -1).reshape(-1, self.axes[axis]).tolist()

    def scatter(self, batch: Tree) -> PerReplica:
        """Equal contiguous slices along axis 0, one for each replica, on its device.

        Args:
            batch: tree of host or native arrays, the global batch; between processes each passes the same, and keeps
                its own slice without communication.

        Raises:
            ShapeError: the number of replicas does not divide a first axis; names the leaf.

        Example:
            >>> with us.init_distributed(replicas=2) as world:
            ...     print(world.scatter(us.arange(4))[1])
            [2 3]
        """
        self._check_alive()
        leaves, structure = _tree.flatten(batch)
        leaves = [self._array(leaf) for leaf in leaves]
        for i, leaf in enumerate(leaves):
            if not tuple(leaf.shape) or leaf.shape[0] % self.size:
                name = _tree.paths(batch)[i] or "batch"
                raise ShapeError(
                    f"`{name}` must have a first axis that the {self.size} replicas divide, "
                    f"got shape {tuple(leaf.shape)}. Try: pad or cut it, or world.replicate for what all share."
                )
        parts = []
        for r in range(self.process_index, self.process_index + self.local_replicas):
            cut = [x[r * (x.shape[0] // self.size) : (r + 1) * (x.shape[0] // self.size)] for x in leaves]
            parts.append(_tree.unflatten(structure, cut))
        return self._engine.place(parts)

    def replicate(self, tree: Tree) -> PerReplica:
        """A copy of a tree on every replica's device.

        Args:
            tree: tree of host or native arrays.

        Example:
            >>> with us.init_distributed(replicas=2) as world:
            ...     print(len(world.replicate({"w": us.ones(2)})))
            2
        """
        self._check_alive()
        _tree.map(_refuse_per_replica, tree)
        return self._engine.replicate(tree)

    def first(self, value: PerReplica) -> Tree:
        """The tree of replica 0. Between processes all must call it, and all get it.

        Example:
            >>> with us.init_distributed(replicas=2) as world:
            ...     print(world.first(world.scatter(us.arange(4))))
            [0 1]
        """
        own = self._checked(value)[0]
        return own if self.process_count == 1 else self._from_first(own)

    def gather(self, value: PerReplica) -> Tree:
        """The trees of all replicas, each leaf concatenated along axis 0 (arrays of shape () are stacked). Between
        processes all must call it, and all get it.

        Example:
            >>> with us.init_distributed(replicas=2) as world:
            ...     print(world.gather(world.scatter(us.arange(4))))
            [0 1 2 3]
        """
        trees = list(self._checked(value))
        if self.process_count > 1:
            return _collectives.all_gather(_tree.map(self._array, trees[0]), None)
        m = self._engine.backend
        apart = len(set(map(str, self.devices))) > 1

        def join(*parts: Any) -> Any:
            arrays = [self._array(part) for part in parts]
            arrays = [m.to_device(x, self.device) for x in arrays] if apart else arrays
            return m.concat(arrays, axis=0) if tuple(arrays[0].shape) else m.stack(arrays, axis=0)

        return _tree.map(join, *trees)

    def _from_first(self, own: Tree) -> Tree:
        """Replica 0's tree on every rank: arrays by the engine, whatever else is in it as objects."""
        leaves, structure = _tree.flatten(own)
        native = [_dispatch.is_array(x) and _dispatch.namespace(x) is self._engine.backend for x in leaves]
        sent = iter(_collectives.broadcast([x for x, n in zip(leaves, native, strict=True) if n], 0, None))
        apart = [x for x, n in zip(leaves, native, strict=True) if not n]
        told = iter(_collectives.broadcast_object(apart, 0, None) if apart else ())
        return _tree.unflatten(structure, [next(sent) if n else next(told) for n in native])

    def end(self) -> None:
        """Give up the replicas' threads, devices and memory; a new world may then be made. May be called again."""
        if self._ended:
            return
        if _context.scope() is not None:
            raise StateError("a world must be ended outside replicas, got a call inside us.spmd. Try: call it after.")
        self._ended = True
        if _context.world() is self:
            _context.set_world(None)
            signals.give_back_signal()
        self._engine.end()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"World(size={self.size}, backend={self.backend!r}, engine={self.engine!r}, axes={self.axes})"

    def _check_alive(self) -> None:
        if self._ended:
            raise StateError("the world must not have ended, got a call after its end. Try: us.init_distributed again.")

    def _checked(self, value: Any) -> PerReplica:
        if self.process_count > 1:
            self._check_alive()  # others take part
        if not isinstance(value, PerReplica):
            raise ArgumentTypeError(
                f"`value` must be a us.PerReplica, got {type(value).__name__}. Try: the result of a us.spmd function."
            )
        return value

    def _array(self, leaf: Any) -> Any:
        _refuse_per_replica(leaf)
        return leaf if hasattr(leaf, "shape") else self._engine.backend.asarray(leaf)


def init_distributed(
    replicas: int | None = None,
    *,
    mode: Mode = "data_parallel",
    engine: str | None = None,
    device: Any = None,
    timeout_s: float | None = None,
) -> World:
    """Make the world of the current backend's replicas, the current one from now on. An earlier one is ended.

    In a process that a launcher started, it is the launcher's world, one replica a process: all processes make it
    together. Else all replicas are in this process.

    Args:
        replicas: how many. Default: one per local accelerator; on a CPU one; with a dict as `mode` their product. A
            launcher has settled it already.
        mode: "data_parallel", "model_parallel", or the length of each axis, as {"data": 2, "model": 2}.
        engine: what carries the collectives: "threads" (numpy, torch), "shard_map" or "pmap" (jax), "mirrored"
            (tensorflow); between processes "mpi" (numpy), "gloo" or "nccl" (torch), "distributed" (jax),
            "multi_worker" (tensorflow). Default: the backend's first.
        device: the kind of device, such as "cpu". Default: accelerators if there are any.
        timeout_s: how long a collective waits for a replica before it fails, in seconds. Default: what the launcher
            was told (`unisync run --timeout`), else 600.

    Raises:
        ArgumentError: a number is out of range, or more replicas than devices are asked for.
        UnknownNameError: there is no such mode or engine.

    Example:
        >>> world = us.init_distributed(replicas=2)
        >>> world.size, world.engine
        (2, 'threads')
        >>> world.end()
    """
    if replicas is not None and (isinstance(replicas, bool) or not isinstance(replicas, (int, np.integer))):
        raise ArgumentTypeError(f"`replicas` must be a whole number, got {replicas!r}. Try: replicas=2.")
    if replicas is not None and replicas < 1:
        raise ArgumentError(f"`replicas` must be at least 1, got {replicas}. Try: replicas=1.")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float, np.integer, np.floating, type(None))):
        raise ArgumentTypeError(f"`timeout_s` must be a number, got {timeout_s!r}. Try: timeout_s=600.")
    if timeout_s is not None and not timeout_s > 0:
        raise ArgumentError(f"`timeout_s` must be positive, got {timeout_s}. Try: timeout_s=600.")
    if _context.scope() is not None:
        raise StateError("a world must be made outside replicas, got a call inside us.spmd. Try: call it before.")
    axes = _axes(mode)
    if axes is not None:
        product = math.prod(axes.values())
        if replicas is not None and replicas != product:
            raise ArgumentError(
                f"`mode` must have {replicas} replicas as the product of its axes, got {dict(axes)}, which are "
                f"{product}. Try: replicas={product}, or leave it out."
            )
        replicas = product
    backend = _dispatch.current_namespace()
    previous = _context.world()
    if joining.place() is not None:
        made = _launched_engine(backend.NAME, replicas, axes, engine, device, timeout_s)
    else:
        made = import_engines(backend.NAME).make_engine(
            engine, None if replicas is None else int(replicas), device, 600.0 if timeout_s is None else timeout_s
        )
        if previous is not None:
            previous.end()  # not before there is a new one: what is asked for may be impossible
    world = World(made, axes or {"data" if mode == "data_parallel" else "model": made.size})
    _context.set_world(world)
    return world


def _unjoined() -> str | None:
    """Who started this process as one of several, while it has not joined them."""
    place = joining.place()
    if place is None or joining.joined():
        return None
    return f"{place.launcher} started it as one of {place.size}"


_context.set_launcher(_unjoined)


def is_launched() -> bool:
    """Whether a launcher started this process as one of several, which `init_distributed` then finds.

    Example:
        >>> from unisync.distributed import is_launched
        >>> is_launched()
        False
    """
    return joining.place() is not None


def _launched_engine(
    backend: str, replicas: int | None, axes: dict[str, int] | None, name: str | None, device: Any, timeout_s: Any
) -> Engine:
    """The engine of the world that a launcher started this process for."""
    place = joining.place()
    assert place is not None
    if axes is not None and math.prod(axes.values()) != place.size:
        raise ArgumentError(
            f"`mode` must have {place.size} replicas, as many as {place.launcher} started processes, as the product of "
            f"its axes, got {axes}. Try: mode={{'data': {place.size}}}."
        )
    module = import_launched(backend)
    if name is not None and name not in module.ENGINES:
        raise ArgumentError(
            f"`engine` must carry a world of processes, since {place.launcher} started {place.size} of them, got "
            f"{name!r}. Try: engine={module.ENGINES[0]!r}, or leave it out."
        )
    if replicas is not None and replicas != place.size:
        _notice(f"{place.launcher} started {place.size} processes, each a replica; replicas={replicas} is passed over")
    if timeout_s is None:
        timeout_s = 600.0 if place.timeout_s is None else place.timeout_s
    previous = _context.world()
    if previous is not None:
        previous.end()  # one process can be in one group of its framework's at a time
    member = joining.member(keeps_mpi=getattr(module, "KEEPS_MPI", False))
    member.channel.begin()
    prepare = getattr(module, "prepare", None)
    if prepare is not None:
        prepare(member)
    return module.make_engine(name, member, device, float(timeout_s))


_noticed: set[str] = set()


def _notice(text: str) -> None:
    """Say something once, on rank 0 alone."""
    place = joining.place()
    if text not in _noticed and place is not None and place.rank == 0:
        _noticed.add(text)
        print(f"unisync: {text}", file=sys.stderr, flush=True)


def _axes(mode: Any) -> dict[str, int] | None:
    """The lengths of the axes, slowest first; None if they follow from the number of replicas."""
    if isinstance(mode, str):
        if mode not in ("data_parallel", "model_parallel"):
            raise unknown("mode", mode, ("data_parallel", "model_parallel"))
        return None
    if not isinstance(mode, Mapping) or not mode:
        raise ArgumentTypeError(
            f"`mode` must be a name or a dict of axes, got {mode!r}. Try: mode={{'data': 2, 'model': 2}}."
        )
    for name, length in mode.items():
        if name not in AXES:
            raise unknown("mode", name, AXES)
        if isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < 1:
            raise ArgumentError(f"`mode` must give axis {name!r} a length of at least 1, got {length!r}. Try: 1.")
    return {name: int(mode[name]) for name in AXES if name in mode}


def _refuse_per_replica(leaf: Any) -> None:
    if isinstance(leaf, PerReplica):
        raise ArgumentTypeError(
            "a tree for the replicas must hold arrays, got a us.PerReplica. Try: pass it as it is, or world.first."
        )

"""What an engine is: it runs a function once per replica, moves trees to the replicas, and carries their collectives.

The replicas of an engine are all in this process, or each is a process of its own ("launched"; see `_launched.py`).

Each backend has its engines in `backends/<name>/engines.py`. An engine implements collectives of single arrays; what
concerns trees, dtypes, groups and stamps is written once, in `backends/_collectives.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal

from unisync._per_replica import PerReplica
from unisync._types import Tree
from unisync.errors import StateError

ReduceOp = Literal["sum", "max", "min", "prod"]
Groups = tuple[tuple[int, ...], ...]
"""A partition of all replicas, each group in order; every replica is in one group, and all groups are of one size."""


class Engine(ABC):
    """The replicas of one world.

    Attributes:
        name: "threads", "shard_map", "pmap" or "mirrored"; launched: "gloo", "nccl", "mpi", "distributed" or
            "multi_worker".
        backend: the backend's module.
        size: how many replicas the world has, in all processes.
        rank: the number of this process, which is that of its first replica.
        processes: how many processes there are.
        devices: the device of each local replica.
        timeout_s: how long a collective may wait for the others.
    """

    name: str
    backend: Any
    size: int
    rank: int = 0
    processes: int = 1
    devices: tuple[Any, ...]
    timeout_s: float
    uneven: bool = False  # whether replicas may bring arrays of different lengths to all_gather
    separate: bool = False  # whether `all_reduce_separate` spares the packing of large arrays

    # Running and moving.

    @abstractmethod
    def spmd(self, fn: Callable[..., Tree]) -> Callable[..., PerReplica]:
        """fn run once per replica at the same time, inside `_context.inside(Scope(...))`.

        An argument that is a PerReplica gives each replica its own tree; any other (trees of host or native arrays,
        Python values) is given to all. The result is a PerReplica of what fn returned. Compiled engines trace fn once
        per structure, shapes and dtypes of the arguments and keep the compiled program.
        """

    @abstractmethod
    def place(self, trees: Sequence[Tree]) -> PerReplica:
        """One tree of host or native arrays per local replica, moved to the replicas' devices."""

    @abstractmethod
    def replicate(self, tree: Tree) -> PerReplica:
        """A copy of the tree on every replica's device. No two replicas share memory that user code could write to."""

    @abstractmethod
    def end(self) -> None:
        """Give up threads, devices and memory. Called once; the engine is not used again."""

    # Collectives of one array, called inside a replica. groups is None for one group of all, else a checked partition.

    @abstractmethod
    def all_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Any:
        """The element-wise reduction over the group. For "sum", the vjp is the sum of the cotangents.

        x has a numeric dtype of at least 32 bits or int8/int16 (the caller widens half precision and bool).
        """

    @abstractmethod
    def all_gather(self, x: Any, groups: Groups | None) -> Any:
        """The group's arrays concatenated along axis 0 (which each has), in the group's order. Where replicas may have
        arrays of different lengths (threads, processes), lengths along axis 0 may differ."""

    @abstractmethod
    def reduce_scatter(self, x: Any, groups: Groups | None) -> Any:
        """The sum over the group, of which member i keeps the i-th of equal slices along axis 0."""

    @abstractmethod
    def broadcast(self, x: Any, root: int, groups: Groups | None) -> Any:
        """The array of the member at position `root` of the group."""

    @abstractmethod
    def all_to_all(self, x: Any, groups: Groups | None) -> Any:
        """Slice j along axis 0 (equal slices) goes to member j; what arrives is concatenated in the group's order."""

    @abstractmethod
    def permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        """x of replica `source` at replica `target` for each (source, target); zeros where nothing arrives."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all replicas."""

    @abstractmethod
    def replica_index(self) -> Any:
        """This replica's number in the world: an int, or an int array of shape () in a shared traced program."""

    # Host objects: engines whose replicas share one traced program refuse inside it.

    @abstractmethod
    def all_gather_object(self, value: Any, groups: Groups | None) -> list[Any]:
        """The group's values, in its order."""

    @abstractmethod
    def broadcast_object(self, value: Any, root: int, groups: Groups | None) -> Any:
        """The value of the member at position `root`."""

    # What an engine may do better than this.

    def all_reduce_mean(self, x: Any, groups: Groups | None) -> Any:
        """The mean over the group, of a floating-point or complex dtype; the vjp is the mean of the cotangents."""
        return self.backend.divide(self.all_reduce(x, "sum", groups), len(groups[0]) if groups else self.size)

    def all_reduce_separate(self, xs: Sequence[Any], ops: Sequence[str], groups: Groups | None) -> list[Any]:
        """As all_reduce, or all_reduce_mean for "mean", of several arrays through which no gradient is taken."""
        raise NotImplementedError

    def same_shapes(self, shapes: Sequence[tuple[int, ...]], groups: Groups | None) -> bool:
        """Whether the members of the group are known to bring arrays of the same shapes; all of them ask."""
        return not self.uneven

    def traced(self, x: Any) -> bool:
        """Whether a gradient is being taken through x, where the engine can tell."""
        return False

    def send(self, x: Any, to: int) -> None:
        """Hand a copy of x to a replica, without waiting for it."""
        raise _shared_program("send", self.name)

    def recv(self, like: Any, source: int) -> Any:
        """The array that a replica sent, of the shape and dtype of `like`."""
        raise _shared_program("recv", self.name)

    def waited(self) -> tuple[int | None, int | None]:
        """When the calling replica began to wait in its last collective, and when it went on; None if unknown."""
        return None, None

    def start_all_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Handle:
        """all_reduce without waiting; engines without an asynchronous form do it at once."""
        return Done(self.all_reduce(x, op, groups))

    def overlapped_gradients(
        self, objective: Callable[..., Any], figures: Callable[..., Any], counts: Callable[..., bool]
    ) -> Callable[..., tuple[tuple[Any, Any], list[Any], Tree]] | None:
        """value_and_grad(objective, 0, True) whose gradients come summed over the replicas, if the engine can overlap
        that with the backward pass, to be called within `spmd` where no other gradient is being taken; else None.

        Args:
            objective: (params, *args) → (value, aux).
            figures: (aux, *args) → arrays of shape () of one dtype, which are summed too. Called once a pass, in which
                no gradient is taken.
            counts: (*args) → whether this replica's gradients count; else they are zeros.

        Returns:
            (params, *args) → ((value, aux), sums of the figures, sums of the gradients of value).
        """
        return None

    def report(self) -> str:
        """What each replica did last, in words, for hang reports."""
        return ""


def _shared_program(op: str, engine: str) -> StateError:
    return StateError(
        f"us.{op} must be called where replicas run code of their own, got it on engine {engine!r}, whose replicas "
        "all run one program. Try: us.permute(x, [(source, target)])."
    )


class Handle(ABC):
    """An all-reduce under way."""

    @abstractmethod
    def wait(self) -> Any:
        """The result, once it is there; may be called again."""

    @abstractmethod
    def is_completed(self) -> bool:
        """Whether `wait` would return at once."""


class Done(Handle):
    """The handle of a result that is there already."""

    __slots__ = ("_result",)

    def __init__(self, result: Any) -> None:
        self._result = result

    def wait(self) -> Any:
        return self._result

    def is_completed(self) -> bool:
        return True

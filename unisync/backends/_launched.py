"""Engines of launched worlds: this process is one replica of many, each a process of its own.

What is common to them: running a function as this process's replica, host objects over the job's channel, and turning
what an engine raises, or waits for without end, into an error that names the replica, the call and its line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from unisync import _context, _dispatch, tree as _tree
from unisync._context import Scope
from unisync._events import Ring
from unisync._per_replica import PerReplica
from unisync._types import Tree
from unisync.backends._channel import Channel
from unisync.backends._collectives import checked_result
from unisync.backends._engine import Engine, Groups
from unisync.errors import StateError


@final
@dataclass(frozen=True, slots=True)
class Member:
    """This process's place in a launched world.

    Attributes:
        rank: its number, 0 to size - 1.
        size: how many processes there are.
        local_rank: its number among those of this machine.
        local_size: how many this machine has.
        address: the address of this machine that the others reach it by; "127.0.0.1" if all are on this machine.
        interface: the name of the network interface with that address, such as "lo".
        channel: the way to the others that depends on no framework.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    interface: str
    channel: Channel


class LaunchedEngine(Engine):
    """One replica, this process, of a world of processes; the engines that run code as it is need no more than
    collectives of single arrays."""

    def __init__(self, backend: Any, member: Member, device: Any, timeout_s: float) -> None:
        self.backend, self.member, self.channel = backend, member, member.channel
        self.rank, self.size, self.processes = member.rank, member.size, member.size
        self.devices = (device,)
        self.timeout_s = timeout_s
        self.ring = Ring()
        self.scope = Scope(self, self.rank, self.ring)
        self._objects = 0  # counts object collectives, which the channel tells apart by name
        self._ended = False
        self.channel.watch(self.ring, timeout_s, self.uneven)

    def spmd(self, fn: Callable[..., Tree]) -> Callable[..., PerReplica]:
        def run(*args: Any, **kwargs: Any) -> PerReplica:
            self.check_alive()
            own = [a[0] if type(a) is PerReplica else a for a in args]
            named = {k: a[0] if type(a) is PerReplica else a for k, a in kwargs.items()}
            with _dispatch.backend(self.backend.NAME), _context.inside(self.scope):
                return PerReplica([checked_result(fn(*own, **named))])

        return run

    def check_alive(self) -> None:
        """Raises StateError after `end`."""
        if self._ended:
            raise StateError(
                "a world must be used before its end, got a call after it. Try: us.init_distributed(...) again."
            )

    def place(self, trees: Sequence[Tree]) -> PerReplica:
        def moved(leaf: Any) -> Any:
            return self.backend.to_device(self.backend.asarray(leaf), self.devices[0])

        return PerReplica([_tree.map(moved, tree) for tree in trees])

    def replicate(self, tree: Tree) -> PerReplica:
        return PerReplica([_tree.map(lambda leaf: self.backend.asarray(leaf, device=self.devices[0], copy=True), tree)])

    def replica_index(self) -> Any:
        return self.rank

    def all_gather_object(self, value: Any, groups: Groups | None) -> list[Any]:
        group = self.group(groups)
        return self.channel.exchange(self._object_name(group), value, group, self.timeout_s)

    def broadcast_object(self, value: Any, root: int, groups: Groups | None) -> Any:
        group = self.group(groups)
        own = value if self.rank == group[root] else None
        return self.channel.exchange(self._object_name(group), own, group, self.timeout_s)[root]

    def group(self, groups: Groups | None) -> tuple[int, ...]:
        """The group that this replica is in."""
        return tuple(range(self.size)) if groups is None else next(g for g in groups if self.rank in g)

    def _object_name(self, group: tuple[int, ...]) -> str:
        self._objects += 1
        return f"objects/{'.'.join(map(str, group))}/{self._objects}"

    def end(self) -> None:
        self._ended = True

    def report(self) -> str:
        return self.channel.report()

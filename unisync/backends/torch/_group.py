"""torch's process groups: how the processes of a world find each other, and the groups within it."""

from __future__ import annotations

import datetime
import socket
import sys
from typing import Any, final

import torch
import torch.distributed as dist

from unisync import _config
from unisync.backends._engine import Groups
from unisync.backends._launched import Member
from unisync.errors import StateError

_STORE_KEY = "/torch/store"  # of the process's whole life, not of one world
_JOINING_S = 60.0
"""How long the others may take to come to the making of a group, if a collective's timeout is shorter."""

_store: Any = None


@final
class ProcessGroups:
    """The process group of a world, and those of the groups within it.

    If the user has initialised torch.distributed, it is left as it is, and the world's group is one more in it.

    Args:
        member: this process.
        name: "gloo" or "nccl".
        device: this process's device.
        timeout_s: how long a collective may take.
    """

    def __init__(self, member: Member, name: str, device: torch.device, timeout_s: float) -> None:
        self._member, self._name = member, name
        self._timeout = datetime.timedelta(seconds=timeout_s)
        self._parts: dict[Groups, Any] = {}
        self._owns_all = not dist.is_initialized()
        bound = device if device.type == "cuda" else None
        if self._owns_all:
            store = dist.PrefixStore(f"world{member.channel.generation}", _own_store(member))  # type: ignore[attr-defined]
            # The timeout is one for joining, too: a process that imports slowly must not be late.
            member.channel.barrier("torch/joining", max(timeout_s, _JOINING_S))
            hook = sys.excepthook  # torch puts the rank before each line of a traceback, once more for each world
            dist.init_process_group(
                name, store=store, rank=member.rank, world_size=member.size, timeout=self._timeout, device_id=bound
            )
            sys.excepthook = hook
            self.whole: Any = dist.group.WORLD
        else:
            _check_same_world(member)
            self.whole = dist.new_group(list(range(member.size)), timeout=self._timeout, backend=name)
        self._all_connected("torch/joined")

    def _all_connected(self, name: str) -> None:
        """Wait until all are connected: who then ended its world at once would break the connections of the others."""
        self._member.channel.barrier(name, max(self._timeout.total_seconds(), _JOINING_S))

    def within(self, groups: Groups | None) -> Any:
        """The process group of this process's group. Its ranks count in ascending order.

        torch wants every process to take part in the making of every group; as all have the same partition, they do.
        """
        if groups is None:
            return self.whole
        own = self._parts.get(groups)
        if own is None:
            for group in groups:
                made = dist.new_group(sorted(group), timeout=self._timeout, backend=self._name)
                if self._member.rank in group:
                    own = self._parts[groups] = made
            self._all_connected(f"torch/groups/{len(self._parts)}")
        return own

    def end(self) -> None:
        """Leave the groups, without waiting for anybody."""
        for group in self._parts.values():
            dist.destroy_process_group(group)
        if dist.is_initialized():
            dist.destroy_process_group(None if self._owns_all else self.whole)
        self._parts, self.whole = {}, None


def use_interface(name: str, interface: str) -> None:
    """Tell gloo and nccl which network interface to listen on, unless the user has. Left to itself gloo takes the one
    that the machine's name resolves to, which may be the loopback of a machine that others are to reach."""
    if interface and (name == "gloo" or interface != "lo"):
        _config.set_default(f"{name.upper()}_SOCKET_IFNAME", interface)


def _check_same_world(member: Member) -> None:
    if (dist.get_rank(), dist.get_world_size()) != (member.rank, member.size):
        raise StateError(
            f"torch.distributed must have been initialised as the launcher has it, rank {member.rank} of "
            f"{member.size}, got rank {dist.get_rank()} of {dist.get_world_size()}. Try: leave it to "
            "us.init_distributed."
        )


def _own_store(member: Member) -> Any:
    """The store that rank 0 holds; each world adds a prefix of its own."""
    global _store
    if _store is None:
        limit = datetime.timedelta(seconds=_JOINING_S)
        if member.rank == 0:
            # A socket of our own, since the store would listen on all addresses of the machine.
            listening = socket.socket(socket.AF_INET6 if ":" in member.address else socket.AF_INET)
            listening.bind((member.address, 0))
            port = listening.getsockname()[1]
            fd = listening.detach()
            _store = dist.TCPStore(  # type: ignore[attr-defined]
                member.address, port, None, True, limit, False, master_listen_fd=fd
            )
            member.channel.put(_STORE_KEY, [member.address, port])
        else:
            host, port = member.channel.get(_STORE_KEY, _JOINING_S)
            _store = dist.TCPStore(host, port, None, False, limit, False)  # type: ignore[attr-defined]
    return _store

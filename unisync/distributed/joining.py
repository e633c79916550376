"""How a process joins the launched world that it was started for: once in its life, the first time it is asked to."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

from unisync.backends import _channel
from unisync.backends._channel import Channel
from unisync.backends._launched import Member
from unisync.distributed import environment
from unisync.distributed.environment import Place
from unisync.errors import StateError

_lock = threading.Lock()
_known: list[Place | None] = []  # the process's place, once it has been asked for
_member: Member | None = None


def place() -> Place | None:
    """The process's place in a launched world; None if it runs alone, or is the only one."""
    with _lock:
        if not _known:
            found = environment.place()
            _known.append(found if found is not None and found.size > 1 else None)
        return _known[0]


def member() -> Member:
    """The process as a member of its launched world; the first call joins."""
    global _member
    found = place()
    assert found is not None
    with _lock:
        if _member is None:
            _member = _join(found)
        return _member


def _join(found: Place) -> Member:
    if found.coordinator is None:
        raise StateError(
            "the ranks must know their coordinator, got no address. Try: UNISYNC_COORDINATOR=HOST:PORT, of a free "
            "port on rank 0's machine, the same for all ranks."
        )
    channel = Channel(found.coordinator, found.job, found.rank, found.size)
    _channel.set_current(channel)
    return Member(
        found.rank,
        found.size,
        found.local_rank,
        found.local_size,
        found.address,
        interface(found.address),
        channel,
    )


def interface(address: str) -> str:
    """The network interface with an IPv4 address; "lo" if none has it."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl  # not on Windows

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            for _, name in socket.if_nameindex():
                with contextlib.suppress(OSError):
                    request = struct.pack("256s", name.encode()[:15])
                    answer = fcntl.ioctl(probe.fileno(), 0x8915, request)  # SIOCGIFADDR
                    if socket.inet_ntoa(answer[20:24]) == address:
                        return name
    return "lo"

"""How a process joins the launched world that it was started for: once in its life, the first time it is asked to."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import socket
import struct
import sys
import threading
import time
import traceback
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from unisync.backends import _channel, import_mpi
from unisync.backends._channel import Channel
from unisync.backends._launched import Member
from unisync.distributed import environment
from unisync.distributed.environment import Place
from unisync.errors import StateError

if TYPE_CHECKING:  # few processes are a coordinator too
    from unisync.distributed.coordinator import Coordinator

KEEPER = "rank 0"
"""Who holds a coordinator that is made here."""

CONNECT_S = 300.0
"""How long a process tries to reach the coordinator: rank 0 may start, and import its framework, much later."""

ENDING_S = 5.0
"""How long a process that raised, or has seen a verdict, may take to end; then it is ended."""

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


def joined() -> bool:
    """Whether the process has joined its launched world."""
    return _member is not None


def member(keeps_mpi: bool = False) -> Member:
    """The process as a member of its launched world; the first call joins.

    Args:
        keeps_mpi: whether MPI stays in use after the ranks have found each other by it.
    """
    global _member
    found = place()
    assert found is not None
    with _lock:
        if _member is None:
            _member = _join(found, keeps_mpi)
        return _member


def _join(found: Place, keeps_mpi: bool) -> Member:
    coordinator = None
    if found.coordinator is None:
        found, coordinator = _meet_over_mpi(found, keeps_mpi)
    elif found.rank == 0 and not (found.served and _listens(found.coordinator)):
        coordinator = _hosted(found)
    channel = _connected(found, None if coordinator is None else coordinator.address[1])
    _channel.set_current(channel)
    _leave_well(channel, coordinator)
    address = found.address or channel.own_address
    return Member(found.rank, found.size, found.local_rank, found.local_size, address, interface(address), channel)


def _listens(address: tuple[str, int]) -> bool:
    """Whether a launcher's coordinator is there, which listens before its processes start."""
    try:
        socket.create_connection(address, timeout=10.0).close()
    except OSError:
        return False
    return True


def _connected(found: Place, port: int | None) -> Channel:
    """The channel to the coordinator; if its port is not known, at one of those where it may be."""
    assert found.coordinator is not None
    host, first = found.coordinator
    ports = range(first, first + found.ports) if port is None else (port,)
    return Channel([(host, p) for p in ports], found.job, found.rank, found.size, CONNECT_S)


def _hosted(found: Place) -> Coordinator:
    """The coordinator at the first of the agreed ports that is free here."""
    from unisync.distributed.coordinator import Coordinator

    assert found.coordinator is not None
    host, first = found.coordinator
    why: OSError | None = None
    # A name that stands for a service, or an address behind a translation, is none of this machine's own.
    for bound in (host, ""):
        for port in range(first, first + found.ports):
            try:
                coordinator = Coordinator(found.size, found.job, bound, port, keeper=KEEPER)
            except OSError as error:
                why = error
            else:
                coordinator.start()
                return coordinator
    raise StateError(
        f"rank 0 must listen at one of {found.ports} ports from {host}:{first} on, got: {why}. Try: "
        "UNISYNC_COORDINATOR=HOST:PORT, of a free port on rank 0's machine, the same for all ranks."
    )


def _meet_over_mpi(found: Place, keeps_mpi: bool) -> tuple[Place, Coordinator | None]:
    """Rank 0 chooses a free port and tells the others by MPI, which started them."""
    mpi = import_mpi()
    if mpi is None or "MPI" not in f"{found.launcher}".upper():
        raise StateError(
            f"the ranks that {found.launcher} started must know a place to meet, got none. Try: "
            "UNISYNC_COORDINATOR=HOST:PORT, of a free port on rank 0's machine, the same for all ranks"
            + ("; or install unisync's extra mpi." if mpi is None else ".")
        )
    comm = mpi.COMM_WORLD
    if (comm.Get_rank(), comm.Get_size()) != (found.rank, found.size):
        raise StateError(
            f"mpi4py must belong to the MPI that started this process, which is rank {found.rank} of {found.size}, "
            f"got one that says {comm.Get_rank()} of {comm.Get_size()}. Try: the mpiexec that came with mpi4py's MPI, "
            "or UNISYNC_COORDINATOR=HOST:PORT."
        )
    from unisync.distributed.coordinator import Coordinator

    coordinator = told = None
    if found.rank == 0:
        local = found.local_size == found.size
        host = found.address or ("127.0.0.1" if local else socket.gethostbyname(socket.gethostname()))
        coordinator = Coordinator(found.size, secrets.token_hex(12), host, 0, keeper=KEEPER)
        coordinator.start()
        told = (host, coordinator.address[1], coordinator.job)
    told = comm.bcast(told)
    if not keeps_mpi:
        mpi.Finalize()  # it would make the end of one process wait for the others
    return replace(found, coordinator=told[:2], job=told[2], ports=1), coordinator


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


# The end of the process


def _leave_well(channel: Channel, coordinator: Coordinator | None) -> None:
    """Tell of an uncaught error; say bye at the end; and stay for the others if they need what is held here."""
    before = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        channel.failed("".join(traceback.format_exception(kind, error, trace)))
        _end_soon()
        before(kind, error, trace)

    pid = os.getpid()

    def leave() -> None:
        channel.close()
        if coordinator is not None and os.getpid() == pid:  # nothing serves in a child made by os.fork
            _stay(coordinator)

    sys.excepthook = tell
    atexit.register(leave)


def _stay(coordinator: Coordinator) -> None:
    """Serve until the others have left; a while only, once the world has failed."""
    failed_since: float | None = None
    while not coordinator.others_left(0):
        if coordinator.verdict is not None:
            failed_since = failed_since or time.monotonic()
            if time.monotonic() > failed_since + ENDING_S:
                break
        time.sleep(0.02)
    coordinator.close()


def _end_soon() -> None:
    """End the process though an engine waits for its peers at exit, as some do for minutes."""

    def end() -> None:
        time.sleep(ENDING_S)
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(1)

    threading.Thread(target=end, name="unisync-end", daemon=True).start()

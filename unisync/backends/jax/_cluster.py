"""jax.distributed: how this process joins the others, once in its life, and how it leaves them."""

from __future__ import annotations

import atexit
import contextlib
import inspect
import math
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.extend.backend
from jax._src import xla_bridge
from jax._src.lib import _jax  # type: ignore[attr-defined]

from unisync.backends._launched import Member
from unisync.backends.jax import _aborts, _failures, _world
from unisync.errors import CollectiveError, StateError

HEARTBEAT_S = 1200
"""How long jax's own service may not hear of a process, after which it ends the others: later than our own report."""

_member: Member | None = None  # of the world that was joined
_ours = False  # whether jax.distributed was started here
_port: list[socket.socket] = []  # reserves the port of jax's service, beside which gRPC binds


def join(member: Member, timeout_s: float) -> None:
    """Make the process one of jax's; a second world finds it made.

    Raises:
        StateError: jax has made its first array, or belongs to other processes.
    """
    global _member, _ours
    if _member is not None:
        return
    if not jax.distributed.is_initialized():
        _forget_unused_devices()
        _initialize(member, timeout_s)
        _ours = True
    if not xla_bridge.backends_are_initialized():
        jax.config.update("jax_num_cpu_devices", 1)  # whatever the environment asks for: a replica has one device
    with _gloo_at(member.interface):
        _world.reserve(1, max(timeout_s, 600.0))
        found = jax.process_index(), jax.process_count()
    if found != (member.rank, member.size):
        raise StateError(
            f"jax must belong to the processes that the launcher started, of which this is rank {member.rank} of "
            f"{member.size}, got process {found[0]} of {found[1]} from jax.distributed. Try: leave out "
            "jax.distributed.initialize, which us.init_distributed calls."
        )
    _member = member
    _aborts.hold(member.channel)
    _failures.watch(member.channel)
    if _ours:
        atexit.register(_leave)  # runs before the channel says bye, and before jax's own


def _initialize(member: Member, timeout_s: float) -> None:
    # With the service, SIGTERM is swallowed; without recoverability, the loss of one process ends all, and the end of
    # one waits for all.
    jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_enable_recoverability", True)
    if member.rank == 0:
        address = _reserved_address(member.address)
        member.channel.put("/jax/service", address)
    else:
        address = member.channel.get("/jax/service", timeout_s)
    jax.distributed.initialize(
        address,
        member.size,
        member.rank,
        local_device_ids=[member.local_rank] if member.local_size > 1 else None,
        cluster_detection_method="deactivate",
        coordinator_bind_address=address,
        initialization_timeout=math.ceil(timeout_s),
        heartbeat_timeout_seconds=max(HEARTBEAT_S, math.ceil(2 * timeout_s)),
    )


def _reserved_address(host: str) -> str:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind((host, 0))
    _port.append(reserved)
    port = reserved.getsockname()[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _forget_unused_devices() -> None:
    """Let jax make anew the clients that `UNISYNC_JAX_DEVICES` asked for: it must join before there are any."""
    if not xla_bridge.backends_are_initialized():
        return
    if jax.live_arrays():
        raise StateError(
            "a process must join its world before jax makes its first array, got arrays. "
            "Try: us.init_distributed() at the top of the script."
        )
    jax.extend.backend.clear_backends()


@contextlib.contextmanager
def _gloo_at(interface: str) -> Iterator[None]:
    """Have gloo listen at a network interface: its own choice is the address of the host's name, which need not have
    one, or may have one that others cannot reach. jax has no option for it (xla_bridge.make_cpu_client)."""
    make = getattr(_jax, "make_gloo_tcp_collectives", None)
    if make is None or "interface" not in _parameters(make):
        yield
        return

    def at_interface(*args: Any, **kwargs: Any) -> Any:
        return make(*args, **{"interface": interface, **kwargs})

    _jax.make_gloo_tcp_collectives = at_interface
    try:
        yield
    finally:
        _jax.make_gloo_tcp_collectives = make


def _parameters(function: Any) -> str:
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return function.__doc__ or ""


def device_of_each(member: Member, platform: str | None) -> list[Any]:
    """One device of each process, in their order."""
    devices = jax.devices(platform)
    own: dict[int, list[Any]] = {}
    for device in devices:
        own.setdefault(device.process_index, []).append(device)
    # The first: of accelerators each process sees its own alone (`local_device_ids`), and all must name the same ones.
    return [own[rank][0] for rank in sorted(own)]


# The end


def _leave() -> None:
    """Leave jax's processes; rank 0, whose process has the service that the others need, last."""
    assert _member is not None
    channel = _member.channel
    with contextlib.suppress(CollectiveError, StateError):
        if channel.verdict is None and channel.rank > 0:
            jax.distributed.shutdown()
            channel.put(f"/jax/left/{channel.rank}", True)
        elif channel.verdict is None:
            channel.bye()
            for rank in range(1, channel.size):
                channel.get(f"/jax/left/{rank}", math.inf)
    if channel.verdict is None:
        _aborts.let_go()


def _end_after_failure() -> None:
    """End a process whose world has failed: jax's own end would wait for devices that wait for a process."""
    if _member is None or _member.channel.verdict is None:
        return
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(1)


atexit.register(_end_after_failure)  # runs after the channel's, which is registered later, and before jax's

"""The devices of a world of replicas: how many CPU devices jax makes, with enough threads for their collectives.

jax settles both when it makes its CPU client, at the first array. More devices than one cost a single replica 10 to
25 %, so they are reserved only when a world of several replicas is made, or by `UNISYNC_JAX_DEVICES`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import jax

from unisync import _config
from unisync.errors import ArgumentError, ArgumentTypeError, StateError

RESERVED = 4  # devices of a first world, so that a second one may be larger

_threads = 0  # of the CPU client's pool, if it was made here
_warned = False

patience_s = 60.0
"""How long a replica waits for another before XLA ends the process, unless `reserve` or the user has changed it."""


def reserve(devices: int, timeout_s: float = 600.0) -> bool:
    """Make the CPU client with a number of devices and threads for them; False if jax has made it already.

    Args:
        devices: how many.
        timeout_s: how long a replica may wait for another before XLA may end the process.
    """
    global _threads, patience_s
    before = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
    settled = before >= 0 or _COUNT_FLAG in _config.variable("XLA_FLAGS")
    try:
        # Any change is refused once the client exists; setting what is set already is not.
        jax.config.update("jax_num_cpu_devices", max(before, devices) + 1)
    except RuntimeError:
        return False
    jax.config.update("jax_num_cpu_devices", before if settled and not 0 <= before < devices else devices)
    # An undocumented variable, from which XLA takes the size of its thread pools while it makes the client.
    _threads = max(8, 4 * devices, _whole_number(_config.variable("NPROC")))
    variables = {"NPROC": str(_threads)}
    if (0, 7) <= _jaxlib_version() < (0, 13):
        # XLA ends the process 60 s after a replica has begun to wait for another: too soon for our own report, or for
        # replicas that are late for a reason. It reads this once; a flag that it did not know would end it at once.
        flags = f"{_PATIENCE_FLAG}={int(timeout_s) + 30} {_config.variable('XLA_FLAGS')}"
        variables["XLA_FLAGS"] = flags
        # XLA counts from its own warning. What the user has set stands last, and holds.
        patience_s = _seconds(flags, _WARNING_FLAG, 20.0) + _seconds(flags, _PATIENCE_FLAG, 40.0)
    with _config.temporarily(variables):
        jax.local_devices(backend="cpu")
    return True


_COUNT_FLAG = "xla_force_host_platform_device_count"
_PATIENCE_FLAG = "--xla_cpu_collective_call_terminate_timeout_seconds"  # https://github.com/openxla/xla/pull/25399
_WARNING_FLAG = "--xla_cpu_collective_call_warn_stuck_timeout_seconds"


def _seconds(flags: str, name: str, default: float) -> float:
    """The value of a flag, of which the last counts."""
    found = re.findall(rf"{name}=(\d+)", flags)
    return float(found[-1]) if found else default


def _whole_number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _jaxlib_version() -> tuple[int, ...]:
    return tuple(int(part) for part in metadata.version("jaxlib").split(".")[:2])


def devices_for(replicas: int | None, device: Any, timeout_s: float) -> tuple[Any, ...]:
    """The device of each replica: of the platform of `device`, or these if it is a sequence; else of jax's default one.

    Raises:
        ArgumentError: there are not enough of an accelerator.
        StateError: jax has made fewer CPU devices already.
    """
    if isinstance(device, Sequence) and not isinstance(device, str):
        return _chosen(replicas, tuple(device))
    if not (device is None or isinstance(device, (str, jax.Device))):
        raise ArgumentTypeError(f"`device` must be a platform's name or a jax.Device, got {device!r}. Try: 'cpu'.")
    platform = device.partition(":")[0] if isinstance(device, str) else getattr(device, "platform", None)
    if replicas is not None and replicas > 1:
        reserve(max(RESERVED, replicas), max(timeout_s, 600.0))
    try:
        found = jax.local_devices(backend=platform)
    except RuntimeError as error:
        known = ", ".join(sorted({repr(d.platform) for d in jax.local_devices()}))
        raise ArgumentError(f"`device` must be one of {known}, got {device!r}. Try: device='cpu'.") from error
    on_cpu = found[0].platform == "cpu"
    count = replicas if replicas is not None else 1 if on_cpu else len(found)
    if count == 1 and device is not None:
        index = int(device.partition(":")[2] or 0) if isinstance(device, str) else found.index(device)
        return (found[index],)
    if count <= len(found):
        return tuple(found[:count])
    if not on_cpu:
        raise ArgumentError(
            f"`replicas` must be at most the {len(found)} {found[0].platform} devices here, got {count}. "
            f"Try: init_distributed(replicas={len(found)}), or device='cpu'."
        )
    raise StateError(
        f"`replicas` must be at most the {len(found)} CPU devices that jax has made, got {count}: jax settles their "
        f"number when it makes its first array. Try: call us.init_distributed(replicas={count}) before the first "
        f"array, or set UNISYNC_JAX_DEVICES={count} in the environment."
    )


def _chosen(replicas: int | None, devices: tuple[Any, ...]) -> tuple[Any, ...]:
    if not devices or len(set(devices)) != len(devices) or (replicas or len(devices)) != len(devices):
        raise ArgumentError(
            f"`device` must be one distinct device per replica, got {len(devices)} for replicas={replicas}. "
            "Try: device=None."
        )
    return devices


def has_threads(devices: Sequence[Any]) -> bool:
    """Whether the devices' collectives can be queued without starving each other of threads.

    On a CPU each queued program of each device may hold a thread while it waits for the others; with too few, XLA ends
    the process after some time.
    """
    if len(devices) == 1 or devices[0].platform != "cpu":
        return True
    return max(_threads, _whole_number(_config.variable("NPROC"))) >= 2 * len(devices)


def warn_of_few_threads(replicas: int) -> None:
    """Say once that steps will not be queued, and what would let them."""
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        "jax made its CPU devices before unisync could give them threads for collectives, so each step waits for the "
        f"one before it. Try: call us.init_distributed(replicas={replicas}) before the first array, or set "
        f"UNISYNC_JAX_DEVICES={max(RESERVED, replicas)} in the environment.",
        RuntimeWarning,
        stacklevel=4,
    )

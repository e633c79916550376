"""Who started this process, and which place it has among the others: the one reader of launchers' variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from unisync.errors import ArgumentError


@final
@dataclass(frozen=True, slots=True)
class Place:
    """A process's place in a launched world.

    Attributes:
        launcher: who started it: "unisync", "torchrun", "Open MPI", "MPICH", "SLURM", "environment".
        rank: its number, 0 to size - 1.
        size: how many processes there are.
        local_rank: its number among those of this machine.
        local_size: how many this machine has.
        job: what tells this job from others on the same machines.
        coordinator: host and port of the coordinator; None if rank 0 has to make it.
        address: this machine's address for the others.
        timeout_s: the default of `timeout_s`; None if it is not set.
    """

    launcher: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    job: str
    coordinator: tuple[str, int] | None
    address: str
    timeout_s: float | None


def place(environment: Mapping[str, str] | None = None) -> Place | None:
    """This process's place; None if it was started alone.

    Args:
        environment: the variables. Default: those of the process.

    Raises:
        ArgumentError: a variable has a value that cannot be.
    """
    env = os.environ if environment is None else environment
    if env.get("UNISYNC_RANK"):
        return _own(env)
    return None


def _own(env: Mapping[str, str]) -> Place | None:
    rank, size = _number(env, "UNISYNC_RANK"), _number(env, "UNISYNC_SIZE")
    _check(rank, size, "UNISYNC_RANK", "UNISYNC_SIZE")
    return Place(
        "unisync",
        rank,
        size,
        _number(env, "UNISYNC_LOCAL_RANK", rank),
        _number(env, "UNISYNC_LOCAL_SIZE", size),
        env.get("UNISYNC_JOB", ""),
        _host_port(env, "UNISYNC_COORDINATOR"),
        env.get("UNISYNC_ADDRESS") or "127.0.0.1",
        _seconds(env),
    )


def _check(rank: int, size: int, rank_name: str, size_name: str) -> None:
    if not 0 <= rank < size:
        raise ArgumentError(
            f"`{rank_name}` must be less than `{size_name}`, got {rank} of {size}. Try: unset both to run alone."
        )


def _number(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = env.get(name, "")
    if not text and default is not None:
        return default
    if not text.isdecimal():
        raise ArgumentError(f"`{name}` must be a whole number from 0 up, got {text!r}. Try: 0.")
    return int(text)


def _seconds(env: Mapping[str, str]) -> float | None:
    text = env.get("UNISYNC_TIMEOUT")
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ArgumentError(f"`UNISYNC_TIMEOUT` must be a positive number of seconds, got {text!r}. Try: 600.")
    return seconds


def _host_port(env: Mapping[str, str], name: str) -> tuple[str, int] | None:
    text = env.get(name)
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ArgumentError(f"`{name}` must be HOST:PORT, got {text!r}. Try: 127.0.0.1:29500.")
    return host.strip("[]"), int(port)

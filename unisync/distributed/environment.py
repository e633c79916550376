"""Who started this process, and which place it has among the others: the one reader of launchers' variables.

The first of these that is there decides: `unisync run` (UNISYNC_RANK), torchrun and whoever sets RANK and WORLD_SIZE,
Open MPI, MPICH and its kin, and a step of SLURM.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

from unisync.errors import ArgumentError

PORTS = 16
"""How many ports rank 0 tries for a coordinator of its own, where the launcher leaves it none."""


@final
@dataclass(frozen=True, slots=True)
class Place:
    """A process's place in a launched world.

    Attributes:
        launcher: who started it, in words.
        rank: its number, 0 to size - 1.
        size: how many processes there are.
        local_rank: its number among those of this machine.
        local_size: how many this machine has.
        job: what tells this job from others on the same machines.
        coordinator: host and port of the coordinator; None if no variable says where it may be.
        ports: how many ports, from that one on, it may be at.
        served: whether the launcher may hold the coordinator; if it does not, rank 0 does.
        address: this machine's address for the others; None if it follows from the way to the coordinator.
        timeout_s: the default of `timeout_s`; None if it is not set.
    """

    launcher: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    job: str = ""
    coordinator: tuple[str, int] | None = None
    ports: int = 1
    served: bool = False
    address: str | None = None
    timeout_s: float | None = None


def place(environment: Mapping[str, str] | None = None) -> Place | None:
    """This process's place; None if it was started alone.

    Args:
        environment: the variables. Default: those of the process.

    Raises:
        ArgumentError: a variable has a value that cannot be.
    """
    env = os.environ if environment is None else environment
    for detect in (_unisync, _torchrun, _open_mpi, _mpich, _slurm):
        found = detect(env)
        if found is not None:
            if not 0 <= found.rank < found.size:
                raise ArgumentError(
                    f"the rank that {found.launcher} gives a process must be less than the number of processes, got "
                    f"{found.rank} of {found.size}. Try: unset its variables to run alone."
                )
            return _with_own_variables(found, env)
    return None


def _with_own_variables(found: Place, env: Mapping[str, str]) -> Place:
    """What the user may set under any launcher."""
    told = _host_port(env, "UNISYNC_COORDINATOR")
    if told is not None and not found.served:
        found = replace(found, coordinator=told, ports=1)
    return replace(
        found,
        job=env.get("UNISYNC_JOB") or found.job,
        address=env.get("UNISYNC_ADDRESS") or found.address,
        timeout_s=_seconds(env, "UNISYNC_TIMEOUT"),
    )


# One function for each launcher


def _unisync(env: Mapping[str, str]) -> Place | None:
    if not env.get("UNISYNC_RANK"):
        return None
    rank, size = _number(env, "UNISYNC_RANK"), _number(env, "UNISYNC_SIZE")
    local_rank, local_size = _number(env, "UNISYNC_LOCAL_RANK", rank), _number(env, "UNISYNC_LOCAL_SIZE", size)
    return Place(
        "unisync run" if env.get("UNISYNC_JOB") else "whoever set UNISYNC_RANK",
        rank,
        size,
        local_rank,
        local_size,
        coordinator=_host_port(env, "UNISYNC_COORDINATOR"),
        served=True,
        address="127.0.0.1" if local_size == size else None,
    )


def _torchrun(env: Mapping[str, str]) -> Place | None:
    if not (env.get("RANK") and env.get("WORLD_SIZE")):
        return None
    rank, size = _number(env, "RANK"), _number(env, "WORLD_SIZE")
    host, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    coordinator = None
    if host and port:
        first = _number(env, "MASTER_PORT")
        coordinator = host, (first + 1 if first + PORTS < 65536 else first - PORTS)
    local_size = _number(env, "LOCAL_WORLD_SIZE", size if _is_loopback(host) else 1)
    attempt = env.get("TORCHELASTIC_RESTART_COUNT", "")
    return Place(
        "torchrun" if env.get("TORCHELASTIC_RUN_ID") else "whoever set RANK and WORLD_SIZE",
        rank,
        size,
        _number(env, "LOCAL_RANK", rank if local_size == size else 0),
        local_size,
        _token("torchrun", host, port, env.get("TORCHELASTIC_RUN_ID", ""), attempt, str(size)),
        coordinator,
        PORTS,
    )


def _open_mpi(env: Mapping[str, str]) -> Place | None:
    if not env.get("OMPI_COMM_WORLD_RANK"):
        return None
    rank, size = _number(env, "OMPI_COMM_WORLD_RANK"), _number(env, "OMPI_COMM_WORLD_SIZE")
    local = _number(env, "OMPI_COMM_WORLD_LOCAL_RANK", 0), _number(env, "OMPI_COMM_WORLD_LOCAL_SIZE", 1)
    return Place("Open MPI", rank, size, *local)


def _mpich(env: Mapping[str, str]) -> Place | None:
    if not env.get("PMI_RANK") or not env.get("PMI_SIZE"):
        return None
    rank, size = _number(env, "PMI_RANK"), _number(env, "PMI_SIZE")
    local = _number(env, "MPI_LOCALRANKID", 0), _number(env, "MPI_LOCALNRANKS", 1)
    return Place("mpiexec", rank, size, *local)


def _slurm(env: Mapping[str, str]) -> Place | None:
    """A task of a step; a batch script itself, or an interactive shell, is none."""
    step = env.get("SLURM_STEP_ID", "")
    if not env.get("SLURM_PROCID") or not step.isdecimal() or int(step) >= 0xFFFFFF00:
        return None
    rank = _number(env, "SLURM_PROCID")
    size = _number(env, "SLURM_STEP_NUM_TASKS", _number(env, "SLURM_NTASKS", 1))
    node = _number(env, "SLURM_NODEID", 0)
    tasks = tasks_per_node(env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE", ""))
    local_size = tasks[node] if node < len(tasks) else 1
    hosts = first_host(env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST", ""))
    job = env.get("SLURM_JOB_ID", "0")
    token = _token("slurm", job, step, str(size))
    port = 20000 + int(token[:8], 16) % 40000
    host = "127.0.0.1" if local_size == size else hosts
    coordinator = (host, port) if host else None
    return Place("srun", rank, size, _number(env, "SLURM_LOCALID", 0), local_size, token, coordinator, PORTS)


def first_host(nodes: str) -> str:
    """The first host of a list as SLURM writes it.

    Example:
        >>> from unisync.distributed.environment import first_host
        >>> first_host("node[07-09,12]-ib,login1")
        'node07-ib'
    """
    found = re.match(r"([^\[,]*)(?:\[(\d+)[^\]]*\])?([^\[,]*)", nodes)
    return "" if found is None else found[1] + (found[2] or "") + found[3]


def tasks_per_node(text: str) -> list[int]:
    """How many tasks each node has, from SLURM's short form.

    Example:
        >>> from unisync.distributed.environment import tasks_per_node
        >>> tasks_per_node("4(x2),1")
        [4, 4, 1]
    """
    counts: list[int] = []
    for tasks, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(tasks)] * int(times or 1)
    return counts


# Values


def _token(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


def _number(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = env.get(name, "")
    if not text and default is not None:
        return default
    if not text.isdecimal():
        raise ArgumentError(f"`{name}` must be a whole number from 0 up, got {text!r}. Try: 0.")
    return int(text)


def _seconds(env: Mapping[str, str], name: str) -> float | None:
    text = env.get(name)
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ArgumentError(f"`{name}` must be a positive number of seconds, got {text!r}. Try: 600.")
    return seconds


def _host_port(env: Mapping[str, str], name: str) -> tuple[str, int] | None:
    text = env.get(name)
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ArgumentError(f"`{name}` must be HOST:PORT, got {text!r}. Try: 127.0.0.1:29500.")
    return host.strip("[]"), int(port)

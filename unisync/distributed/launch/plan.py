"""What is to be started: the job, this node's part in it, and what each rank is told through the environment."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from unisync import _config
from unisync.errors import ArgumentError

MATH_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
LAUNCHER = "UNISYNC_LAUNCHER"
"""A variable by which a launcher knows its own processes again, wherever they have gone."""


@final
@dataclass(frozen=True, slots=True)
class Job:
    """What the user asked this launcher for.

    Attributes:
        arguments: what follows the interpreter's name: a script or `-m` and a module, then its own arguments.
        backend: the name of the backend; None for the program's own choice.
        replicas: how many processes this node starts.
        timeout_s: how long a collective waits for a replica, and this launcher for the other nodes.
        log_dir: where each rank's output goes as well; None for nowhere.
        nodes: how many machines there are.
        node: the number of this one.
        rendezvous: HOST:PORT at which node 0 listens to the others; None for one machine.
    """

    arguments: tuple[str, ...]
    backend: str | None
    replicas: int
    timeout_s: float | None = None
    log_dir: Path | None = None
    nodes: int = 1
    node: int = 0
    rendezvous: str | None = None

    def check(self) -> None:
        """Raises ArgumentError for what cannot be."""
        if self.replicas < 1:
            raise ArgumentError(f"`--replicas` must be at least 1, got {self.replicas}. Try: --replicas 2.")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ArgumentError(f"`--timeout` must be positive, got {self.timeout_s:g}. Try: --timeout 600.")
        if self.nodes < 1:
            raise ArgumentError(f"`--nnodes` must be at least 1, got {self.nodes}. Try: --nnodes 2.")
        if not 0 <= self.node < self.nodes:
            raise ArgumentError(
                f"`--node-rank` must be from 0 to {self.nodes - 1} for --nnodes {self.nodes}, got {self.node}. "
                "Try: 0 on the first machine, 1 on the next."
            )
        if self.nodes > 1 and self.rendezvous is None:
            raise ArgumentError(
                f"`--rendezvous` must be given for --nnodes {self.nodes}. Try: --rendezvous HOST:29400, with the first "
                "machine's address, on every machine."
            )


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """The job, and what all nodes have agreed on: all that is needed to start this node's processes.

    Attributes:
        job: what the user asked this launcher for.
        token: names the job; who does not know it is not let in.
        launcher: names this launcher, in the environment of all that it starts.
        sizes: how many processes each node starts; ranks count through the nodes.
        coordinator: HOST:PORT of the job's coordinator.
        addresses: of each node, the address that the others reach it by.
    """

    job: Job
    token: str
    launcher: str
    sizes: tuple[int, ...]
    coordinator: str
    addresses: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many processes there are in all."""
        return sum(self.sizes)

    @property
    def ranks(self) -> range:
        """The ranks of this node."""
        return self.ranks_of(self.job.node)

    def ranks_of(self, node: int) -> range:
        """The ranks of a node."""
        first = sum(self.sizes[:node])
        return range(first, first + self.sizes[node])

    def shared(self) -> dict[str, Any]:
        """What the other nodes must know, as JSON."""
        return {
            "token": self.token,
            "sizes": self.sizes,
            "coordinator": self.coordinator,
            "addresses": self.addresses,
            "timeout_s": self.job.timeout_s,
        }

    def environment(self, rank: int | None = None) -> dict[str, str]:
        """The whole environment of a rank of this node; without what differs between ranks if none is named."""
        own = {
            "UNISYNC_SIZE": str(self.size),
            "UNISYNC_LOCAL_SIZE": str(self.job.replicas),
            "UNISYNC_COORDINATOR": self.coordinator,
            "UNISYNC_JOB": self.token,
            "UNISYNC_ADDRESS": self.addresses[self.job.node],
            LAUNCHER: self.launcher,
        }
        if rank is not None:
            own |= {"UNISYNC_RANK": str(rank), "UNISYNC_LOCAL_RANK": str(rank - self.ranks.start)}
        if self.job.backend is not None:
            own["UNISYNC_BACKEND"] = self.job.backend
        if self.job.timeout_s is not None:
            own["UNISYNC_TIMEOUT"] = str(self.job.timeout_s)
        # Two ranks with a BLAS thread per core each run 21 times slower than with one. Output must not wait in buffers.
        threads = str(max(1, cores() // self.job.replicas))
        return _config.child_environment(own, {**dict.fromkeys(MATH_THREADS, threads), "PYTHONUNBUFFERED": "1"})

    def command(self) -> list[str]:
        """The command line of a rank."""
        return [sys.executable, *self.job.arguments]


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

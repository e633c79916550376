"""How the ranks of this machine are started: as Python processes, on MPI with a seat at its process manager."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import final

from unisync.distributed.launch import mpi
from unisync.distributed.launch.plan import Plan
from unisync.distributed.launch.processes import Command

NEED_SEATS = frozenset({"numpy"})
"""The backends whose worlds of processes are MPI's."""


def _need_seats(plan: Plan) -> bool:
    return plan.job.backend in NEED_SEATS and plan.size > 1


@final
class Managing:
    """MPI's process manager of a job on several machines, which runs on the first; nothing for other jobs.

    Attributes:
        proxies: the command of each machine's part of it; empty where there is none.
    """

    def __init__(self, plan: Plan) -> None:
        self.proxies: list[list[str]] = []
        self._manager: mpi.Manager | None = None
        if _need_seats(plan) and plan.job.nodes > 1:
            self._manager = mpi.Manager(list(zip(plan.addresses, plan.sizes, strict=True)), plan.environment())
            self.proxies = self._manager.commands

    def __enter__(self) -> Managing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._manager is not None:
            self._manager.close()


@final
class Seating:
    """The commands of this machine's ranks, and what must live as long as they do.

    Args:
        plan: the job.
        proxy: the command of this machine's part of the process manager, in a job of several machines.
    """

    def __init__(self, plan: Plan, proxy: Sequence[str] | None = None) -> None:
        self._plan = plan
        self._seats: mpi.Seats | None = None
        if _need_seats(plan):
            command = mpi.local_command(plan.size) if proxy is None else mpi.localized(proxy)
            self._seats = mpi.Seats(command, plan.job.replicas, plan.environment())

    def commands(self) -> list[Command]:
        """One for each rank of this machine."""
        plan, argv = self._plan, tuple(self._plan.command())
        if self._seats is None:
            return [Command(rank, argv, plan.environment(rank)) for rank in plan.ranks]
        return [
            Command(seat.rank, argv, plan.environment(seat.rank) | seat.environment, seat.descriptors)
            for seat in self._seats.seats
        ]

    def release(self) -> None:
        """The processes have started, and have inherited what they need."""
        if self._seats is not None:
            self._seats.release()

    def close(self) -> None:
        """The processes have ended."""
        if self._seats is not None:
            self._seats.close()

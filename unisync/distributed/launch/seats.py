"""How the ranks of this machine are started: as Python processes, on MPI with a seat at its process manager."""

from __future__ import annotations

from typing import final

from unisync.distributed.launch import mpi
from unisync.distributed.launch.plan import Plan
from unisync.distributed.launch.processes import Command

NEED_SEATS = frozenset({"numpy"})
"""The backends whose worlds of processes are MPI's."""


@final
class Seating:
    """The commands of this machine's ranks, and what must live as long as they do.

    Args:
        plan: the job.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._seats: mpi.Seats | None = None
        if plan.job.backend in NEED_SEATS and plan.size > 1:
            self._seats = mpi.Seats(mpi.local_command(plan.size), plan.size, plan.environment())

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

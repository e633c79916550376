"""This machine's processes of a launch: started by a plan, signalled together, gone without a trace at the end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from typing import final

from unisync.distributed.launch.events import Events
from unisync.distributed.launch.output import Output
from unisync.distributed.launch.plan import Plan
from unisync.distributed.launch.processes import Child, Keeper, kill_leftovers
from unisync.distributed.launch.seats import Seating


@final
class LocalRanks:
    """The processes of one machine. Puts "ended" with a Child to the events, and "unread" if nobody reads its output.

    Args:
        plan: what to start.
        events: where to tell what happens.
        make_output: makes the Output, given what it calls when nobody reads it any more.
        proxy: the command of MPI's process manager for this machine, in a job of several.
        folder: a folder that is to go if this process is killed.

    Attributes:
        running: the ranks that have not ended.
        statuses: how the others ended.
        signalled: those that were sent a signal from here.
        output: what they print.
    """

    def __init__(
        self,
        plan: Plan,
        events: Events,
        make_output: Callable[[Callable[[], None]], Output],
        proxy: Sequence[str] | None = None,
        folder: str | None = None,
    ) -> None:
        self.running: set[int] = set()
        self.statuses: dict[int, int] = {}
        self.signalled: set[int] = set()
        self.output = make_output(lambda: events.put("unread"))
        self._launcher = plan.launcher
        self._children: list[Child] = []
        self._due: list[tuple[float, signal.Signals]] = []
        self._keeper = Keeper(plan.launcher, folder)
        self._seating: Seating | None = None
        try:
            self._start(plan, events, proxy)
        except BaseException:
            self.end()
            raise

    def _start(self, plan: Plan, events: Events, proxy: Sequence[str] | None) -> None:
        self._seating = Seating(plan, proxy)
        for command in self._seating.commands():
            child = Child(command)
            self._children.append(child)
            self.running.add(child.rank)
            self._keeper.add(child)
            self.output.add(child)
        self._seating.release()
        self.output.start()
        for child in self._children:
            child.watch(lambda child: events.put("ended", child))

    def ended(self, child: Child) -> int:
        """Take note of a child's end; its status."""
        assert child.status is not None
        self.running.discard(child.rank)
        self.statuses[child.rank] = child.status
        return child.status

    def terminate(self, after_s: float, kill_after_s: float) -> None:
        """Send SIGTERM after a while, and SIGKILL a while later, to those that still run; the earliest call counts."""
        now = time.monotonic() + after_s
        if not self._due or now < self._due[0][0]:
            self._due = [(now, signal.SIGTERM), (now + kill_after_s, signal.SIGKILL)]

    def act(self) -> float:
        """Send the signals that are due; seconds until the next one, at most 1."""
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            _, number = self._due.pop(0)
            for child in self._children:
                if child.rank in self.running:
                    self.signalled.add(child.rank)
                    child.send(number)
        return max(0.0, min(1.0, self._due[0][0] - now)) if self._due else 1.0

    def end(self) -> None:
        """End what is left, pass on the rest of the output, and clean up."""
        for child in self._children:
            child.send(signal.SIGKILL)
        if self._seating is not None:
            self._seating.close()  # before its processes would be taken for leftovers
        kill_leftovers(self._children, self._launcher)
        self.output.finish()
        self._keeper.dismiss()

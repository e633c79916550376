"""A running job, watched by its first (or only) machine: what failed first, and that all end with it."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from typing import Any, final

from unisync.backends._channel import Verdict
from unisync.distributed.coordinator import Coordinator
from unisync.distributed.launch.events import Events
from unisync.distributed.launch.local import LocalRanks
from unisync.distributed.launch.nodes import Hub
from unisync.distributed.launch.plan import Plan
from unisync.distributed.launch.processes import describe, exit_code

OWN_END_S = 3.0
"""How long the other ranks have, after a failure, to end by themselves with an error of their own."""

TERM_S = 2.0
"""How long a process then has from SIGTERM to SIGKILL."""

USER_TERM_S = 5.0
"""The same when the user ends the job."""

FAR_S = 3.0
"""How long to wait for the other machines to say that their processes have been killed."""


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """How a launch ended.

    Attributes:
        code: the exit code of the whole: 0, the first failing rank's, or 128 + a signal's number.
        kind: "done", "stopped" by the user, "lost" (a machine), or the verdict's: "failed", "left", "mismatch",
            "timeout".
        rank: the rank that failed first; None if none did, or if it is no rank's fault.
        text: what went wrong, in words; ends with the rank's traceback if it has one.
    """

    code: int
    kind: str = "done"
    rank: int | None = None
    text: str = ""


def stopped_by(number: int | None, where: str = "") -> Outcome:
    """The outcome of a job that the user ended by a signal."""
    number = number or signal.SIGTERM
    return Outcome(128 + number, "stopped", None, f"ended by {signal.Signals(number).name}{where}")


@final
class Watch:
    """Waits until all ranks have ended, and sees to it that they do when one fails.

    Args:
        plan: the job.
        events: where all that happens is told.
        local: this machine's ranks.
        coordinator: of the job.
        hub: the way to the other machines; None if there are none.
    """

    def __init__(
        self, plan: Plan, events: Events, local: LocalRanks, coordinator: Coordinator, hub: Hub | None
    ) -> None:
        self._events, self._local, self._coordinator, self._hub = events, local, coordinator, hub
        self._far = {node: set(plan.ranks_of(node)) for node in range(1, len(plan.sizes))}  # that run elsewhere
        self._statuses: dict[int, int] = {}
        self._signalled: set[int] = set()  # ranks that a launcher ended
        self._words: dict[int, str] = {}  # the last ones of ranks elsewhere
        self._first: int | None = None  # the rank that ended badly before all others
        self._verdict: Verdict | None = None
        self._lost = ""  # which machine has gone
        self._stopped: Outcome | None = None
        self._far_end = float("inf")  # when to give up on other machines

    def wait(self) -> None:
        """Wait until all ranks have ended."""
        while self._local.running or any(self._far.values()):
            event = self._events.next(self._local.act())
            if event is not None:
                getattr(self, f"_on_{event.what}")(event.value)
            if time.monotonic() > self._far_end:
                self._far = {}

    def _on_ended(self, child: Any) -> None:
        status = self._local.ended(child)
        self._note(child.rank, status, child.rank in self._local.signalled)

    def _on_remote(self, value: tuple[int, dict[str, Any]]) -> None:
        node, message = value
        if message["t"] == "ended":
            rank = int(message["rank"])
            self._far.get(node, set()).discard(rank)
            self._words[rank] = str(message["words"])
            self._note(rank, int(message["status"]), bool(message["signalled"]))
        elif message["t"] == "stop":
            self._end_by(int(message["number"]), f" on node {node}")

    def _note(self, rank: int, status: int, signalled: bool) -> None:
        self._statuses[rank] = status
        if signalled:
            self._signalled.add(rank)
        if signalled or self._stopped is not None:
            return
        self._coordinator.exited(rank, describe(status), status == 0)
        if status != 0:
            self._first = rank if self._first is None else self._first
            self._fail()
        self._hurry_culprit()

    def _on_verdict(self, verdict: Verdict) -> None:
        if self._stopped is None:
            self._verdict = verdict
            self._fail()
            self._hurry_culprit()

    def _hurry_culprit(self) -> None:
        """Once the others have ended with an error of their own, the one to blame need not be waited for."""
        running = self._local.running.union(*self._far.values())
        if self._verdict is not None and running == {self._verdict.rank}:
            self._terminate(0.0, TERM_S)

    def _on_lost(self, value: tuple[int, str]) -> None:
        node, why = value
        self._far.pop(node, None)
        if self._stopped is None and not self._lost:
            self._lost = f"node {node}'s launcher {why}"
            self._fail()

    def _on_stop(self, number: int) -> None:
        self._end_by(number, " on node 0" if self._hub is not None else "")

    def _on_unread(self, value: None) -> None:
        if self._stopped is None:
            self._end_by(signal.SIGPIPE, "")

    def _fail(self) -> None:
        # A program that has no world cannot know of the failure, and need not be waited for.
        self._terminate(OWN_END_S if self._coordinator.joined else 0.0, TERM_S)

    def _end_by(self, number: int, where: str) -> None:
        self._terminate(0.0, USER_TERM_S if self._stopped is None else 0.0)
        self._stopped = self._stopped or stopped_by(number, where)

    def _terminate(self, after_s: float, kill_after_s: float) -> None:
        self._local.terminate(after_s, kill_after_s)
        self._far_end = min(self._far_end, time.monotonic() + after_s + kill_after_s + FAR_S)
        if self._hub is not None:
            self._hub.broadcast({"t": "terminate", "after_s": after_s, "kill_after_s": kill_after_s})

    # The end

    def outcome(self) -> Outcome:
        """How it ended, once all have."""
        if self._stopped is not None:
            return self._stopped
        self._await_verdict()
        rank = self._first if self._verdict is None else self._verdict.rank
        if rank is None:
            return Outcome(1, "lost", None, self._lost) if self._lost else Outcome(0)
        status = self._statuses.get(rank, 0)
        own = status != 0 and rank not in self._signalled
        kind = "failed" if self._verdict is None else self._verdict.kind
        return Outcome(exit_code(status) if own else 1, kind, rank, self._text(rank))

    def _await_verdict(self) -> None:
        """The coordinator takes a moment to judge a failure; the processes may all have ended by then."""
        end = time.monotonic() + 1.0
        while self._first is not None and self._verdict is None and time.monotonic() < end:
            event = self._events.next(0.1)
            if event is not None and event.what == "verdict":
                self._verdict = event.value

    def _text(self, rank: int) -> str:
        lost = f"{self._lost}\n" if self._lost else ""
        if self._verdict is not None and self._coordinator.joined:
            text = self._verdict.text
        else:
            text = f"rank {rank} {describe(self._statuses[rank])}"
        words = self._words.get(rank) or self._local.output.last_words(rank)
        if words and "Traceback" not in text:
            text += f"\nIts last words:\n{words}"
        return lost + text

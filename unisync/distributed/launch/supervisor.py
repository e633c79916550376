"""One launch on this machine from its first process to its last: what failed first, and that all end with it."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, final

from unisync.backends._channel import Verdict
from unisync.distributed.coordinator import Coordinator
from unisync.distributed.launch.output import Output
from unisync.distributed.launch.plan import Job, Plan
from unisync.distributed.launch.processes import (
    Child,
    Command,
    Keeper,
    describe,
    exit_code,
    kill_leftovers,
)
from unisync.distributed.launch.seats import Seating

OWN_END_S = 3.0
"""How long the other ranks have, after a failure, to end by themselves with an error of their own."""

TERM_S = 2.0
"""How long a process has from SIGTERM to SIGKILL after a failure; and when the user ends the job."""
USER_TERM_S = 5.0


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """How a launch ended.

    Attributes:
        code: the exit code of the whole: 0, the first failing rank's, or 128 + a signal's number.
        kind: "done", "stopped" by the user, or what the verdict says: "failed", "left", "mismatch", "timeout".
        rank: the rank that failed first; None if none did, or if it is no rank's fault.
        text: what went wrong, in words; ends with the rank's traceback if it has one.
    """

    code: int
    kind: str = "done"
    rank: int | None = None
    text: str = ""


@final
class Supervisor:
    """Starts the ranks of a job on this machine, and stays until the last process has gone.

    Args:
        job: what is to be run.
        make_output: makes the Output, given what it calls when nobody reads it any more.
        folder: a folder that is to go if this process is killed.
    """

    def __init__(
        self,
        job: Job,
        make_output: Callable[[Callable[[], None]], Output],
        folder: Path | None = None,
    ) -> None:
        self._job = job
        self._events: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._output = make_output(lambda: self._events.put(("unread", None)))
        self._folder = folder
        self._children: dict[int, Child] = {}
        self._running: set[int] = set()
        self._statuses: dict[int, int] = {}
        self._signalled: set[int] = set()  # the ranks that were ended from here
        self._first: int | None = None  # the rank that ended badly before all others
        self._verdict: Verdict | None = None
        self._stopped: int | None = None  # the exit code that the user's signal asks for
        self._steps: list[tuple[float, signal.Signals]] = []  # when which signal is due

    def stop(self, number: int) -> None:
        """End all because of a signal; a second one does not wait. May be called in a signal's handler."""
        self._events.put(("stop", number))

    def run(self) -> Outcome:
        """Start the processes, and wait until all have ended.

        Raises:
            KeyboardInterrupt: Ctrl-C, where it is not turned into `stop`; all processes have ended then too.
        """
        coordinator = Coordinator(self._job.replicas, secrets.token_hex(16), on_verdict=self._on_verdict)
        host, port = coordinator.address
        plan = Plan(
            self._job, coordinator.job, secrets.token_hex(8), (self._job.replicas,), f"{host}:{port}", ("127.0.0.1",)
        )
        coordinator.start()
        keeper = Keeper(plan.launcher, None if self._folder is None else str(self._folder))
        seating = Seating(plan)
        try:
            for command in seating.commands():
                self._begin(command, keeper)
            seating.release()
            self._output.start()
            for child in self._children.values():
                child.watch(lambda child: self._events.put(("ended", child)))
            self._wait(coordinator)
        finally:
            kill_leftovers(self._children.values(), plan.launcher)
            seating.close()
            self._output.finish()
            keeper.dismiss()
        try:
            return self._outcome(coordinator)
        finally:
            coordinator.close()

    def _begin(self, command: Command, keeper: Keeper) -> None:
        child = Child(command)
        self._children[child.rank] = child
        self._running.add(child.rank)
        keeper.add(child)
        self._output.add(child)

    def _on_verdict(self, verdict: Verdict) -> None:
        self._events.put(("verdict", verdict))

    # The loop

    def _wait(self, coordinator: Coordinator) -> None:
        while self._running:
            self._signal_what_is_due()
            try:
                word, value = self._events.get(timeout=self._patience_s())
            except Empty:
                continue
            if word == "ended":
                self._on_end(value, coordinator)
            elif word == "verdict" and self._stopped is None:
                self._verdict = value
                self._fail(OWN_END_S)
            elif word == "stop":
                self._on_stop(value)
            elif word == "unread" and self._stopped is None:
                self._on_stop(signal.SIGPIPE)

    def _on_end(self, child: Child, coordinator: Coordinator) -> None:
        assert child.status is not None
        self._running.discard(child.rank)
        self._statuses[child.rank] = child.status
        if self._stopped is not None or child.rank in self._signalled:
            return
        coordinator.exited(child.rank, describe(child.status), child.status == 0)
        if child.status != 0:
            if self._first is None:
                self._first = child.rank
            self._fail(OWN_END_S if coordinator.joined else 0.0)

    def _fail(self, own_end_s: float) -> None:
        """Let the others end by themselves, then end them."""
        if not self._steps:
            now = time.monotonic() + own_end_s
            self._steps = [(now, signal.SIGTERM), (now + TERM_S, signal.SIGKILL)]

    def _on_stop(self, number: int) -> None:
        now = time.monotonic()
        again = self._stopped is not None
        self._stopped = self._stopped or 128 + number
        self._steps = [(now, signal.SIGKILL)] if again else [(now, signal.SIGTERM), (now + USER_TERM_S, signal.SIGKILL)]

    def _signal_what_is_due(self) -> None:
        while self._steps and self._steps[0][0] <= time.monotonic():
            _, number = self._steps.pop(0)
            for rank in self._running:
                self._signalled.add(rank)
                self._children[rank].send(number)

    def _patience_s(self) -> float:
        return max(0.0, min(1.0, self._steps[0][0] - time.monotonic())) if self._steps else 1.0

    # The end

    def _outcome(self, coordinator: Coordinator) -> Outcome:
        if self._stopped is not None:
            name = signal.Signals(self._stopped - 128).name
            return Outcome(self._stopped, "stopped", None, f"ended by {name}")
        self._await_verdict()
        rank = self._first if self._verdict is None else self._verdict.rank
        if rank is None:
            return Outcome(0)
        status = self._statuses.get(rank, 0)
        own = status != 0 and rank not in self._signalled
        kind = "failed" if self._verdict is None else self._verdict.kind
        return Outcome(exit_code(status) if own else 1, kind, rank, self._text(rank, coordinator))

    def _await_verdict(self) -> None:
        """The coordinator takes a moment to judge a failure; the processes may all have ended by then."""
        end = time.monotonic() + 1.0
        while self._first is not None and self._verdict is None and time.monotonic() < end:
            try:
                word, value = self._events.get(timeout=0.1)
            except Empty:
                continue
            if word == "verdict":
                self._verdict = value

    def _text(self, rank: int, coordinator: Coordinator) -> str:
        if self._verdict is not None and coordinator.joined:
            text = self._verdict.text
        else:  # a program without a world: nothing is known but how it ended
            text = f"rank {rank} {describe(self._statuses[rank])}"
        if "Traceback" not in text and (words := self._output.last_words(rank)):
            text += f"\nIts last words:\n{words}"
        return text

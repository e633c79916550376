"""The part of a launch on a machine that is not the first: does what node 0 says, and tells it how its ranks end."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable
from typing import Any, final

from unisync.distributed.launch.events import Events
from unisync.distributed.launch.local import LocalRanks
from unisync.distributed.launch.nodes import Link, join
from unisync.distributed.launch.output import Output
from unisync.distributed.launch.plan import Job, Plan
from unisync.distributed.launch.watch import TERM_S, USER_TERM_S, Outcome, stopped_by
from unisync.errors import ArgumentError

WORDS_BYTES = 16_384


def follow(job: Job, events: Events, make_output: Callable[[Callable[[], None]], Output]) -> Outcome:
    """Join the job, start this machine's ranks, and stay until node 0 says how it all ended.

    Raises:
        StateError: node 0 cannot be reached in time.
        ArgumentError: node 0 refuses this machine.
    """
    link = join(job, events)
    if link is None:
        return stopped_by(events.asked)
    try:
        follower = _Follower(job, events, link)
        message = follower.await_start()
        if message is not None:
            plan = _plan(job, message)
            local = LocalRanks(plan, events, make_output, message["proxy"])
            try:
                follower.wait(local)
            finally:
                local.end()
        assert follower.outcome is not None
        return follower.outcome
    finally:
        link.close()


def _plan(job: Job, message: dict[str, Any]) -> Plan:
    job = dataclasses.replace(job, timeout_s=message["timeout_s"])
    sizes, addresses = tuple(message["sizes"]), tuple(message["addresses"])
    return Plan(job, message["token"], secrets.token_hex(8), sizes, message["coordinator"], addresses)


@final
class _Follower:
    """What has been heard from node 0."""

    def __init__(self, job: Job, events: Events, link: Link) -> None:
        self._job, self._events, self._link = job, events, link
        self.outcome: Outcome | None = None

    def await_start(self) -> dict[str, Any] | None:
        """Node 0's word to start; None if there is an outcome already."""
        while self.outcome is None:
            event = self._events.next(1.0)
            if event is None:
                continue
            if event.what == "order" and event.value["t"] == "start":
                return event.value
            if event.what == "order" and event.value["t"] == "refused":
                raise ArgumentError(event.value["why"])
            if event.what == "stop":
                self.outcome = stopped_by(event.value)
            self._hear(event.what, event.value)
        return None

    def wait(self, local: LocalRanks) -> None:
        """Until all ranks of this machine have ended, and node 0 has said how the job did."""
        while local.running or self.outcome is None:
            event = self._events.next(local.act())
            if event is None:
                continue
            if event.what == "ended":
                self._tell(local, event.value.rank, local.ended(event.value))
            elif event.what in ("stop", "unread"):
                number = event.value or 13
                local.terminate(0.0, USER_TERM_S if self._events.asked is None else 0.0)
                self._link.send({"t": "stop", "number": number})
            elif event.what == "order" and event.value["t"] == "terminate":
                local.terminate(event.value["after_s"], event.value["kill_after_s"])
            elif self._hear(event.what, event.value):
                local.terminate(0.0, TERM_S)

    def _tell(self, local: LocalRanks, rank: int, status: int) -> None:
        words = local.output.last_words(rank)[-WORDS_BYTES:]
        signalled = rank in local.signalled
        self._link.send({"t": "ended", "rank": rank, "status": status, "signalled": signalled, "words": words})

    def _hear(self, what: str, value: Any) -> bool:
        """Whether this was the end of the job."""
        if self.outcome is None and what == "lost":
            self.outcome = Outcome(1, "lost", None, f"node 0's launcher {value[1]}")
        elif self.outcome is None and what == "order" and value["t"] == "end":
            self.outcome = Outcome(int(value["code"]), value["kind"], None, value["text"])
        else:
            return False
        return True

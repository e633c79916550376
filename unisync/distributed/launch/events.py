"""What happens to a launcher, in one queue: from threads, from signal handlers, and from the other machines."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, final


class Happened(NamedTuple):
    """Something that a launcher must act upon.

    `what` is "ended" (value: a Child), "verdict" (a Verdict), "stop" (a signal's number), "unread" (nobody reads the
    output), "remote" (node, message), "order" (node 0's message), "lost" (node, why).
    """

    what: str
    value: Any = None


@final
class Events:
    """The queue.

    Attributes:
        asked: the number of the signal by which the user ended the job; None as long as there was none.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Happened] = SimpleQueue()  # whose put may interrupt itself
        self.asked: int | None = None

    def put(self, what: str, value: Any = None) -> None:
        """Add one."""
        self._queue.put(Happened(what, value))

    def stop(self, number: int) -> None:
        """Note a signal that ends the job; may be called in its handler."""
        self.asked = self.asked or number
        self.put("stop", number)

    def next(self, patience_s: float) -> Happened | None:
        """The next one; None if there is none in time."""
        try:
            return self._queue.get(timeout=patience_s)
        except Empty:
            return None

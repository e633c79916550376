"""Where every collective and step leaves its stamps: a ring per replica for hang reports, and a sink for the profiler.

Four stamps in nanoseconds of `time.perf_counter_ns`: `arrival` (inputs ready, collective issued), `blocked` (the caller
starts to wait), `resumed` (it goes on), `done` (the result is complete locally). One that an engine cannot see is None.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

RING_LENGTH = 256

now_ns = time.perf_counter_ns

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Event(NamedTuple):
    """One collective (or step) of one replica."""

    replica: int
    sequence: int  # counts the replica's collectives from 0
    op: str  # "all_reduce(mean)", "step", ...
    site: str  # "file.py:12", the line of the user's code
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    arrival_ns: int
    blocked_ns: int | None = None
    resumed_ns: int | None = None
    done_ns: int | None = None


sink: Callable[[Event], Any] | None = None
"""What each finished event is given to; None until a profiler installs itself."""


class Ring:
    """The last events of one replica; the newest may still be waiting (its `done_ns` is None)."""

    __slots__ = ("events", "sequence")

    def __init__(self, length: int = RING_LENGTH) -> None:
        self.events: deque[Event] = deque(maxlen=length)
        self.sequence = 0

    def begin(self, replica: int, op: str, site: str, shape: tuple[int, ...], dtype: str, size: int) -> Event:
        """Note the arrival of a collective."""
        event = Event(replica, self.sequence, op, site, shape, dtype, size, now_ns())
        self.sequence += 1
        self.events.append(event)
        return event

    def end(self, event: Event, blocked_ns: int | None, resumed_ns: int | None) -> None:
        """Note its end."""
        finished = Event(*event[:8], blocked_ns, resumed_ns, now_ns())
        events = self.events
        for i in range(-1, -len(events) - 1, -1):  # the event begun last, unless several are under way
            if events[i] is event:
                events[i] = finished
                break
        if sink is not None:
            sink(finished)


def site() -> str:
    """The line of the innermost caller outside this package, as "file.py:12"."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return "?" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"

"""Where every collective and step leaves its stamps: a ring per replica for hang reports, and a sink for the profiler.

Four stamps in nanoseconds of `time.perf_counter_ns`: `arrival` (inputs ready, collective issued), `blocked` (the caller
starts to wait), `resumed` (it goes on), `done` (the result is complete locally). One that an engine cannot see is None.
"""

from __future__ import annotations

import functools
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
    sequence: int  # counts the replica's collectives from 0; send and recv are not counted
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

    def begin(
        self, replica: int, op: str, site: str, shape: tuple[int, ...], dtype: str, size: int, counted: bool = True
    ) -> Event:
        """Note the arrival of a collective; of one that only some replicas take part in, if it is not counted."""
        event = Event(replica, self.sequence, op, site, shape, dtype, size, now_ns())
        self.sequence += counted
        self.events.append(event)
        return event

    def end(self, event: Event, blocked_ns: int | None, resumed_ns: int | None) -> None:
        """Note its end."""
        finished = Event(*event[:8], blocked_ns, resumed_ns, now_ns())  # a quarter of the time of _replace
        events = self.events
        if events[-1] is event:
            events[-1] = finished
        else:  # several are under way
            for i in range(2, len(events) + 1):
                if events[-i] is event:
                    events[-i] = finished
                    break
        if sink is not None:
            sink(finished)


def site() -> str:
    """The line of the user's code that calls, as "file.py:12": of the innermost caller outside this package and, if
    there is one, outside of what is installed, such as the framework that traces a function."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    if frame is None:
        return "?"
    innermost = frame
    while frame is not None and _is_foreign(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        frame = innermost
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


@functools.cache
def _is_foreign(file: str) -> bool:
    """Whether a file is of this package, an installed one, the standard library, or none at all."""
    roots = (PACKAGE, _STANDARD_LIBRARY, "<frozen")
    return file.startswith(roots) or f"{os.sep}site-packages{os.sep}" in file or "__autograph_generated" in file


_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep

"""What a process says of itself to the coordinator, derived from its ring and its threads' stacks.

All of it is worked out in the channel's thread: nothing is added to a collective's own path.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, final

from unisync._events import PACKAGE, Event, Ring, now_ns
from unisync.backends._rendezvous import told

NEWEST, FEW = 48, 4
"""How many collectives a report tells of at most, and while they go on."""

_CALLS = {("_collectives.py", name) for name in ("noted", "_separately", "_Later.__init__")}
"""The functions, by file and qualified name, inside which the newest collective is under way."""

_WAITS = {("_collectives.py", "_Later._finish"), ("overlap.py", "_Run.finish")}
"""Those inside which the oldest collective of those begun without waiting is waited for."""

_LIBRARIES = (PACKAGE, "<frozen", *{sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")})
"""Where code is that no user wrote."""


class Step(NamedTuple):
    """A step of a compiled program."""

    number: int
    program: str
    sites: Sequence[str]
    start_ns: int

    def told(self) -> str:
        """The step in words."""
        calls = f", whose collectives are: {'; '.join(self.sites)}" if self.sites else ""
        return f"step {self.number} of {self.program}{calls}"


@final
class Account:
    """The present state of this process.

    Attributes:
        step: the newest step of a compiled program; None before the first.
        waiting: what the process waits in for a device, and since when; None if it does not.
        started: how many steps were started, which may be more than was told step by step; None if nobody counts.
    """

    def __init__(self) -> None:
        self.step: Step | None = None
        self.waiting: tuple[str, float] | None = None
        self.started: Callable[[], int] | None = None
        self._ring: Ring | None = None
        self._timeout_s = 0.0
        self._epoch = 0
        self._uneven = False
        self._told = -1  # how many collectives there were at the last report
        self._seen: tuple[Any, float] = (None, 0.0)  # the event that the process waits in, and since when

    def watch(self, ring: Ring | None, timeout_s: float, epoch: int, uneven: bool = False) -> None:
        """Tell of another ring, of a new world."""
        self.step = self.waiting = self.started = None
        self._ring, self._timeout_s, self._epoch, self._uneven = ring, timeout_s, epoch, uneven

    def stepped(self) -> None:
        """All steps started so far have ended."""
        self.waiting = None

    def state(self, full: bool = False) -> dict[str, Any]:
        """The report: of few collectives while they go on, of more when they have stopped, or if it is to be full."""
        ring = self._ring
        events = _events(ring)
        sequence = ring.sequence if ring is not None else 0
        idle, self._told = full or self._told == sequence, sequence
        counted = [e for e in events if not e.op.startswith(("send", "recv"))]
        state: dict[str, Any] = {
            "epoch": self._epoch,
            "count": sequence,
            "timeout": self._timeout_s,
            "events": [(e.sequence, self._signature(e), told(e)) for e in counted[-NEWEST if idle else -FEW :]],
            "last": told(events[-1]) if events else "",
            "at": main_line(),
            "collective": self._collective(events),
        }
        step, waiting = self.step, self.waiting
        steps = max(0 if step is None else step.number + 1, 0 if self.started is None else self.started())
        if steps:
            state["steps"] = steps
        if step is not None:
            state["programs"] = [(step.number, step.program, step.told())]
        if waiting is not None and state["collective"] is None:
            text, since = waiting
            age_s = time.monotonic() - since
            if step is not None and (not events or events[-1].arrival_ns < step.start_ns):
                state["step"] = (step.number, text or step.told(), age_s)
            else:  # in the program of a single collective
                state["collective"] = (state["count"] - 1, text or state["last"], age_s)
        return state

    def current(self) -> str:
        """The call that the process is in or was in last, in words; empty before the first."""
        events = _events(self._ring)
        if events:
            return told(events[-1])
        return self.step.told() if self.step is not None else ""

    def told(self, rank: int) -> str:
        """The newest collectives, in words."""
        lines = [f"rank {rank} is at {main_line() or '?'}; its newest collectives:"]
        for e in _events(self._ring)[-8:]:
            end = "not finished" if e.done_ns is None else f"took {(e.done_ns - e.arrival_ns) / 1e6:.3f} ms"
            lines.append(f"  {told(e)}: {end}")
        if self.step is not None:
            lines.append(f"  {self.step.told()}")
        return "\n".join(lines)

    def _collective(self, events: list[Event]) -> tuple[int, str, float] | None:
        """The collective that the process waits in: its number, words, and for how many seconds."""
        unfinished = [e for e in events if e.done_ns is None]
        inside = _inside() if unfinished else set()
        if not inside:
            self._seen = (None, 0.0)
            return None
        later = not inside.isdisjoint(_WAITS)
        event = unfinished[0] if later else unfinished[-1]
        if self._seen[0] is not event:
            # One begun without waiting is waited for since now, not since it began.
            self._seen = (event, now_ns() if later else event.arrival_ns)
        return event.sequence, told(event), (now_ns() - self._seen[1]) / 1e9

    def _signature(self, event: Event) -> str:
        shape = event.shape
        if self._uneven and event.op.split("(")[0] == "all_gather":
            shape = shape[1:]
        return f"{event.op} {event.dtype} {shape}"


def _events(ring: Ring | None) -> list[Event]:
    while ring is not None:
        try:
            return list(ring.events)
        except RuntimeError:  # it changed meanwhile
            continue
    return []


def _inside() -> set[tuple[str, str]]:
    """The functions of _CALLS and _WAITS that threads of this process are in."""
    found: set[tuple[str, str]] = set()
    with _no_collection():
        for frame in list(sys._current_frames().values()):
            while frame is not None:
                code = frame.f_code
                if code.co_filename.startswith(PACKAGE):
                    found.add((os.path.basename(code.co_filename), code.co_qualname))
                frame = frame.f_back
    return found & (_CALLS | _WAITS)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing is collected in a block that looks at frames of other threads. Python makes the objects for them as they
    are asked for; a collection that this set off could run a destructor that lets the other thread go on, and the
    frames would be gone while Python still refers to them (seen with torch's process groups on Python 3.11)."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def main_line() -> str:
    """The line of the user's code that the main thread is at; empty outside of it, as at the end of the process."""
    with _no_collection():
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
            frame = frame.f_back
        return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"

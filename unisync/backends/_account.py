"""What a process says of itself to the coordinator, derived from its ring and its threads' stacks.

All of it is worked out in the channel's thread: nothing is added to a collective's own path.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from collections.abc import Sequence
from typing import Any, final

from unisync._events import PACKAGE, Event, Ring, now_ns
from unisync.backends._rendezvous import told

NEWEST = 32
"""How many collectives a report tells of."""

CALLS = frozenset({"noted", "_separately", "_finish"})
"""The functions of `_collectives.py` inside which a collective is under way."""


_LIBRARIES = (PACKAGE, "<frozen", *{sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")})
"""Where code is that no user wrote."""


@final
class Account:
    """The present state of this process.

    Attributes:
        step: number, program and collectives of the newest step of a compiled program; None before the first.
        waiting: what the process waits in for a device, and since when; None if it does not.
    """

    def __init__(self) -> None:
        self.step: tuple[int, str, Sequence[str]] | None = None
        self.waiting: tuple[str, float] | None = None
        self._ring: Ring | None = None
        self._timeout_s = 0.0
        self._epoch = 0
        self._uneven = False
        self._seen: tuple[Any, float] = (None, 0.0)  # the event that the process waits in, and since when

    def watch(self, ring: Ring | None, timeout_s: float, epoch: int, uneven: bool = False) -> None:
        """Tell of another ring, of a new world."""
        self.step = self.waiting = None
        self._ring, self._timeout_s, self._epoch, self._uneven = ring, timeout_s, epoch, uneven

    def stepped(self) -> None:
        """All steps started so far have ended."""
        self.waiting = None

    def state(self) -> dict[str, Any]:
        """The report."""
        ring = self._ring
        events = _events(ring)
        counted = [e for e in events if not e.op.startswith(("send", "recv"))]
        state: dict[str, Any] = {
            "epoch": self._epoch,
            "count": ring.sequence if ring is not None else 0,
            "timeout": self._timeout_s,
            "events": [(e.sequence, self._signature(e), told(e)) for e in counted[-NEWEST:]],
            "last": told(events[-1]) if events else "",
            "at": main_line(),
            "collective": self._collective(events),
        }
        step, waiting = self.step, self.waiting
        if step is not None:
            number, program, _ = step
            state["steps"] = number + 1
            state["programs"] = [(number, program, _step_told(step))]
            if waiting is not None:
                text = waiting[0] or _step_told(step)
                state["step"] = (number, text, time.monotonic() - waiting[1])
        return state

    def current(self) -> str:
        """The call that the process is in or was in last, in words; empty before the first."""
        events = _events(self._ring)
        if events:
            return told(events[-1])
        return _step_told(self.step) if self.step is not None else ""

    def told(self, rank: int) -> str:
        """The newest collectives, in words."""
        lines = [f"rank {rank} is at {main_line()}; its newest collectives:"]
        for e in _events(self._ring)[-8:]:
            end = "not finished" if e.done_ns is None else f"took {(e.done_ns - e.arrival_ns) / 1e6:.3f} ms"
            lines.append(f"  {told(e)}: {end}")
        if self.step is not None:
            lines.append(f"  {_step_told(self.step)}")
        return "\n".join(lines)

    def _collective(self, events: list[Event]) -> tuple[int, str, float] | None:
        """The collective that the process waits in: its number, words, and for how many seconds."""
        unfinished = [e for e in events if e.done_ns is None]
        if not unfinished or not (inside := _inside()):
            self._seen = (None, 0.0)
            return None
        event = unfinished[0] if "_finish" in inside else unfinished[-1]
        if self._seen[0] is not event:
            # One begun without waiting is waited for since now, not since it began.
            since = now_ns() if "_finish" in inside else event.arrival_ns
            self._seen = (event, since)
        return event.sequence, told(event), (now_ns() - self._seen[1]) / 1e9

    def _signature(self, event: Event) -> str:
        shape = event.shape
        if event.op == "all_gather" and self._uneven:
            shape = shape[1:]
        return f"{event.op} {event.dtype} {shape}"


def _events(ring: Ring | None) -> list[Event]:
    while ring is not None:
        try:
            return list(ring.events)
        except RuntimeError:  # it changed meanwhile
            continue
    return []


def _step_told(step: tuple[int, str, Sequence[str]]) -> str:
    number, program, sites = step
    calls = f", whose collectives are: {'; '.join(sites)}" if sites else ""
    return f"step {number} of {program}{calls}"


def _inside() -> set[str]:
    """The functions of CALLS that threads of this process are in."""
    found: set[str] = set()
    for frame in list(sys._current_frames().values()):
        while frame is not None:
            code = frame.f_code
            if code.co_name in CALLS and code.co_filename.endswith("_collectives.py"):
                found.add(code.co_name)
            frame = frame.f_back
    return found


def main_line() -> str:
    """The line of the user's code that the main thread is at."""
    innermost = frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    frame = frame or innermost
    return "?" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"

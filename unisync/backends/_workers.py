"""Long-lived threads, one per replica, and how many cores they share."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from unisync._events import PACKAGE, now_ns

PROMPT_NS = 300_000
"""A move to another core that takes longer has waited for another program."""

ALONE_NS = 1_000_000_000
"""For how long threads are then left where they are."""

_STANDARD_LIBRARY = os.path.dirname(threading.__file__) + os.sep


class Worker:
    """A thread that does what it is given, one thing after another."""

    def __init__(self, rank: int) -> None:
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_work, args=(self._inbox,), name=f"unisync-replica-{rank}", daemon=True)
        self._thread.start()

    def where(self) -> str:
        """The line that the thread is at, outside unisync and Python's own library."""
        ident = self._thread.ident
        frame = sys._current_frames().get(ident) if ident is not None else None
        while frame is not None and _inner(frame.f_code.co_filename):
            frame = frame.f_back
        return "?" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def give(self, job: Callable[[], None]) -> None:
        self._inbox.put(job)

    def stop(self) -> None:
        self._inbox.put(None)

    def join(self, timeout_s: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)


def _inner(file: str) -> bool:
    return file.startswith(PACKAGE) or (file.startswith(_STANDARD_LIBRARY) and "site-packages" not in file)


def _work(inbox: queue.SimpleQueue[Any]) -> None:
    while (job := inbox.get()) is not None:
        job()
        del job  # it holds the arguments


def stop(workers: list[Worker]) -> None:
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.join(1.0)
    workers.clear()


def spread(rank: int, size: int) -> None:
    """Move the calling thread to cores of its own, which it may then leave again.

    Linux often wakes a thread on the core of the one that wakes it, and looks only milliseconds later whether another
    is free (https://docs.kernel.org/scheduler/sched-domains.html): two replicas would take turns on one core. Where
    moving takes long, other programs have those cores, and threads are left alone for a while.
    """
    global _crowded_until_ns
    here, begin_ns = _current_core(), now_ns()
    if here is None or begin_ns < _crowded_until_ns:
        return
    allowed = os.sched_getaffinity(0)
    each = max(1, len(allowed) // size)
    first = rank * each % len(allowed)
    own = sorted(allowed)[first : first + each]
    if here in own:
        return
    with contextlib.suppress(OSError):  # a core that is being taken from the process
        os.sched_setaffinity(0, own)
        os.sched_setaffinity(0, allowed)
    end_ns = now_ns()
    if end_ns - begin_ns > PROMPT_NS:
        _crowded_until_ns = end_ns + ALONE_NS


_crowded_until_ns = 0


def _find_current_core() -> Callable[[], int | None]:
    if hasattr(os, "sched_setaffinity"):  # Linux, where the C library tells what Python does not
        with contextlib.suppress(OSError, AttributeError):
            return ctypes.PyDLL(None).sched_getcpu
    return lambda: None


_current_core = _find_current_core()


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""A report of the current world on SIGUSR1.

Only the main thread may set a handler, so one that another thread could not give back must serve the worlds that
follow. Python runs handlers between the main thread's instructions: never while that waits in an engine's C code, which
is when a report is wanted. In launched worlds the byte that Python writes at once (`signal.set_wakeup_fd`) wakes a
thread that prints the report.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

from unisync import _context

_SIGNAL = getattr(signal, "SIGUSR1", None)

_MOMENT_S = 0.2
"""How long the handler leaves the report to the thread that the signal wakes."""

_printed_at = 0.0


def report_on_signal(launched: bool) -> None:
    """Print the current world's report on SIGUSR1, unless somebody else uses the signal."""
    if _SIGNAL is None or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(_SIGNAL) is signal.SIG_DFL:
        signal.signal(_SIGNAL, _on_signal)
        if launched:
            _listen()


def give_back_signal() -> None:
    """Leave SIGUSR1 to its default again."""
    if _SIGNAL is None or threading.current_thread() is not threading.main_thread():
        return
    # In a launched world it is kept: between two worlds it would end the process.
    if signal.getsignal(_SIGNAL) is _on_signal and _wakeup is None:
        signal.signal(_SIGNAL, signal.SIG_DFL)


def _on_signal(number: int, frame: object) -> None:
    world = _context.world()
    if world is None or world.process_count == 1:
        _print_report()
    else:  # never wait here: the main thread may hold what the report needs
        threading.Thread(target=_print_if_nobody_did, args=(time.monotonic(),), daemon=True).start()


def _print_if_nobody_did(since: float) -> None:
    time.sleep(_MOMENT_S)
    if _printed_at < since - _MOMENT_S:
        _print_report()


def _print_report() -> None:
    global _printed_at
    _printed_at = time.monotonic()
    world = _context.world()
    print("unisync: no world" if world is None else world._engine.report(), file=sys.stderr, flush=True)


_wakeup: tuple[int, int] | None = None


def _listen() -> None:
    """Set a thread to wait for the byte of a signal, unless somebody else does."""
    global _wakeup
    if _wakeup is not None:
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        os.close(read)
        os.close(write)
        return
    _wakeup = read, write
    threading.Thread(target=_serve, args=(read,), name="unisync-signals", daemon=True).start()


def _serve(read: int) -> None:
    while data := os.read(read, 64):
        if _SIGNAL is not None and int(_SIGNAL) in data:
            with contextlib.suppress(Exception):
                _print_report()

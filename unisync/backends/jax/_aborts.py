"""What happens when jax's own threads want to end the process: first the channel may say why.

XLA and gloo call abort() for what a world of processes is expected to meet: the process of rank 0 has gone
("Terminating process because the JAX distributed service detected fatal errors", xla/pjrt/distributed/client.h), or two
processes bring different sizes to a collective (gloo's EnforceNotMet in a thread that catches nothing). No callback
prevents it: jaxlib's `missed_heartbeat_callback` cannot be one of Python (std::bad_cast). So the thread is held in a
handler of SIGABRT until the process has ended by the error that names the rank.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import time
from typing import Any

from unisync.backends._channel import GRACE_S, Channel

_SEEN_S = 3 * GRACE_S
"""How long the main thread may take to end the process after a verdict."""

_ALONE = (
    "jax has ended the process by abort(); see its own words before. It does so when the processes bring arrays of "
    "different sizes to one collective: keep shapes the same on all ranks."
)

_kept: list[Any] = []  # the handler that the process has, and the one that it had before


def hold(channel: Channel) -> None:
    """Hold abort() until there is a verdict, and then until the process has ended by it; without one, let it go on."""
    if _kept or not hasattr(ctypes, "pythonapi"):
        return

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def on_abort(number: int) -> None:
        channel.hurry()
        end = time.monotonic() + 2 * GRACE_S
        while channel.verdict is None and time.monotonic() < end:
            time.sleep(0.02)
        if channel.verdict is None:
            channel.failed(_ALONE)
            let_go()
            return
        time.sleep(_SEEN_S)
        channel.end_process()

    with contextlib.suppress(OSError, AttributeError):  # no C library as on Linux and macOS: aborts stay as they are
        set_handler = _signal_function()
        _kept[:] = on_abort, set_handler(signal.SIGABRT, ctypes.cast(on_abort, ctypes.c_void_p))


def let_go() -> None:
    """Give the signal back."""
    if _kept:
        _signal_function()(signal.SIGABRT, _kept[1])


def _signal_function() -> Any:
    function = ctypes.CDLL(None).signal
    function.argtypes, function.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    return function

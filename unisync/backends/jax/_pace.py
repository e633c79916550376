"""How far the host may run ahead of the replicas, and what is said when a step does not end.

XLA's CPU devices take the threads in which they wait for each other from one pool. Programs that queue up without bound
can take them all while some replica still needs one; after some time XLA then ends the process. So the host waits for
a step that it started some calls ago, which costs nothing while the queue is full.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, final

import jax

from unisync.errors import CollectiveTimeoutError

PERIOD = 8
"""How many steps lie between two at which the host waits; at most twice as many are under way."""

SMALL_BYTES = 2**16
"""The size up to which an array is kept after the user has dropped it, to ask it later whether it is there."""


@final
class Mark:
    """Finds, in a program's results, the smallest array, by which to tell that the step is done."""

    __slots__ = ("_path", "small")

    def __init__(self) -> None:
        self._path: tuple[Any, ...] | None = None
        self.small = True  # whether the array may be kept for a while

    def of(self, results: Any) -> Any:
        """The array; None if there is none."""
        if self._path is not None:
            try:
                found = results
                for key in self._path:
                    found = found[key]
                if isinstance(found, jax.Array):
                    return found
            except (TypeError, KeyError, IndexError):
                pass  # the function returned another structure before
        leaves = jax.tree_util.tree_flatten_with_path(results)[0]
        if not leaves:
            return None
        path, found = min(leaves, key=lambda entry: entry[1].nbytes)
        keys = [getattr(entry, "idx", getattr(entry, "key", None)) for entry in path]
        self._path = None if None in keys else tuple(keys)
        self.small = found.nbytes <= SMALL_BYTES
        return found


class Alarm(ABC):
    """What is done about steps that do not end."""

    period_s: float
    """How often to look after them."""

    @abstractmethod
    def check(self, waited_s: float) -> None:
        """Raise if the host, which waits for a step, has to give up."""

    @abstractmethod
    def look(self, pace: Pace) -> None:
        """Look after the steps under way, from another thread; the user's code may wait for one inside jax, where no
        exception reaches it."""

    def token(self, mark: Any) -> Any:
        """A small array that is there when a large one is, for `Pace.oldest`; None if nobody asks for that."""
        return None

    def ended(self, mark: Any) -> None:  # noqa: B027
        """Take note of an array for which the host has waited."""


@final
class Pace:
    """Bounds the steps under way, and watches them.

    Args:
        queued: whether steps may queue up; else each is waited for.
        alarm: what is done about those that do not end.
    """

    def __init__(self, queued: bool, alarm: Alarm) -> None:
        self.steps = 0
        self.started_s = 0.0
        self._period = PERIOD if queued else 1
        self._queued, self._alarm = queued, alarm
        self._waited_s = 0.0
        self._left = self._period
        self._full = not queued  # whether a period has passed already
        self._latest: Callable[[], Any] = _nothing  # an array of the last step
        self._earlier: Callable[[], Any] = _nothing  # one of a step at the end of the last period
        self._under_way: deque[Callable[[], Any]] = deque(maxlen=2 * PERIOD)
        self._watch: threading.Thread | None = None
        self._stop = threading.Event()

    def stepped(self, mark: Any, small: bool) -> None:
        """Note that a step has been started; waits if there are too many.

        Args:
            mark: an array of its results.
            small: whether it may be kept.

        Raises:
            CollectiveTimeoutError: one does not end.
        """
        self.steps += 1
        self.started_s = time.monotonic()
        self._latest = latest = _Kept(mark) if small else weakref.ref(mark)
        self._left = left = self._left - 1
        if small:
            self._under_way.append(latest)
        elif (token := self._alarm.token(mark)) is not None:
            self._under_way.append(_Kept(token))
        if self._watch is None:
            self._start_watch()
        if left:
            return
        self._left = self._period
        earlier, self._earlier = self._earlier(), self._latest
        if earlier is None or earlier.is_deleted():
            # Nothing left to ask: the memory of a large array or a donated one is gone. The latest step will do.
            earlier = mark if self._full else None
        self._full = self._queued
        awaited = earlier if self._queued else mark
        if awaited is not None:
            self.wait(awaited)

    def wait(self, mark: Any) -> None:
        """Wait for an array of a step.

        Raises:
            CollectiveError: it does not come.
        """
        if not mark.is_ready():
            begin = time.monotonic()
            # A wait inside jax could not be given up. Looking seldom leaves the cores to the replicas: a fourth of the
            # last wait, which was for as many steps, and never more than a millisecond too late.
            pause_s = min(1e-3, max(2e-5, self._waited_s / 4))
            while not mark.is_ready():
                time.sleep(pause_s)
                self._alarm.check(time.monotonic() - begin)
            self._waited_s = time.monotonic() - begin
        self._alarm.ended(mark)

    def unfinished(self) -> bool:
        """Whether the step started last is still under way, as far as its results tell."""
        mark = self._latest()
        return mark is not None and not mark.is_deleted() and not mark.is_ready()

    def oldest(self) -> Any:
        """What stands for the oldest step under way, the same as long as it is; None if none is known to be.

        Not the latest: a queue of long steps may take long though they go on.
        """
        while self._under_way:
            reference = self._under_way[0]
            mark = reference()
            if mark is not None and not mark.is_deleted() and not mark.is_ready():
                return reference
            if self._under_way[0] is reference:  # else a new step has pushed it out
                self._under_way.popleft()
        return self._latest if self.unfinished() else None

    def _start_watch(self) -> None:
        self._watch = threading.Thread(target=self._look, name="unisync-watch", daemon=True)
        self._watch.start()

    def _look(self) -> None:
        while not self._stop.wait(self._alarm.period_s):
            self._alarm.look(self)

    def end(self) -> None:
        """Wait for what is under way, and end the watch."""
        mark, self._latest, self._earlier = self._latest(), _nothing, _nothing
        self._under_way.clear()
        self._stop.set()
        if self._watch is not None:
            self._watch.join()
        if mark is not None and not mark.is_deleted():
            self.wait(mark)


@final
class LocalAlarm(Alarm):
    """Of steps within this process: an error if the host waits for one too long, a report if the user's code does.

    Args:
        timeout_s: how long to wait for a step.
        patience_s: how long a replica waits for another before XLA ends the process.
        report: says what was started and has not ended.
    """

    def __init__(self, timeout_s: float, patience_s: float, report: Callable[[], str]) -> None:
        self._timeout_s, self._patience_s, self._report = timeout_s, patience_s, report
        self._late_s = min(timeout_s, max(patience_s - 10, patience_s / 2))  # before XLA ends the process
        self._reported = 0
        self.period_s = min(5.0, self._late_s / 4)

    def check(self, waited_s: float) -> None:
        if waited_s > self._timeout_s:
            raise CollectiveTimeoutError(
                f"a step must end within timeout_s={self._timeout_s:g} s, got one that has not.\n{self._report()}\n"
                "Try: a longer timeout_s in us.init_distributed; this process cannot use its devices any more if a "
                "replica is stuck."
            )

    def look(self, pace: Pace) -> None:
        late = time.monotonic() - pace.started_s > self._late_s
        if late and self._reported != pace.steps and pace.unfinished():
            self._reported = pace.steps
            text = (
                f"unisync: a step has not ended for {self._late_s:g} s.\n{self._report()}\nOn a CPU, XLA ends the "
                f"process (SIGABRT) once a replica has waited {self._patience_s:g} s for another."
            )
            print(text, file=sys.stderr, flush=True)


@final
class _Kept:
    """A strong reference, called like a weak one."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self) -> Any:
        return self._value


def _nothing() -> None:
    return None

"""Where the threads of one run meet: each collective is a meeting of a group, and a failure wakes everybody.

A meeting knows what each member brings and checks that they agree. The work of a small one is done by the member who
comes last, while the others sleep; that of a large one is cut into parts, of which each member takes the next as
soon as it is awake.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

from unisync._events import Ring, now_ns
from unisync.backends._workers import spread
from unisync.errors import CollectiveMismatchError, CollectiveTimeoutError, ReplicaFailedError

SMALL_BYTES = 64 * 2**10
"""Up to this many bytes brought to a meeting, the last to come does all the work."""


@final
class Work:
    """What a meeting has to do: parts that any member may do, in any order.

    Attributes:
        parts: how many.
        do: does one of them.
        results: each member's result, by its position in the group, once all parts are done.
    """

    __slots__ = ("do", "parts", "results")

    def __init__(self, results: list[Any], parts: int = 0, do: Callable[[int], None] | None = None) -> None:
        self.results, self.parts, self.do = results, parts, do


class Bring(NamedTuple):
    """What a member comes to a meeting with.

    Attributes:
        call: what must be the same for all members, besides `groups`.
        groups: the partition, the same for all replicas; None for one group.
        value: what it brings.
        small: whether the last to come does all the work.
        work: what is to be done with the values that all members brought.
    """

    call: Any
    groups: Any
    value: Any
    small: bool
    work: Callable[[list[Any]], Work]


@final
class Meeting:
    """One collective of one group."""

    __slots__ = ("brought", "claim", "done", "members", "state", "work")

    def __init__(self, members: tuple[int, ...]) -> None:
        self.members = members
        self.brought: dict[int, Bring] = {}
        self.work: Work | None = None
        self.claim = itertools.count().__next__  # the next part that nobody does yet
        self.done = 0
        self.state = 0  # 0: not all there; 1: all there; 2: all parts done


@final
class Run:
    """One call of an spmd function: its replicas' meetings, and how it ended."""

    def __init__(self, rings: Sequence[Ring], timeout_s: float, where: Callable[[int], str]) -> None:
        size = len(rings)
        self.rings, self.timeout_s, self._where = rings, timeout_s, where
        self._everyone = tuple(range(size))
        self.lock = threading.Lock()
        self.error: BaseException | None = None  # the one to raise in the end
        self.results: list[Any] = [None] * size
        self.finished = [False] * size
        self.waits: list[tuple[int | None, int | None]] = [(None, None)] * size
        self._failure: Callable[[], BaseException] | None = None
        self._counts = [0] * size
        self._meetings: dict[tuple[int, int], Meeting] = {}
        self._partitions: dict[int, list[Any]] = {}  # sequence → [groups, replica that came first, how many came]
        self._mail: dict[tuple[int, int], deque[Any]] = {}
        self._waiting: dict[int, Any] = {}
        self._wakers = [threading.Lock() for _ in range(size)]
        for waker in self._wakers:
            waker.acquire()
        self._attention = threading.Lock()  # released once all have finished, or something failed
        self._attention.acquire()
        self._all_done = threading.Lock()
        self._all_done.acquire()
        self._noticed = False

    # Meetings

    def enter(self, rank: int, bring: Bring) -> Meeting:
        """Come to the replica's next meeting, without waiting; the last to come sets the work going."""
        groups = bring.groups
        members = self._everyone if groups is None else next(g for g in groups if rank in g)
        with self.lock:
            self._check()
            meeting = self._meeting(rank, members, groups)
            meeting.brought[rank] = bring
            if len(meeting.brought) < len(members):
                gone = next((r for r in members if self.finished[r] and r not in meeting.brought), None)
                if gone is not None:
                    self._fail(_returned(self, gone))
                    self._check()
                return meeting
            if any(b.call != bring.call for b in meeting.brought.values()):
                self._fail(_differ(self, members))
                self._check()
        work = meeting.work = bring.work([meeting.brought[r].value for r in members])
        if bring.small:
            for part in range(work.parts):
                work.do(part)  # type: ignore[misc]
        else:
            spread(rank, len(self.rings))  # before it wakes others, who would be put behind it
        with self.lock:
            self._check()
            meeting.state = 2 if bring.small else 1
            self._wake(meeting)
        return meeting

    def _meeting(self, rank: int, members: tuple[int, ...], groups: Any) -> Meeting:
        number = self._counts[rank]
        self._counts[rank] += 1
        self._same_groups(number, rank, groups)
        key = number, members[0]
        meeting = self._meetings.get(key)
        if meeting is None:
            meeting = self._meetings[key] = Meeting(members)
        elif len(meeting.brought) == len(members) - 1:
            del self._meetings[key]  # nobody will ask for it again
        return meeting

    def settle(self, rank: int, meeting: Meeting) -> Any:
        """The replica's result: wait until all have come, and do parts of the work until there is nothing left."""
        last = meeting.state == 1
        self.wait(rank, meeting, 1)
        work = meeting.work
        assert work is not None
        if meeting.state < 2:
            if not last:
                spread(rank, len(self.rings))
            while (part := meeting.claim()) < work.parts:
                work.do(part)  # type: ignore[misc]
                with self.lock:
                    meeting.done += 1
                    if meeting.done == work.parts:
                        meeting.state = 2
                        self._wake(meeting)
            # What a member brought is read until all parts are done, so nobody may leave before.
            self.wait(rank, meeting, 2)
        return work.results[meeting.members.index(rank)]

    def wait(self, rank: int, meeting: Meeting, state: int) -> None:
        with self.lock:
            self._check()
            if meeting.state >= state:
                if state == 1:
                    now = now_ns()
                    self.waits[rank] = now, now
                return
            self._waiting[rank] = meeting
        self._sleep(rank, state == 1)

    def _sleep(self, rank: int, stamped: bool) -> None:
        blocked = now_ns()
        if not self._wakers[rank].acquire(timeout=min(self.timeout_s, threading.TIMEOUT_MAX)):
            with self.lock:
                if rank in self._waiting:
                    self._fail(_timeout(self, rank))
                    self._check()
            self._wakers[rank].acquire()  # somebody woke it just now
        resumed = now_ns()
        self.waits[rank] = (blocked if stamped else self.waits[rank][0]), resumed
        if self._failure is not None:
            with self.lock:
                self._check()

    def _wake(self, place: Any) -> None:
        for rank, waited in list(self._waiting.items()):
            if waited is place:
                del self._waiting[rank]
                self._wakers[rank].release()

    def _same_groups(self, number: int, rank: int, groups: Any) -> None:
        entry = self._partitions.get(number)
        if entry is None:
            entry = self._partitions[number] = [groups, rank, 0]
        if entry[0] != groups:
            self._fail(_differ(self, (entry[1], rank), (entry[0], groups)))
            self._check()
        entry[2] += 1
        if entry[2] == len(self.rings):
            del self._partitions[number]

    # Mail

    def post(self, source: int, target: int, letter: Any) -> None:
        with self.lock:
            self._check()
            box = self._mail.setdefault((source, target), deque())
            box.append(letter)
            self._wake(box)

    def receive(self, source: int, target: int) -> Any:
        with self.lock:
            self._check()
            box = self._mail.setdefault((source, target), deque())
            if box:
                return box.popleft()
            if self.finished[source]:
                self._waiting[target] = box
                self._fail(_returned(self, source))
                self._check()
            self._waiting[target] = box
        self._sleep(target, True)
        with self.lock:
            return box.popleft()

    # How it ends

    def finish(self, rank: int, result: Any, error: BaseException | None) -> None:
        """Note that a replica returned from the function, or raised."""
        with self.lock:
            self.results[rank] = result
            self.finished[rank] = True
            if error is not None:
                self._raised(rank, error)
            else:
                for meeting in self._meetings.values():
                    if rank in meeting.members and rank not in meeting.brought:
                        self._fail(_returned(self, rank))
                for (source, target), box in self._mail.items():
                    if source == rank and not box and self._waiting.get(target) is box:
                        self._fail(_returned(self, rank))
            if all(self.finished):
                if any(self._mail.values()):
                    self._fail(_undelivered(self))
                self._all_done.release()
                self._notice()

    def _raised(self, rank: int, error: BaseException) -> None:
        if self._failure is None:
            error.add_note(f"raised in replica {rank} of {len(self.rings)}")
            self.error = error
            text = f"replica {rank} raised {type(error).__name__}: {error}. Its own error is the cause."

            def failed() -> BaseException:
                failure = ReplicaFailedError(text)
                failure.__cause__ = error
                return failure

            self._set_failure(failed)
        elif self.error is not error and self.error is not None and not _is_echo(error, self.error):
            self.error.add_note(f"replica {rank} raised too: {type(error).__name__}: {error}")

    def _fail(self, error: BaseException) -> None:
        """Fail the run with an error, of which each replica raises a copy."""
        if self._failure is None:
            self.error = error
            self._set_failure(lambda: type(error)(str(error)))

    def cancel(self, error: BaseException) -> None:
        """Make every collective from now on fail, because the caller was interrupted."""
        with self.lock:
            if self._failure is None:
                self.error = error
                self._set_failure(lambda: ReplicaFailedError(f"the caller was interrupted: {type(error).__name__}"))

    def _set_failure(self, make: Callable[[], BaseException]) -> None:
        self._failure = make
        for rank in list(self._waiting):
            del self._waiting[rank]
            self._wakers[rank].release()
        self._notice()

    def _notice(self) -> None:
        if not self._noticed:
            self._noticed = True
            self._attention.release()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure()

    def join(self, grace_s: float) -> list[int]:
        """Wait until all replicas have finished; after a failure no longer than `grace_s`.

        Returns:
            The replicas that still run.
        """
        if not self._noticed:
            self._attention.acquire()
        if not all(self.finished):
            self._all_done.acquire(timeout=grace_s)
        return [r for r, done in enumerate(self.finished) if not done]

    # Reports

    def describe(self, rank: int) -> str:
        """What a replica does now, in words."""
        events = list(self.rings[rank].events)
        last = events[-1] if events else None
        if self.finished[rank]:
            return f"replica {rank} has returned from the function" + (f", after {told(last)}" if last else "")
        if last is not None and last.done_ns is None:
            waited_s = (now_ns() - last.arrival_ns) / 1e9
            return f"replica {rank} is in {told(last)}, for {waited_s:.1f} s"
        after = f", after {told(last)}" if last else ", before its first collective"
        return f"replica {rank} is at {self._where(rank)}{after}"

    def missing(self, rank: int) -> list[int]:
        """The replicas that the one waiting waits for."""
        place = self._waiting.get(rank)
        if isinstance(place, Meeting):
            return [r for r in place.members if r not in place.brought]
        return [source for (source, target), box in self._mail.items() if box is place and target == rank]


def told(event: Any) -> str:
    """An event in words: which call, on what, where."""
    what = f" of {event.dtype}{list(event.shape)}" if event.dtype else ""
    return f"collective {event.sequence}, {event.op}{what} at {event.site}"


def _is_echo(error: BaseException, original: BaseException) -> bool:
    """Whether an error of a replica only passes on the one that failed the run."""
    return isinstance(error, ReplicaFailedError) or (type(error) is type(original) and str(error) == str(original))


def _differ(run: Run, ranks: Sequence[int], groups: Sequence[Any] = ()) -> CollectiveMismatchError:
    lines = []
    for i, rank in enumerate(ranks):
        last = run.rings[rank].events[-1]
        own = f", groups={_listed(groups[i])}" if groups else ""
        lines.append(f"\n  replica {rank}: {told(last)}{own}")
    return CollectiveMismatchError(
        "replicas must call the same collectives with the same shapes and dtypes, in the same order, got"
        + "".join(lines)
        + "\nTry: keep collectives out of branches that depend on the replica."
    )


def _listed(groups: Any) -> Any:
    return groups if groups is None else [list(group) for group in groups]


def _returned(run: Run, gone: int) -> CollectiveMismatchError:
    return CollectiveMismatchError(
        f"replica {gone} returned from the function after {run._counts[gone]} collectives, while others wait for it:"
        + "".join(f"\n  {run.describe(r)}" for r in range(len(run.rings)))
        + "\nTry: keep collectives out of branches that depend on the replica."
    )


def _timeout(run: Run, rank: int) -> CollectiveTimeoutError:
    missing = run.missing(rank)
    names = " and ".join(f"replica {r}" for r in missing) or "nobody"
    call = told(run.rings[rank].events[-1])
    return CollectiveTimeoutError(
        f"{names} did not come within {run.timeout_s:g} s to {call}, where replica {rank} waits:"
        + "".join(f"\n  {run.describe(r)}" for r in range(len(run.rings)))
        + "\nTry: a larger timeout_s in us.init_distributed, if the replica is only slow."
    )


def _undelivered(run: Run) -> CollectiveMismatchError:
    lost = [f"{len(box)} from replica {s} to {g}" for (s, g), box in run._mail.items() if box]
    return CollectiveMismatchError(
        f"what is sent must be received, got left over: {', '.join(lost)}. Try: us.recv on the target replica."
    )

"""Why a launched world cannot go on: judged from what its processes report, as a function of events and times alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from unisync.backends._channel import Verdict

SETTLE_S = 0.3
"""How long a failure waits for what else is known of it: a process's exit status, and the others' newest reports."""

LEFT_S = 1.0
"""How long somebody must have waited for a rank that has ended."""

KEPT = 64
"""How many signatures of each rank are kept."""


class Waiting(NamedTuple):
    """What a rank waits in: a collective, or a step of a compiled program."""

    number: int
    text: str
    age_s: float


@final
@dataclass(slots=True)
class Member:
    """What is known of a rank.

    `place` counts the worlds made in the process, the collectives begun in the present one, and the steps of compiled
    programs: of two ranks that do the same, the one with the smaller place is behind.
    """

    joined: bool = False
    heard: float = 0.0  # when its last message came
    period_s: float = 0.5  # how often it reports
    epoch: int = 0
    count: int = 0
    steps: int = 0
    timeout_s: float = float("inf")
    last: str = ""  # its newest collective, in words
    at: str = ""  # the line that its main thread is at
    collective: Waiting | None = None
    step: Waiting | None = None
    signatures: dict[int, tuple[str, str]] = field(default_factory=dict)  # number → signature, words
    programs: dict[int, tuple[str, str]] = field(default_factory=dict)  # the same of steps
    asks: dict[str, tuple[float, tuple[int, ...]]] = field(
        default_factory=dict
    )  # exchanges: since when, who is missing
    said_bye: float | None = None
    lost: float | None = None  # when its connection ended without a bye
    exited: float | None = None
    ending: str = ""  # how its process ended, in words
    bad_ending: bool = False
    raised: str | None = None  # the traceback it sent
    raised_at: float = 0.0

    @property
    def gone(self) -> float | None:
        """Since when it is known to take part no more, in good order."""
        moments = [m for m in (self.said_bye, self.exited) if m is not None]
        return None if not moments or self.bad_ending else min(moments)


@final
class Judge:
    """Takes events with their times, and gives the first verdict that they allow.

    Args:
        size: how many ranks there are.
    """

    def __init__(self, size: int) -> None:
        self.members = [Member() for _ in range(size)]
        self.verdict: Verdict | None = None

    # Events

    def joined(self, rank: int, now: float) -> None:
        member = self.members[rank]
        member.joined, member.heard = True, now

    def heard(self, rank: int, now: float) -> None:
        self.members[rank].heard = now

    def reported(self, rank: int, state: dict[str, Any], now: float) -> None:
        """A rank's own account of itself; see `Channel`."""
        member = self.members[rank]
        member.heard = now
        epoch = int(state.get("epoch", 0))
        if epoch != member.epoch:
            member.signatures.clear()
            member.programs.clear()
        member.epoch, member.count, member.steps = epoch, int(state.get("count", 0)), int(state.get("steps", 0))
        member.timeout_s = float(state.get("timeout") or "inf")
        member.period_s = float(state.get("period", 0.5))
        member.last, member.at = str(state.get("last", "")), str(state.get("at") or member.at)
        member.collective, member.step = _waiting(state.get("collective")), _waiting(state.get("step"))
        for kept, new in ((member.signatures, state.get("events")), (member.programs, state.get("programs"))):
            for number, signature, text in new or ():
                kept[number] = signature, text
            for number in sorted(kept)[:-KEPT]:
                del kept[number]

    def asks(self, rank: int, name: str, missing: Sequence[int], now: float) -> None:
        """A rank waits for others to bring something; nobody is missing any more once it has got it."""
        member = self.members[rank]
        if missing:
            since = member.asks[name][0] if name in member.asks else now
            member.asks[name] = since, tuple(missing)
        else:
            member.asks.pop(name, None)

    def said_bye(self, rank: int, now: float) -> None:
        member = self.members[rank]
        member.said_bye = now if member.said_bye is None else member.said_bye

    def lost(self, rank: int, now: float) -> None:
        """A rank's connection has ended."""
        member = self.members[rank]
        if member.said_bye is None and member.lost is None:
            member.lost = now

    def exited(self, rank: int, how: str, good: bool, now: float) -> None:
        """A rank's process has ended; its launcher says how, such as "was killed by SIGKILL"."""
        member = self.members[rank]
        member.exited, member.ending, member.bad_ending = now, how, not good

    def failed(self, rank: int, text: str, now: float) -> None:
        """A rank raised; the traceback's text."""
        member = self.members[rank]
        if member.raised is None:
            member.raised, member.raised_at = text, now

    # Judgement

    def judge(self, now: float) -> Verdict | None:
        """The verdict, once there is one; it never changes afterwards."""
        if self.verdict is None:
            self.verdict = self._failed(now) or self._mismatch(now) or self._left(now) or self._timeout(now)
        return self.verdict

    def unsettled(self) -> bool:
        """Whether a failure waits for the others' reports."""
        return self.verdict is None and any(
            m.raised is not None or m.lost is not None or m.bad_ending for m in self.members
        )

    def _failed(self, now: float) -> Verdict | None:
        moments = []
        for rank, m in enumerate(self.members):
            if m.raised is not None:
                moments.append((m.raised_at, rank))
            elif m.bad_ending:
                moments.append((m.exited if m.lost is None else m.lost, rank))
            elif m.lost is not None and m.exited is None:
                moments.append((m.lost, rank))
        if not moments:
            return None
        since, rank = min(moments)
        if now < since + SETTLE_S:
            return None
        m = self.members[rank]
        if m.raised is not None:
            head = f"rank {rank} failed: {_last_line(m.raised)}"
            tail = f"\nIts traceback:\n{m.raised.rstrip()}"
        else:
            head = f"rank {rank} {m.ending or 'ended without a word, as if it was killed'}{self._where(m)}"
            tail = ""
        others = self._account(now, [r for r in range(len(self.members)) if r != rank])
        return Verdict("failed", rank, head + others + tail)

    def _mismatch(self, now: float) -> Verdict | None:
        for kind in ("signatures", "programs"):
            ranks = self._differing(kind)
            if ranks:
                return Verdict(
                    "mismatch",
                    ranks[0][0],
                    "all ranks must call the same collectives with the same shapes and dtypes, in the same order, got"
                    + "".join(f"\n  rank {rank}: {text}" for rank, text in sorted(ranks))
                    + "\nTry: keep collectives out of branches that depend on the rank.",
                )
        return None

    def _differing(self, kind: str) -> list[tuple[int, str]]:
        """The ranks that differ at the first number at which some do, those in the minority first, with their calls;
        of each call at most two ranks."""
        calls: dict[tuple[int, int], dict[str, list[tuple[int, str]]]] = {}
        for rank, m in enumerate(self.members):
            for number, (signature, text) in getattr(m, kind).items():
                calls.setdefault((m.epoch, number), {}).setdefault(signature, []).append((rank, text))
        differing = [place for place, of in calls.items() if len(of) > 1]
        if not differing:
            return []
        sides = sorted(calls[min(differing)].values(), key=lambda ranks: (len(ranks), -ranks[0][0]))
        return [rank for ranks in sides for rank in ranks[:2]]

    def _left(self, now: float) -> Verdict | None:
        if all(m.gone is None for m in self.members):
            return None
        for waiter, m in enumerate(self.members):
            if m.gone is not None:  # what it said last is out of date
                continue
            for gone in self.missing(waiter):
                since = self.members[gone].gone
                if since is None or now < since + LEFT_S:
                    continue
                how = self.members[gone].ending or "ended"
                return Verdict(
                    "left",
                    gone,
                    f"rank {gone} {how}, while others wait for it in {_call(m)}:"
                    + self._account(now)
                    + "\nTry: keep collectives out of branches that depend on the rank.",
                )
        return None

    def _timeout(self, now: float) -> Verdict | None:
        for waiter, m in enumerate(self.members):
            waits = next((w for w in (m.collective, m.step) if w is not None and w.age_s > m.timeout_s), None)
            if waits is None:
                continue
            missing = self.missing(waiter)
            silent = [r for r, other in enumerate(self.members) if _silent_s(other, now) is not None]
            culprits = missing or silent
            if culprits:
                who = " and ".join(f"rank {r}" for r in culprits)
                head = f"{who} did not come within {m.timeout_s:g} s to {waits.text}, where rank {waiter} waits:"
                if not missing:
                    head = f"{who} came to {waits.text}, but is silent since, while rank {waiter} waits:"
            else:
                head = f"all ranks came to {waits.text}, but it did not end within {m.timeout_s:g} s:"
            return Verdict(
                "timeout",
                culprits[0] if culprits else waiter,
                head
                + self._account(now)
                + "\nTry: a larger timeout_s in us.init_distributed or unisync run --timeout, if a rank is only slow.",
            )
        return None

    def missing(self, waiter: int) -> list[int]:
        """The ranks that have not come to where a rank waits; empty if it does not wait, or if all have."""
        m = self.members[waiter]
        asked = {r for _, missing in m.asks.values() for r in missing}
        if m.collective is not None:
            place = (m.epoch, m.collective.number)
            asked |= {r for r, o in enumerate(self.members) if (o.epoch, o.count - 1) < place}
        elif m.step is not None:
            place = (m.epoch, m.step.number)
            asked |= {r for r, o in enumerate(self.members) if (o.epoch, o.steps - 1) < place}
        return sorted(asked - {waiter})

    # Words

    def describe(self, rank: int, now: float) -> str:
        """What a rank does now, in words."""
        m = self.members[rank]
        after = f", after {m.last}" if m.last else ", before its first collective"
        if m.exited is not None:
            return f"rank {rank} {m.ending}{after}"
        if m.said_bye is not None:
            return f"rank {rank} has ended{after}"
        if m.lost is not None:
            return f"rank {rank} ended without a word{self._where(m)}"
        if not m.joined:
            return f"rank {rank} has not joined"
        silent_s = _silent_s(m, now)
        if silent_s is not None:
            return f"rank {rank} has not been heard of for {silent_s:.1f} s, as if stopped{self._where(m)}"
        waits = m.collective or m.step
        if waits is not None:
            return f"rank {rank} is in {waits.text}, for {waits.age_s + now - m.heard:.1f} s"
        if m.asks:
            name, (since, missing) = next(iter(m.asks.items()))
            ranks = " and ".join(f"rank {r}" for r in missing)
            return f"rank {rank} waits for {ranks} in {name}, for {now - since:.1f} s"
        return f"rank {rank} is at {m.at or '?'}{after}"

    def _where(self, m: Member) -> str:
        """Where a rank was when it was last heard of."""
        waits = m.collective or m.step
        if waits is not None:
            return f", last heard of in {waits.text}"
        if not m.at and not m.last:
            return ""
        return f", last heard of at {m.at or '?'}" + (f", after {m.last}" if m.last else "")

    def _account(self, now: float, ranks: Sequence[int] | None = None) -> str:
        chosen = range(len(self.members)) if ranks is None else ranks
        return "".join(f"\n  {self.describe(r, now)}" for r in chosen)


def _waiting(value: Any) -> Waiting | None:
    return None if value is None else Waiting(int(value[0]), str(value[1]), float(value[2]))


def _call(m: Member) -> str:
    waits = m.collective or m.step
    return waits.text if waits is not None else next(iter(m.asks), "?")


def _silent_s(m: Member, now: float) -> float | None:
    """For how long nothing was heard of a rank that should report; None if that is as it should be."""
    if not m.joined or m.said_bye is not None or m.exited is not None or m.lost is not None:
        return None
    silent_s = now - m.heard
    return silent_s if silent_s > 2 * m.period_s + 1 else None


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "?")

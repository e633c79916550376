"""Collectives of gloo made of messages between pairs of processes, added up in the group's order.

gloo's own all-reduce adds in another order for each part of the array, takes two rounds for small ones, and works in
place. Here all replicas get the bits that threads get, a small array is there after one round, and the result is new
memory without a copy having been made. Between more than two processes a long array travels as in a ring: every member
adds up one slice, which the others then collect, so that each sends twice the array's length and no more.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, final

import torch

from unisync.backends.torch._messages import (
    FRAME_BYTES,
    HEADER_BYTES,
    SHORT_BYTES,
    Announced,
    Sent,
    Swap,
    announce,
    as_bytes,
    hash_of,
)

_NOW = 1  # the tag of collectives that are waited for where they are called
_POSTED = 2  # of messages between two replicas
_UNRECEIVED = 1000  # so many messages between two replicas may be on their way
_KNOWN_SWAPS = 256

_OPERATORS: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.add, "mean": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum,
}  # fmt: skip

Members = tuple[int, ...]


@final
class Direct:
    """The collectives of one process.

    Every method gets its group's members in order, and the call in words, which must be the same for all of them;
    arrays are contiguous, results new memory.

    Args:
        pg: the process group of the world.
        rank: this process's rank in it.
        empty: makes new memory of a shape and dtype.
    """

    def __init__(self, pg: Any, rank: int, empty: Callable[[Sequence[int], torch.dtype], torch.Tensor]) -> None:
        self._pg: Any = pg
        self._rank, self._empty = rank, empty
        self._inboxes: dict[int, torch.Tensor] = {}
        self._swaps: dict[Any, Swap] = {}
        self._posted: list[Sent] = []

    def all_reduce(self, x: torch.Tensor, op: str, members: Members, call: str) -> torch.Tensor:
        if x.nbytes <= SHORT_BYTES:
            own, arrived = members.index(self._rank), self._swapped(x, members, call)
            parts = [part for part, _ in arrived]
            return _total([*parts[:own], x, *parts[own:]], op)
        if len(members) > 2:
            return self._by_slices(x, op, members, call)
        expected, sent = self._swap(as_bytes(x), members, call, _NOW)
        parts = self._arrays(expected, sent, x, members, call, _NOW)
        return _total(parts, op, parts[1 - members.index(self._rank)]).reshape(x.shape)

    def _swapped(self, x: torch.Tensor, members: Members, call: str) -> list[tuple[torch.Tensor, int]]:
        """A short array to all other members; what has come from each, in buffers that the next call uses."""
        key = call, x.shape, x.dtype, members
        swap = self._swaps.get(key)
        if swap is None:
            if len(self._swaps) >= _KNOWN_SWAPS:
                self._swaps.clear()
            peers = [r for r in members if r != self._rank]
            inboxes = [self._inboxes.setdefault(r, torch.empty(FRAME_BYTES, dtype=torch.uint8)) for r in peers]
            swap = self._swaps[key] = Swap(self._pg, peers, inboxes, x, call)
        return swap(x, _NOW)

    def _by_slices(self, x: torch.Tensor, op: str, members: Members, call: str) -> torch.Tensor:
        flat, place, count = x.reshape(-1), members.index(self._rank), len(members)
        low = [flat.numel() * i // count for i in range(count + 1)]
        sizes = [end - begin for begin, end in itertools.pairwise(low)]
        out = self._empty(flat.shape, x.dtype)
        own = out[low[place] : low[place + 1]]
        _total(self._own_slices(flat.split(sizes), members, call), op, own)
        into = as_bytes(out).split([size * x.element_size() for size in sizes])
        self._collect(own, members, call, into)
        return out.reshape(x.shape)

    def reduce_scatter(self, x: torch.Tensor, members: Members, call: str) -> torch.Tensor:
        parts = self._own_slices(list(x.chunk(len(members))), members, call)
        return _total(parts, "sum").reshape(x.shape[0] // len(members), *x.shape[1:])

    def _own_slices(self, slices: Sequence[torch.Tensor], members: Members, call: str) -> list[torch.Tensor]:
        """Slice j to member j; the slices of all for this member, in order, as arrays of one axis."""
        own = slices[members.index(self._rank)]
        expected = self._expect(members, _NOW)
        sent = [w for peer, part in zip(members, slices, strict=True) if peer != self._rank
                for w in announce(self._pg, [peer], as_bytes(part), call, _NOW)]  # fmt: skip
        return self._arrays(expected, sent, own, members, call, _NOW)

    def all_gather(self, x: torch.Tensor, members: Members, call: str) -> torch.Tensor:
        """The arrays, whose lengths may differ, along axis 0; `call` leaves the length out."""
        row = math.prod(x.shape[1:]) * x.element_size()
        if row == 0:  # nothing to send but how many rows there are
            return x.new_empty((sum(self.lengths(x.shape[0], members)), *x.shape[1:]))
        if x.nbytes <= SHORT_BYTES:
            return self._gather_short(x, members, call)
        data = as_bytes(x)
        expected, sent = self._swap(data, members, call, _NOW)
        lengths = [expected[r].length(call) if r != self._rank else data.numel() for r in members]
        out = self._empty((sum(lengths) // row, *x.shape[1:]), x.dtype)
        self._fill(as_bytes(out).split(lengths), expected, sent, data, members)
        return out

    def _gather_short(self, x: torch.Tensor, members: Members, call: str) -> torch.Tensor:
        arrived, own = self._swapped(x, members, call), members.index(self._rank)
        parts, works, row = [], [], math.prod(x.shape[1:]) * x.element_size()
        for r, (part, length) in zip((r for r in members if r != self._rank), arrived, strict=True):
            if length != x.nbytes:
                part = x.new_empty((length // row, *x.shape[1:]))
                if length > SHORT_BYTES:
                    works.append(self._pg.recv([as_bytes(part)], r, _NOW))
                else:
                    as_bytes(part).copy_(self._inboxes[r][HEADER_BYTES : HEADER_BYTES + length])
            parts.append(part)
        _wait(works)
        return torch.cat([*parts[:own], x, *parts[own:]])

    def lengths(self, own: int, members: Members) -> list[int]:
        """The numbers of the members."""
        return self.all_gather(torch.tensor([own]), members, "all_gather(lengths)").tolist()

    @staticmethod
    def number_of(text: str) -> int:
        """A number for a text, the same in all processes."""
        return hash_of(text) >> 1

    def all_to_all(self, x: torch.Tensor, members: Members, call: str) -> torch.Tensor:
        data = as_bytes(x)
        slices = data.chunk(len(members))
        expected = self._expect(members, _NOW)
        sent = [w for peer, part in zip(members, slices, strict=True) if peer != self._rank
                for w in announce(self._pg, [peer], part, call, _NOW)]  # fmt: skip
        for peer in expected:
            expected[peer].length(call)
        out = self._empty(x.shape, x.dtype)
        own = slices[members.index(self._rank)]
        self._fill(as_bytes(out).chunk(len(members)), expected, sent, own, members)
        return out

    def broadcast(self, x: torch.Tensor, root: int, members: Members, call: str) -> torch.Tensor:
        data, source = as_bytes(x), members[root]
        if len(members) > 2 and data.numel() > SHORT_BYTES:
            return self._broadcast_by_slices(x, source, members, call)
        if self._rank == source:
            sent = announce(self._pg, [r for r in members if r != source], data, call, _NOW)
            out = self._empty(x.shape, x.dtype).copy_(x)
            _wait(sent)
            return out
        out = self._empty(x.shape, x.dtype)
        self._receive(source, as_bytes(out), call, _NOW)
        return out

    def _broadcast_by_slices(self, x: torch.Tensor, source: int, members: Members, call: str) -> torch.Tensor:
        """Each member gets a slice from the source and hands it on, so that the source's link carries no more than
        twice the array."""
        out = self._empty(x.shape, x.dtype)
        if self._rank == source:
            out.copy_(x)
        slices = as_bytes(out).chunk(len(members))
        own = slices[members.index(self._rank)]
        if self._rank == source:
            sent = [w for peer, part in zip(members, slices, strict=True) if peer != source
                    for w in announce(self._pg, [peer], part, call, _NOW)]  # fmt: skip
            _wait(sent)
        else:
            self._receive(source, own, call, _NOW)
        self._collect(own, members, call, slices)
        return out

    def permute(self, x: torch.Tensor, pairs: Sequence[tuple[int, int]], call: str) -> torch.Tensor:
        targets = [target for source, target in pairs if source == self._rank]
        sources = [source for source, target in pairs if target == self._rank]
        if targets == [self._rank]:
            return x.clone()
        sent = announce(self._pg, targets, as_bytes(x), call, _NOW)
        out = self._empty(x.shape, x.dtype) if sources else torch.zeros_like(x)
        for source in sources:
            self._receive(source, as_bytes(out), call, _NOW)
        _wait(sent)
        return out

    def barrier(self, members: Members) -> None:
        self.lengths(0, members)

    def post(self, x: torch.Tensor, to: int, call: str) -> None:
        """Send a copy, without waiting for its arrival, unless very many have not been received."""
        self._posted += announce(self._pg, [to], as_bytes(x).clone(), call, _POSTED)
        if len(self._posted) > _UNRECEIVED:  # gloo does not say which have left, only that one has
            oldest, self._posted = self._posted[: _UNRECEIVED // 2], self._posted[_UNRECEIVED // 2 :]
            _wait(oldest)

    def fetch(self, like: torch.Tensor, source: int, call: str) -> torch.Tensor:
        """What `post` sent."""
        out = torch.empty_like(like)
        self._receive(source, as_bytes(out), call, _POSTED)
        return out

    def flush(self, limit_s: float) -> None:
        """Wait until what was posted has left, which needs the others to receive it. If they do not, the connection to
        them is of no use any more."""
        end = time.monotonic() + limit_s
        with contextlib.suppress(RuntimeError):
            for sent in self._posted:
                sent.wait(max(0.001, end - time.monotonic()))

    def end(self) -> None:
        """Let go of the process group, which is then destroyed here and not by a garbage collection anywhere."""
        self._pg = None
        self._swaps, self._inboxes, self._posted = {}, {}, []

    # Messages

    def _swap(
        self, data: torch.Tensor, members: Members, call: str, tag: int
    ) -> tuple[dict[int, Announced], list[Sent]]:
        """The same bytes to all other members: what is expected of them, and the works of what is sent."""
        expected = self._expect(members, tag)
        return expected, announce(self._pg, [r for r in members if r != self._rank], data, call, tag)

    def _expect(self, members: Members, tag: int) -> dict[int, Announced]:
        return {r: Announced(self._pg, r, tag) for r in members if r != self._rank}

    def _arrays(
        self, expected: dict[int, Announced], sent: list[Any], own: torch.Tensor, members: Members, call: str, tag: int
    ) -> list[torch.Tensor]:
        """The arrays of all members, like this one's, in order; of one axis."""
        found, works = [], list(sent)
        for r in members:
            if r == self._rank:
                found.append(own.reshape(-1))
                continue
            data = expected[r].short(expected[r].length(call))
            if data is None:
                array = self._empty((own.numel(),), own.dtype)
                works.append(self._pg.recv([as_bytes(array)], r, tag))
            else:
                array = data.view(own.dtype)
            found.append(array)
        _wait(works)
        return found

    def _receive(self, source: int, into: torch.Tensor, call: str, tag: int) -> None:
        """A message from one process."""
        announced = Announced(self._pg, source, tag)
        data = announced.short(announced.length(call))
        if data is None:
            self._pg.recv([into], source, tag).wait()
        else:
            into.copy_(data)

    def _collect(self, own: torch.Tensor, members: Members, call: str, into: Sequence[torch.Tensor]) -> None:
        """Each member's bytes into their places, in which this one's are already."""
        data = as_bytes(own)
        expected, sent = self._swap(data, members, call, _NOW)
        for peer in expected:
            expected[peer].length(call)
        self._fill(into, expected, sent, None, members)

    def _fill(
        self, into: Sequence[torch.Tensor], expected: dict[int, Announced], sent: list[Any],
        own: torch.Tensor | None, members: Members,
    ) -> None:  # fmt: skip
        """What has been announced into its places."""
        works = list(sent)
        for r, place in zip(members, into, strict=True):
            if r != self._rank:
                data = expected[r].short(place.numel())
                if data is None:
                    works.append(self._pg.recv([place], r, _NOW))
                else:
                    place.copy_(data)
            elif own is not None:
                place.copy_(own)
        _wait(works)


def _total(parts: list[torch.Tensor], op: str, out: torch.Tensor | None = None) -> torch.Tensor:
    """The reduction of arrays in their order."""
    operator = _OPERATORS[op]
    total = operator(parts[0], parts[1]) if out is None else operator(parts[0], parts[1], out=out)
    for part in parts[2:]:
        operator(total, part, out=total)
    return total.div_(len(parts)) if op == "mean" else total


def _wait(works: Sequence[Any]) -> None:
    for work in works:
        work.wait()

"""Messages between pairs of processes over gloo, each announced, so that processes that disagree learn it at once.

A message that is longer than the buffer that waits for it ends the process (std::terminate in gloo's thread,
https://github.com/pytorch/gloo/blob/main/gloo/transport/tcp/pair.cc), and a shorter one leaves the rest of the buffer
as it was. So what is sent first is of bounded length, is received into a buffer of that length, and says what follows:

    length of the payload in bytes | the call in words | the payload itself, if it is short
                                                         else it follows as a message of its own

gloo keeps the order of messages between two processes that have the same tag.
"""

from __future__ import annotations

import datetime
import hashlib
from typing import Any, final

import torch

from unisync.errors import CollectiveMismatchError

HEADER_BYTES = 256
SHORT_BYTES = 32 * 2**10
"""Up to this length a payload travels with its announcement."""

FRAME_BYTES = HEADER_BYTES + SHORT_BYTES
_KNOWN_HEADERS = 4096


def as_bytes(x: torch.Tensor) -> torch.Tensor:
    """The numbers of a contiguous array as bytes, not copied."""
    flat = x.reshape(-1)
    return torch.view_as_real(flat).reshape(-1).view(torch.uint8) if flat.is_complex() else flat.view(torch.uint8)


@final
class Announced:
    """A message that is expected from a process."""

    __slots__ = ("_frame", "_work", "peer")

    def __init__(self, pg: Any, peer: int, tag: int) -> None:
        self.peer = peer
        self._frame = torch.empty(FRAME_BYTES, dtype=torch.uint8)
        self._work = pg.recv([self._frame], peer, tag)

    def length(self, call: str) -> int:
        """How many bytes the payload has, once the announcement is there.

        Raises:
            CollectiveMismatchError: it was sent by another call; names both.
            RuntimeError: gloo's own, if the other process is gone or late.
        """
        self._work.wait()
        _check(self._frame[8:HEADER_BYTES], _header(call), self.peer, call)
        return int(self._frame[:8].view(torch.int64))

    def short(self, length: int) -> torch.Tensor | None:
        """The payload, if it came with the announcement."""
        return self._frame[HEADER_BYTES : HEADER_BYTES + length] if length <= SHORT_BYTES else None


@final
class Sent:
    """A message on its way, and its bytes, which gloo's work does not keep alive."""

    __slots__ = ("_data", "_work")

    def __init__(self, pg: Any, peer: int, data: torch.Tensor, tag: int) -> None:
        self._data = data
        self._work = pg.send([data], peer, tag)

    def wait(self, limit_s: float | None = None) -> None:
        """Until it has left; past the limit the connection is closed."""
        if limit_s is None:
            self._work.wait()
        else:
            self._work.wait(datetime.timedelta(seconds=limit_s))


def announce(pg: Any, peers: list[int], payload: torch.Tensor, call: str, tag: int) -> list[Sent]:
    """Send bytes to some processes; what is returned must be kept until it has left."""
    length = payload.numel()
    if length > SHORT_BYTES:
        frame = torch.cat((_length(length), _header(call)))
        return [Sent(pg, peer, x, tag) for peer in peers for x in (frame, payload)]
    frame = torch.cat((_length(length), _header(call), payload))
    return [Sent(pg, peer, frame, tag) for peer in peers]


@final
class Swap:
    """A short message to each of some processes and one from each, of one call that is made again and again: buffers
    and views are kept, which halves the time that the call takes on the host. Used by one call at a time.

    Args:
        pg: the process group.
        peers: the other processes.
        inboxes: a buffer for each, of FRAME_BYTES.
        x: an array like that to be sent, of up to SHORT_BYTES.
        call: in words; the messages that come may differ in length only if it leaves that out.
    """

    __slots__ = ("_call", "_frame", "_header", "_incoming", "_length", "_payload", "_pg")

    def __init__(self, pg: Any, peers: list[int], inboxes: list[torch.Tensor], x: torch.Tensor, call: str) -> None:
        self._pg, self._call, self._length, self._header = pg, call, x.nbytes, _header(call)
        self._frame = torch.cat((_length(x.nbytes), self._header, torch.empty(x.nbytes, dtype=torch.uint8)))
        self._payload = self._frame[HEADER_BYTES:].view(x.dtype).view(x.shape)
        self._incoming = [
            (r, inbox, inbox[:8].view(torch.int64), inbox[8:HEADER_BYTES],
             inbox[HEADER_BYTES : HEADER_BYTES + x.nbytes].view(x.dtype).view(x.shape))
            for r, inbox in zip(peers, inboxes, strict=True)
        ]  # fmt: skip

    def __call__(self, x: torch.Tensor, tag: int) -> list[tuple[torch.Tensor, int]]:
        """What has come from each peer: the array in its buffer, if it is as long as x, and its length in bytes."""
        pg = self._pg
        receiving = [pg.recv([inbox], r, tag) for r, inbox, _, _, _ in self._incoming]
        self._payload.copy_(x)
        sending = [pg.send([self._frame], r, tag) for r, _, _, _, _ in self._incoming]
        found = []
        for work, (r, _, length, heading, part) in zip(receiving, self._incoming, strict=True):
            work.wait()
            _check(heading, self._header, r, self._call)
            found.append((part, length.item()))
        for work in sending:
            work.wait()
        return found


def _check(heading: torch.Tensor, expected: torch.Tensor, peer: int, call: str) -> None:
    if not torch.equal(heading, expected):
        other = bytes(heading.tolist()).rstrip(b"\0").decode(errors="replace")
        raise CollectiveMismatchError(
            f"rank {peer} called {other}, while this rank called {call}. "
            "Try: the same collectives in the same order on all replicas."
        )


_headers: dict[str, torch.Tensor] = {}
_lengths: dict[int, torch.Tensor] = {}


def _header(call: str) -> torch.Tensor:
    found = _headers.get(call)
    if found is None:
        if len(_headers) > _KNOWN_HEADERS:
            _headers.clear()
        room = HEADER_BYTES - 8
        text = call.encode()
        if len(text) > room:  # a hash still tells two long ones apart
            text = text[: room - 20] + f" #{hash_of(call):016x}".encode()
        found = _headers[call] = torch.tensor(list(text.ljust(room, b"\0")), dtype=torch.uint8)
    return found


def _length(length: int) -> torch.Tensor:
    found = _lengths.get(length)
    if found is None:
        if len(_lengths) > _KNOWN_HEADERS:
            _lengths.clear()
        found = _lengths[length] = torch.tensor([length]).view(torch.uint8)
    return found


def hash_of(text: str) -> int:
    """A hash that is the same in all processes."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

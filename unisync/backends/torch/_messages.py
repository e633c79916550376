"""Messages between pairs of processes over gloo, each announced, so that processes that disagree learn it at once.

A message that is longer than the buffer that waits for it ends the process (std::terminate in gloo's thread,
https://github.com/pytorch/gloo/blob/main/gloo/transport/tcp/pair.cc), and a shorter one leaves the rest of the buffer
as it was. So what is sent first is of bounded length, is received into a buffer of that length, and says what follows:

    length of the payload in bytes | the call in words | the payload itself, if it is short
                                                         else it follows as a message of its own

gloo keeps the order of messages between two processes that have the same tag.
"""

from __future__ import annotations

import hashlib
from typing import Any, final

import torch

from unisync.errors import CollectiveMismatchError

HEADER_BYTES = 256
SHORT_BYTES = 32 * 2**10
"""Up to this length a payload travels with its announcement."""

_FRAME_BYTES = HEADER_BYTES + SHORT_BYTES
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
        self._frame = torch.empty(_FRAME_BYTES, dtype=torch.uint8)
        self._work = pg.recv([self._frame], peer, tag)

    def length(self, call: str) -> int:
        """How many bytes the payload has, once the announcement is there.

        Raises:
            CollectiveMismatchError: it was sent by another call; names both.
            RuntimeError: gloo's own, if the other process is gone or late.
        """
        self._work.wait()
        header = _header(call)
        if not torch.equal(self._frame[8:HEADER_BYTES], header):
            other = bytes(self._frame[8:HEADER_BYTES].tolist()).rstrip(b"\0").decode(errors="replace")
            raise CollectiveMismatchError(
                f"rank {self.peer} called {other}, while this rank called {call}. "
                "Try: the same collectives in the same order on all replicas."
            )
        return int(self._frame[:8].view(torch.int64))

    def short(self, length: int) -> torch.Tensor | None:
        """The payload, if it came with the announcement."""
        return self._frame[HEADER_BYTES : HEADER_BYTES + length] if length <= SHORT_BYTES else None

    def is_completed(self) -> bool:
        return self._work.is_completed()


def announce(pg: Any, peers: list[int], payload: torch.Tensor, call: str, tag: int) -> list[Any]:
    """Send bytes to some processes; the works must be kept until they have ended."""
    length = payload.numel()
    if length > SHORT_BYTES:
        frame = torch.cat((_length(length), _header(call)))
        return [pg.send([x], peer, tag) for peer in peers for x in (frame, payload)]
    frame = torch.cat((_length(length), _header(call), payload))
    return [pg.send([frame], peer, tag) for peer in peers]


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

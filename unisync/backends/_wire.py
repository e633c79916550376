"""The form of what the processes of a launched world tell their coordinator: one JSON object a line, over TCP."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any, final

Message = dict[str, Any]

GREETING_BYTES = 4096
"""How long the first line of a connection may be; strangers (a port scanner, a browser) are cut off there."""


def encoded(message: Message) -> bytes:
    """A message as a line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


@final
class Lines:
    """Takes bytes as they come and gives the messages that are complete.

    Args:
        limit: the greatest length of a line; None for any.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._rest = bytearray()
        self._searched = 0  # no line end before this place

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete with these bytes.

        Raises:
            ValueError: a line is too long, or no JSON object.
        """
        self._rest += data
        found: list[Message] = []
        start = 0
        while (end := self._rest.find(b"\n", max(start, self._searched))) >= 0:
            found.append(self._parsed(self._rest[start:end]))
            start = end + 1
        if start:
            del self._rest[:start]
        self._searched = len(self._rest)
        if self.limit is not None and len(self._rest) > self.limit:
            raise ValueError(f"a line of more than {self.limit} bytes")
        return found

    def _parsed(self, line: bytearray) -> Message:
        if self.limit is not None and len(line) > self.limit:
            raise ValueError(f"a line of more than {self.limit} bytes")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("a line that is no object")
        return message


def keep_alive(connection: socket.socket) -> None:
    """Small messages at once, and an end of the connection when the other machine has gone without a word."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 30_000)):
        if hasattr(socket, option):
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

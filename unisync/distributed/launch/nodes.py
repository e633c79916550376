"""How the launchers of several machines find each other at node 0, and hear of each other's end.

JSON lines over one TCP connection from each machine to the first, with a heartbeat both ways: a machine that vanishes
closes no connection.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Callable
from typing import final

from unisync import _config
from unisync.backends._wire import GREETING_BYTES, Lines, Message, encoded, keep_alive
from unisync.distributed.launch.events import Events
from unisync.distributed.launch.plan import Job
from unisync.errors import ArgumentError, StateError

PERIOD_S = 1.0
"""How often a machine sends a sign of life."""

SILENT_S = 6.0
"""After how long without one it is taken for lost."""

JOIN_S = 600.0
"""How long the machines wait for each other, unless the job has a timeout."""


@final
class Link:
    """One end of the connection of two launchers, read in a thread of its own.

    Args:
        connection: the socket.
        on_message: called with each message but heartbeats.
        on_end: called once, with the reason, when the connection has ended or the other side is silent.
    """

    def __init__(
        self,
        connection: socket.socket,
        on_message: Callable[[Link, Message], None],
        on_end: Callable[[Link, str], None],
    ) -> None:
        self._socket, self._on_message, self._on_end = connection, on_message, on_end
        self._sending = threading.Lock()
        self._closed = threading.Event()
        self.lines = Lines(GREETING_BYTES)
        self.node: int | None = None
        keep_alive(connection)
        connection.settimeout(PERIOD_S / 2)
        self._thread = threading.Thread(target=self._run, name="unisync-link", daemon=True)
        self._thread.start()

    @property
    def own_address(self) -> str:
        """This side's address."""
        return self._socket.getsockname()[0]

    @property
    def other_address(self) -> str:
        """The other side's address."""
        return self._socket.getpeername()[0]

    def send(self, message: Message) -> None:
        """Send a message; that the connection has ended is told by `on_end`."""
        with self._sending, contextlib.suppress(OSError):
            self._socket.sendall(encoded(message))

    def close(self) -> None:
        """End the connection."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * PERIOD_S)

    def _run(self) -> None:
        why = "has ended without a word"
        heard = said = time.monotonic()
        try:
            while not self._closed.is_set():
                now = time.monotonic()
                if now - said >= PERIOD_S:
                    self.send({"t": "beat"})
                    said = now
                try:
                    data = self._socket.recv(1 << 16)
                except TimeoutError:
                    if time.monotonic() - heard > SILENT_S:
                        why = f"has not been heard of for {SILENT_S:.0f} s"
                        break
                    continue
                if not data:
                    break
                heard = time.monotonic()
                for message in self.lines.feed(data):
                    if message.get("t") != "beat":
                        self._on_message(self, message)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # gone, or a stranger that speaks another language
        self._socket.close()
        if not self._closed.is_set():
            self._on_end(self, why)


@final
class Hub:
    """Node 0's side: lets the other machines' launchers join, and passes on what they tell.

    Puts to the events: "remote" with (node, message), and "lost" with (node, reason).
    """

    def __init__(self, job: Job, events: Events) -> None:
        assert job.rendezvous is not None
        self._job, self._events = job, events
        self._secret = _config.variable("UNISYNC_JOB")
        self.address = _own_address(job.rendezvous)
        self._lock = threading.Lock()
        self._joined: dict[int, tuple[Link, int]] = {}
        self._all_there = threading.Event()
        try:
            self._listener = socket.create_server((self.address, split(job.rendezvous)[1]), backlog=64)
        except OSError as error:
            raise ArgumentError(
                f"`--rendezvous` must be an address of this machine, node 0, and a free port, got {job.rendezvous}: "
                f"{error.strerror}. Try: another port."
            ) from error
        self._listener.settimeout(0.2)

    def gather(self) -> bool:
        """Wait until all machines have joined; False if the user ends the job before.

        Raises:
            StateError: not all have come in time; names them.
        """
        patience_s = self._job.timeout_s or JOIN_S
        end = time.monotonic() + patience_s
        while not self._all_there.is_set():
            if self._events.asked is not None:
                return False
            if time.monotonic() > end:
                missing = [str(n) for n in range(1, self._job.nodes) if n not in self._joined]
                where = self._job.rendezvous
                why = (
                    f"node {' and node '.join(missing)} did not come to {where} within {patience_s:g} s. "
                    f"Try: start the same command there with --node-rank {missing[0]}, or a larger --timeout."
                )
                raise StateError(why)
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listener.accept()
                Link(connection, self._on_message, self._on_end)
        self._listener.close()
        return True

    @property
    def sizes(self) -> list[int]:
        """How many ranks each machine has."""
        return [self._job.replicas, *(self._joined[n][1] for n in sorted(self._joined))]

    @property
    def addresses(self) -> list[str]:
        """Each machine's address for the others."""
        return [self.address, *(self._joined[n][0].other_address for n in sorted(self._joined))]

    def send(self, node: int, message: Message) -> None:
        """Tell one machine."""
        self._joined[node][0].send(message)

    def broadcast(self, message: Message) -> None:
        """Tell all the others."""
        for link, _ in list(self._joined.values()):
            link.send(message)

    def close(self, last: Message) -> None:
        """Tell all the others the last thing, and end the connections."""
        self._listener.close()
        self.broadcast(last)
        for link, _ in list(self._joined.values()):
            link.close()

    def _on_message(self, link: Link, message: Message) -> None:
        if link.node is not None:
            self._events.put("remote", (link.node, message))
            return
        with self._lock:
            why = self._refusal(message)
            if why is not None:
                link.send({"t": "refused", "why": why})
                link.close()
                return
            link.node, link.lines.limit = int(message["node"]), None
            self._joined[link.node] = link, int(message["replicas"])
            if len(self._joined) == self._job.nodes - 1:
                self._all_there.set()

    def _on_end(self, link: Link, why: str) -> None:
        if link.node is None:
            return
        with self._lock:
            if not self._all_there.is_set():  # it may come again
                del self._joined[link.node]
                return
        self._events.put("lost", (link.node, why))

    def _refusal(self, message: Message) -> str | None:
        if message.get("t") != "join" or message.get("secret") != self._secret:
            return "UNISYNC_JOB must be the same on all machines. Try: set it so, or leave it out everywhere."
        node, own = int(message["node"]), self._job
        for option, theirs, ours in (
            ("nnodes", message["nodes"], own.nodes),
            ("backend", message["backend"], own.backend),
        ):
            if theirs != ours:
                return f"`--{option}` must be the same on all machines, got {theirs}; node 0 has {ours}. Try: {ours}."
        if not 0 < node < own.nodes or node in self._joined:
            return f"`--node-rank` must be another on each machine, got {node}, which is taken. Try: the next."
        return None


def join(job: Job, events: Events) -> Link | None:
    """The other machines' side: a link to node 0, which puts its messages to the events as "order", its end as "lost".

    None if the user ends the job before.

    Raises:
        StateError: node 0 cannot be reached in time.
    """
    assert job.rendezvous is not None
    patience_s = job.timeout_s or JOIN_S
    end = time.monotonic() + patience_s
    while True:
        try:
            connection = socket.create_connection(split(job.rendezvous), timeout=min(5.0, patience_s))
            break
        except OSError as error:
            if events.asked is not None:
                return None
            if time.monotonic() > end:
                raise StateError(
                    f"node 0 must listen at {job.rendezvous}, but did not within {patience_s:g} s: {error}. "
                    "Try: start the same command there with --node-rank 0, or check that the address can be reached."
                ) from error
        time.sleep(0.1)

    link = Link(
        connection, lambda _, message: events.put("order", message), lambda _, why: events.put("lost", (0, why))
    )
    link.lines.limit = None
    link.send(
        {
            "t": "join",
            "node": job.node,
            "nodes": job.nodes,
            "replicas": job.replicas,
            "backend": job.backend,
            "secret": _config.variable("UNISYNC_JOB"),
        }
    )
    return link


def split(rendezvous: str) -> tuple[str, int]:
    """The host and the port of HOST:PORT.

    Example:
        >>> from unisync.distributed.launch.nodes import split
        >>> split("10.0.0.1:29400")
        ('10.0.0.1', 29400)
    """
    host, _, port = rendezvous.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ArgumentError(f"`--rendezvous` must be HOST:PORT, got {rendezvous!r}. Try: 10.0.0.1:29400.")
    return host, int(port)


def _own_address(rendezvous: str) -> str:
    """The address that node 0 binds."""
    host = split(rendezvous)[0]
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        raise ArgumentError(
            f"`--rendezvous` must name this machine, node 0, got {host}: {error}. Try: its address, such as 10.0.0.1."
        ) from error
    kind = ipaddress.ip_address(address)
    literal = host == address or host == "localhost"
    if kind.is_unspecified or (kind.is_loopback and not literal):
        raise ArgumentError(
            f"`--rendezvous` must have an address that the other machines reach, got {host}, which is {address} here. "
            "Try: the machine's own address, such as 10.0.0.1."
        )
    return address

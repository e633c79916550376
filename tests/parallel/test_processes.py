"""Training over processes, on every engine: `launched_training.py`, run by all processes of launched worlds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from under_test import BACKENDS

FILE = Path(__file__).with_name("launched_training.py")


def cases():
    """The quick ones are in every run of the tests."""
    for backend in BACKENDS:
        for replicas in (2, 4):
            quick = replicas == 2 and backend in ("numpy", "torch")
            yield pytest.param(backend, replicas, marks=() if quick else pytest.mark.slow, id=f"{backend}-{replicas}")


@pytest.mark.parametrize(("backend", "replicas"), list(cases()))
@pytest.mark.timeout(600)
def test_training_over_processes(backend, replicas, tmp_path):
    command = [sys.executable, "-m", "unisync", "run", "--backend", backend, "--replicas", str(replicas)]
    # The processes share a folder for temporary files, which none of them may clear.
    tests = ["-m", "pytest", str(FILE), "-q", "-x", "-p", "no:cacheprovider", "-o", "tmp_path_retention_count=99"]
    if replicas == 4 and backend in ("jax", "tensorflow"):
        tests += ["-k", "losses_are or batch_norm or each_process"]  # the others compile the same for minutes
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "UNISYNC_"))}
    env["PYTEST_DEBUG_TEMPROOT"] = str(tmp_path)
    done = subprocess.run([*command, "--timeout", "60", *tests], env=env, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-8000:]
    passed = re.findall(r"^\[(\d+)\] .*?(\d+) passed", output, re.MULTILINE)
    assert sorted(int(rank) for rank, _ in passed) == list(range(replicas)), output[-8000:]
    assert len({count for _, count in passed}) == 1
    assert "skipped" not in output


@pytest.mark.parametrize(
    "text",
    [
        "us.parallelize(us.nn.Linear(2, 2), loss=us.losses.mse, optimizer=us.optim.sgd(0.1))",
        "us.all_reduce(us.asarray(1.0))",
    ],
)
def test_a_process_that_has_not_joined_its_world_does_not_work_alone(text, tmp_path):
    script = tmp_path / "alone.py"
    script.write_text(f"import unisync as us\n{text}\n")
    command = [sys.executable, "-m", "unisync", "run", "--backend", "numpy", "--replicas", "2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "unisync run started it as one of 2, got no call of us.init_distributed" in done.stderr

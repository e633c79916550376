"""torch's worlds of processes: what the engines add to the common tests, and the buckets of overlapped gradients."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from under_test import BACKENDS

if os.environ.get("UNISYNC_RANK"):
    pytest.skip("started by a launcher already", allow_module_level=True)
if "torch" not in BACKENDS:
    pytest.skip("torch is not under test", allow_module_level=True)

import torch

from unisync.backends.torch import overlap

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ENGINE = "tests/distributed/launched/torch_engine.py"


def passes(replicas, *arguments, within_s=150.0):
    command = [sys.executable, "-m", "unisync", "run", "--backend", "torch", "--replicas", str(replicas)]
    command += ["--timeout", "60", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]
    env = {**os.environ, "UNISYNC_TEST_BACKENDS": "torch", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=within_s, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    assert done.stdout.count(" passed") == replicas


@pytest.mark.timeout(200)
def test_engines_of_two_processes():
    passes(2, ENGINE)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_engines_of_four_processes():
    passes(4, ENGINE, within_s=380.0)


def test_what_comes_last_in_a_model_is_summed_first():
    paths = ["0.bias", "0.weight", "10.bias", "10.weight", "9.weight"]
    assert [paths[i] for i in overlap.last_first(paths)] == ["10.weight", "10.bias", "9.weight", "0.weight", "0.bias"]


def test_buckets_are_full_with_the_leaf_that_takes_them_past_their_bytes():
    sizes = [2**23, 10, 2**22, 2**18, 10]  # float32 numbers, in the order of the tree
    leaves = [torch.empty(n, device="meta") for n in sizes] + [torch.empty(4, device="meta", dtype=torch.float64)]
    made = overlap.buckets(leaves, [4, 3, 2, 5, 1, 0], 3, torch.float32)
    assert [b.leaves for b in made] == [[4, 3], [2, 1, 0], [5]]
    assert [b.figures for b in made] == [2**18 + 10, 2**22 + 10 + 2**23, 4]
    assert [b.length - b.figures for b in made] == [3, 0, 0]


def test_figures_of_a_dtype_that_no_leaf_has_travel_alone():
    made = overlap.buckets([torch.empty(4, device="meta")], [0], 2, torch.float64)
    assert [(b.leaves, b.length, b.dtype) for b in made] == [([], 2, torch.float64), ([0], 4, torch.float32)]


def test_half_precision_travels_wide():
    made = overlap.buckets([torch.empty(4, device="meta", dtype=torch.bfloat16)], [0], 1, torch.float32)
    assert [(b.leaves, b.length, b.dtype) for b in made] == [([0], 5, torch.float32)]

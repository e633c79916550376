"""XLA ends a process whose replicas wait for each other too long: the launcher, its parent, says where that was."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

SCRIPT = """
import time
import jax, numpy as np
import unisync as us

us.set_backend("jax")
world = us.init_distributed(replicas=2)


def late(x, replica):
    if int(replica) == 1:
        time.sleep(100)
    return x


def step(x):
    x = jax.pure_callback(late, jax.ShapeDtypeStruct(x.shape, x.dtype), x, us.replica_index())
    return us.all_reduce(x, "sum")  # here


print(world.first(us.spmd(step)(world.scatter(np.arange(4.0)))))
"""


@pytest.mark.slow
def test_the_parent_of_an_aborted_process_says_which_step_and_collective_it_was_in(tmp_path):
    pytest.importorskip("jax")
    script = tmp_path / "stuck.py"
    script.write_text(SCRIPT)
    line = next(i for i, text in enumerate(SCRIPT.splitlines(), 1) if text.endswith("# here"))
    flag = "--xla_cpu_collective_call_{}_timeout_seconds=2"
    env = {**os.environ, "XLA_FLAGS": " ".join(flag.format(name) for name in ("warn_stuck", "terminate"))}
    command = [sys.executable, "-m", "unisync", "run", "--backend", "jax", "--replicas", "1", str(script)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + 6, done.stderr
    summary = done.stderr[done.stderr.rindex("unisync: rank 0") :]
    assert summary.startswith("unisync: rank 0 was killed by SIGABRT")
    assert re.search(r"2 replicas on engine 'shard_map'.*: step 0, of step, started .* has not ended", summary)
    assert f"0: all_reduce(sum) of float64[2] at {script}:{line}" in summary
    assert "rendezvous.cc" not in summary

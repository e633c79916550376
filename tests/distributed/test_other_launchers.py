"""Worlds of processes that something else than `unisync run` started, and worlds in a row."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from processes import HERE, ROOT, Ranks

from unisync.distributed.coordinator import Coordinator

pytestmark = pytest.mark.slow


def test_world_after_world():
    script = """
    for i in range(4):
        world = us.init_distributed(timeout_s=10.0)
        assert us.all_reduce(np.ones(1) * rank, "sum").tolist() == [1.0]
        assert world.gather(world.scatter(np.arange(4))).tolist() == [0, 1, 2, 3]
        if i % 2:
            world.end()
            assert us.all_reduce(np.ones(1)).tolist() == [1.0]  # no world: the only replica
    """
    with Ranks(script) as ranks:
        ended = ranks.wait()
    assert [(r.code, r.err) for r in ended] == [(0, ""), (0, "")]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def by_rank_and_world_size(**more):
    port = free_port()
    return lambda rank: {
        "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **more,
    }  # fmt: skip


def by_slurm():
    job = str(os.getpid())
    return lambda rank: {
        "SLURM_JOB_ID": job, "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_STEP_NODELIST": "here",
    }  # fmt: skip


def by_hand():
    port = free_port()
    return lambda rank: {
        "UNISYNC_RANK": str(rank), "UNISYNC_SIZE": "2", "UNISYNC_COORDINATOR": f"127.0.0.1:{port}",
        "UNISYNC_JOB": "secret",
    }  # fmt: skip


@pytest.mark.parametrize("start", [by_rank_and_world_size, by_slurm, by_hand])
def test_rank_0_holds_the_coordinator_where_nobody_else_does(start):
    script = """
    assert us.all_gather_object(rank) == [0, 1]
    if rank == 1:
        time.sleep(0.5)
    us.barrier()
    if rank == 1:
        time.sleep(0.5)  # rank 0 stays for it
    print(world.size, world.process_index, flush=True)
    """
    with Ranks(script, variables=start()) as ranks:
        ended = ranks.wait()
    assert [(r.code, r.err) for r in ended] == [(0, ""), (0, "")]
    assert [r.out for r in ended] == ["2 0\n", "2 1\n"]


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize("fault", ["raise ValueError('boom')", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_faults_where_rank_0_holds_the_coordinator(culprit, fault):
    script = f"""
    us.barrier()
    if rank == {culprit}:
        {fault}
    us.all_reduce(np.ones(4), "sum")  # wait
    """
    with Ranks(script, variables=by_rank_and_world_size(UNISYNC_TIMEOUT="3")) as ranks:
        survivor = ranks.wait(40.0)[1 - culprit]
    assert survivor.code != 0
    if culprit == 0 and "SIGKILL" in fault:
        assert "rank 0 has gone" in survivor.err
    elif culprit == 1 and "SIGKILL" in fault:
        assert "rank 1 ended without a word" in survivor.err
    else:
        assert f"rank {culprit} failed: ValueError: boom" in survivor.err


def test_ports_in_use_are_passed_over():
    variables = by_rank_and_world_size()
    first = int(variables(0)["MASTER_PORT"]) + 1
    other = Coordinator(2, "another job", port=first)
    other.start()
    try:
        with Ranks("us.barrier()", variables=variables) as ranks:
            assert [(r.code, r.err) for r in ranks.wait()] == [(0, ""), (0, "")]
        assert not other.joined
    finally:
        other.close()


SCRIPT = (
    Ranks.PREAMBLE
    + """
        assert us.all_gather_object(rank) == [0, 1]
        print(f"{world.size} {rank}|", end="", flush=True)
        us.barrier()
    """
)


def started(folder, *command):
    """A script of two ranks, started by a command; what it printed, in order."""
    path = folder / "script.py"
    path.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    env = {k: v for k, v in os.environ.items() if not k.startswith("UNISYNC_")}
    env |= {"PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, str(path)], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return "".join(sorted(part for part in done.stdout.split("|") if part.strip()))


def test_torchrun(tmp_path):
    pytest.importorskip("torch")
    run = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()))
    assert started(tmp_path, sys.executable, *run) == "2 02 1"


def test_mpiexec(tmp_path):
    mpiexec = Path(sys.executable).parent / "mpiexec"
    if not mpiexec.exists() or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("no mpiexec beside this Python, or no mpi4py")
    assert started(tmp_path, str(mpiexec), "-n", "2", sys.executable) == "2 02 1"

"""NumPy's worlds of processes over MPI: what the engine adds to the common tests, and how ranks get to MPI."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from under_test import BACKENDS

from unisync.backends.numpy._mpi import number_of
from unisync.distributed.launch import mpi
from unisync.errors import MissingDependencyError, StateError

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ENGINE = "tests/distributed/launched/mpi_engine.py"
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "UNISYNC_BACKEND": "numpy"}

if os.environ.get("UNISYNC_RANK"):
    pytest.skip("started by a launcher already", allow_module_level=True)
if "numpy" not in BACKENDS:
    pytest.skip("numpy is not under test", allow_module_level=True)
if importlib.util.find_spec("mpi4py") is None:
    pytest.skip("mpi4py is not installed", allow_module_level=True)
try:
    MPIEXEC = mpi.find_mpiexec()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)


def run(command, within_s=60.0, **variables):
    return subprocess.run(
        command, cwd=ROOT, env=ENV | variables, capture_output=True, text=True, timeout=within_s,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def unisync_run(replicas, *arguments):
    start = [sys.executable, "-m", "unisync", "run", "--backend", "numpy", "--replicas", str(replicas)]
    return [*start, "--timeout", "30", *arguments]


def mpiexec(replicas, *arguments):
    options = ["--allow-run-as-root", "--oversubscribe"] if MPIEXEC.kind == "openmpi" else []
    return [MPIEXEC.path, *options, "-n", str(replicas), sys.executable, *arguments]


def test_the_engine_in_two_processes():
    done = run(unisync_run(2, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", ENGINE))
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    assert done.stdout.count(" passed") == 2
    assert "skipped" not in done.stdout


@pytest.mark.parametrize("replicas", [3, 4])
def test_the_engine_in_several_processes(replicas):
    done = run(unisync_run(replicas, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", ENGINE), 110)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    assert done.stdout.count(" passed") == replicas


TOTAL = """
import numpy as np, unisync as us
world = us.init_distributed()
print("total", us.all_reduce(np.arange(2.0) + world.process_index, "sum").tolist(), world.engine)
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return str(path)

    return write


def test_started_by_mpiexec(script):
    done = run(mpiexec(2, script(TOTAL)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[1.0, 3.0]") == 2  # mpiexec may mix the parts of two lines


@pytest.mark.parametrize("first", ["import mpi4py.MPI", "from mpi4py import MPI; MPI.COMM_WORLD.Barrier()"])
def test_mpi4py_may_be_imported_before(script, first):
    done = run(unisync_run(2, script(first + TOTAL)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("total [1.0, 3.0] mpi") == 2


@pytest.mark.parametrize("start", [unisync_run, mpiexec])
@pytest.mark.parametrize("end", ["sys.exit(3)", "raise ValueError('mine')", "os.kill(os.getpid(), 9)", "sys.exit(0)"])
def test_an_end_that_the_others_do_not_expect(script, start, end):
    """MPI_Finalize alone would wait for ever."""
    text = f"import os, sys{TOTAL}\nif world.process_index == 1:\n    {end}\nwhile True: us.barrier()"
    before = shared_memory()
    done = run(start(2, script(text)), UNISYNC_TIMEOUT="30", within_s=25)
    assert done.returncode != 0
    assert shared_memory() == before
    if "kill" not in end or start is unisync_run:  # mpiexec itself kills the others at once
        said = done.stdout + done.stderr
        assert re.search(r'script\.py(:|", line )[78]', said)
        assert "rank 1" in said or "ValueError: mine" in said


def shared_memory():
    folder = Path("/dev/shm")
    return {path.name for path in folder.glob("mpich_shm_*")} if folder.is_dir() else set()


def test_without_mpiexec_a_process_is_alone(script):
    text = "from unisync.backends import load_mpi\nfrom unisync.backends.numpy._mpi import world_of\n"
    text += "world_of(load_mpi(), 0, 2)"
    done = run([sys.executable, script(text)])
    assert StateError.__name__ in done.stderr
    assert "knows of 1" in done.stderr
    assert "unisync run --backend numpy" in done.stderr


def test_without_mpi4py(script):
    text = "import sys\nsys.modules['mpi4py'] = None\nfrom unisync.backends import load_mpi\nload_mpi()"
    done = run([sys.executable, script(text)])
    assert MissingDependencyError.__name__ in done.stderr
    assert "pip install '.[mpi]'" in done.stderr


# Seats at mpiexec's table


SEATED = """
import sys, numpy as np
from mpi4py import MPI
x = np.full(1, MPI.COMM_WORLD.rank + 1.0)
MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, x)
sys.exit(int(x[0]) * 10 + MPI.COMM_WORLD.rank)
"""


def seated(seat, command):
    return subprocess.Popen(command, env=ENV | seat.environment, pass_fds=seat.descriptors)


def test_seats_make_processes_of_our_own_an_mpi_job(script):
    command = [sys.executable, script(SEATED)]
    with mpi.Seats(mpi.local_command(3), 3, ENV) as seats:
        assert [seat.rank for seat in seats.seats] == [0, 1, 2]
        processes = [seated(seat, command) for seat in seats.seats]
        seats.release()
        assert [p.wait(30) for p in processes] == [60, 61, 62]
        assert seats.poll() is None
    assert seats.poll() == 0


def until(holds, within_s=30.0):
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.skipif(MPIEXEC.kind != "mpich", reason="the files of MPICH's shared memory")
def test_seats_outlive_a_killed_rank(script):
    before = shared_memory()
    command = [sys.executable, "-c", "import mpi4py.MPI, time; time.sleep(60)"]
    with mpi.Seats(mpi.local_command(2), 2, ENV) as seats:
        processes = [seated(seat, command) for seat in seats.seats]
        seats.release()
        until(lambda: shared_memory() - before)
        time.sleep(0.3)
        processes[0].kill()
        assert processes[0].wait(10) == -signal.SIGKILL
        time.sleep(0.3)
        assert processes[1].poll() is None
        assert seats.poll() is None
        mine = shared_memory() - before
        assert mine  # MPICH's name for it, which killed processes leave
        processes[1].kill()
        processes[1].wait(10)
        time.sleep(0.6)
    assert seats.poll() is not None
    assert not mine & shared_memory()


def test_nothing_is_left_of_seats_that_nobody_takes():
    seats = mpi.Seats(mpi.local_command(2), 2, ENV)
    session, folder = seats._process._process.pid, Path(seats._folder.name)
    descriptors = [d for seat in seats.seats for d in seat.descriptors]
    assert folder.is_dir()
    seats.close()
    seats.close()
    with pytest.raises(ProcessLookupError):
        os.killpg(session, 0)
    assert not folder.exists()
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_an_mpiexec_that_fails_says_why():
    with pytest.raises(StateError, match="ended with status 3 and said: no luck"):
        mpi.Seats([sys.executable, "-c", "print('no luck'); raise SystemExit(3)"], 2, ENV)


def test_no_mpiexec(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *args, **kwargs: None)
    with pytest.raises(MissingDependencyError, match=r"pip install '\.\[mpi\]'"):
        mpi.find_mpiexec()


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        ("mpirun (Open MPI) 5.0.11", "openmpi"),
        ("mpiexec (OpenRTE) 4.1.6", "openmpi"),
        ("HYDRA build details:", "mpich"),
        ("Intel(R) MPI Library", None),
    ],
)
def test_mpiexecs_are_told_apart(tmp_path, monkeypatch, says, kind):
    path = tmp_path / "mpiexec"
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda *args, **kwargs: str(path))
    if kind is None:
        with pytest.raises(MissingDependencyError, match=r"Intel.*mpiexec -n 2 python script\.py"):
            mpi.find_mpiexec()
    else:
        assert mpi.find_mpiexec() == mpi.Mpiexec(str(path), kind)


@pytest.mark.skipif(MPIEXEC.kind != "mpich", reason="Open MPI's mpiexec starts its daemons itself")
def test_a_job_of_several_machines(script):
    """Two proxies on this machine stand for those of two."""
    command = [sys.executable, script(SEATED)]
    with mpi.Manager([("127.0.0.1", 1), ("127.0.0.1", 1)], ENV) as manager:
        assert len(manager.commands) == 2
        assert all("127.0.0.1:" in " ".join(c) for c in manager.commands)
        both = [mpi.Seats(mpi.localized(command), 1, ENV) for command in manager.commands]
        assert [seat.rank for seats in both for seat in seats.seats] == [0, 1]
        processes = [seated(seat, command) for seats in both for seat in seats.seats]
        assert [p.wait(30) for p in processes] == [30, 31]
        for seats in both:
            seats.close()


def test_a_manager_whose_machines_do_not_come_can_be_ended():
    manager = mpi.Manager([("127.0.0.1", 1), ("127.0.0.1", 1)], ENV)
    start = time.monotonic()
    manager.close(timeout_s=0.2)
    manager.close()
    assert time.monotonic() - start < 5


# Without MPI


def test_numbers_of_calls_are_the_same_in_every_process():
    call = ("sum", (3, 4), "f")
    code = f"from unisync.backends.numpy._mpi import number_of; print(number_of({call!r}))"
    found = {run([sys.executable, "-c", code], PYTHONHASHSEED=str(seed)).stdout.strip() for seed in (1, 2)}
    assert found == {str(number_of(call))}
    assert number_of(call) != number_of(("sum", (4, 3), "f"))

"""`us.launch`: functions, arguments, results and errors on their way to the ranks' processes and back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import unisync as us
from unisync.errors import (
    ArgumentError,
    ArgumentTypeError,
    CollectiveMismatchError,
    ReplicaFailedError,
    UnknownNameError,
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX processes")]

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch, tmp_path):
    """A folder for temporary files, which must be empty at the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert [path.name for path in folder.iterdir()] == []


def plain(fn, replicas=2, **options):
    """us.launch of a function that makes no world, for which any backend will do."""
    return us.launch(fn, replicas, backend="torch", **options)


def rank() -> int:
    return int(os.environ["UNISYNC_RANK"])


def test_results_come_in_the_order_of_ranks():
    def fn(a, b):
        import os
        import time

        time.sleep(0.2 * (1 - int(os.environ["UNISYNC_RANK"])))
        return {"rank": int(os.environ["UNISYNC_RANK"]), "sum": a + b, "array": np.arange(3)}

    first, second = plain(fn, args=(1, 2.5))
    assert (first["rank"], second["rank"], first["sum"]) == (0, 1, 3.5)
    assert second["array"].tolist() == [0, 1, 2]


def test_a_world_of_each_backend(backend):
    us.asarray([1.0])  # the caller uses the framework as well

    def fn(x):
        with us.init_distributed(timeout_s=60) as world:
            total = us.all_reduce(us.asarray(x) * (world.process_index + 1), op="sum")
            return world.size, world.process_index, us.current_backend(), us.to_numpy(total)

    results = us.launch(fn, 2, args=(np.array([1.0, 2.0], np.float32),))
    for i, (size, index, name, total) in enumerate(results):
        assert (size, index, name, total.tolist()) == (2, i, backend, [3.0, 6.0])


def test_an_error_has_rank_traceback_and_cause(capfd):
    def fn():
        import os

        if os.environ["UNISYNC_RANK"] == "1":
            raise KeyError("boom")
        import time

        time.sleep(60)

    started = time.monotonic()
    with pytest.raises(ReplicaFailedError) as caught:
        plain(fn)
    assert time.monotonic() - started < 10
    assert caught.value.rank == 1
    assert isinstance(caught.value.__cause__, KeyError)
    text = str(caught.value)
    assert text.startswith("rank 1 exited with code 1")
    assert f'File "{__file__}", line ' in text
    assert 'raise KeyError("boom")' in text
    assert text.endswith("KeyError: 'boom'")
    assert "worker.py" not in text
    assert "[1] KeyError: 'boom'\n" in capfd.readouterr().err


def test_an_error_that_cannot_travel():
    def fn():
        class Odd(Exception):
            def __init__(self, a, b):
                super().__init__(a)

        raise Odd("boom", 1)

    with pytest.raises(ReplicaFailedError, match=r"Odd: boom$") as caught:
        plain(fn, 1)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("ending", "says"),
    [
        ("os._exit(7)", "rank 0 exited with code 7"),
        ("os.kill(os.getpid(), 9)", "rank 0 was killed by SIGKILL"),
        ("sys.exit(3)", "rank 0 exited with code 3"),
        ("sys.exit(0)", "rank 0 must return"),
    ],
)
def test_a_process_that_ends_before_it_returns(ending, says):
    with pytest.raises(ReplicaFailedError, match=says) as caught:
        plain(eval(f"lambda: {ending}", {"os": os, "sys": sys}), 1)
    assert caught.value.rank == 0


def test_ranks_that_disagree():
    def fn():
        with us.init_distributed(timeout_s=10) as world:
            us.all_reduce(us.zeros(2 + world.process_index))

    with pytest.raises(CollectiveMismatchError, match=r"rank 1: .*float32\[3\]"):
        us.launch(fn, 2, backend="numpy")


def test_what_ranks_print_is_passed_on(capsys, tmp_path):
    plain(lambda: print("hello"), log_dir=tmp_path / "logs")
    assert sorted(capsys.readouterr().out.splitlines()) == ["[0] hello", "[1] hello"]
    assert (tmp_path / "logs" / "rank-1.log").read_text() == "hello\n"


def test_a_stream_without_bytes_as_a_notebooks(monkeypatch):
    class Stream:
        text = ""

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    stream = Stream()
    monkeypatch.setattr(sys, "stdout", stream)
    plain(lambda: print("é"), 1)
    assert stream.text == "[0] é\n"


def test_from_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.extend(plain(lambda: 5)))
    thread.start()
    thread.join(60)
    assert found == [5, 5]


SCRIPT = """
import dataclasses, sys
import unisync as us

OFFSET = 10

@dataclasses.dataclass
class Point:
    x: int

def helper(x):
    return x + OFFSET

def fn(x):
    return Point(helper(x))

print(us.launch(fn, 2, backend="torch", args=(1,)))
assert not {"torch", "jax", "tensorflow"} & set(sys.modules)
"""


@pytest.mark.parametrize("how", ["script", "cell"])
def test_functions_of_main(how, tmp_path):
    """A notebook's cell is code of `__main__` without a file, as is what Python reads from its input."""
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, *([str(file)] if how == "script" else ["-"])],
        input=SCRIPT, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout == "[Point(x=11), Point(x=11)]\n"


WAITING = """
import os, sys, tempfile, time
import unisync as us

tempfile.tempdir = sys.argv[1]

def fn():
    print(os.getpid(), flush=True)
    time.sleep(100)

us.launch(fn, 2, backend="torch")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_caller_that_ends_takes_all_with_it(name, tmp_path):
    file, folder = tmp_path / "script.py", tmp_path / "folder"
    file.write_text(WAITING)
    folder.mkdir()
    command = [sys.executable, str(file), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        pids = [int(process.stdout.readline().split()[1]) for _ in range(2)]
        process.send_signal(getattr(signal, name))
        process.wait(30)
    end = time.monotonic() + 10
    while time.monotonic() < end and (any(map(_runs, pids)) or list(folder.iterdir())):
        time.sleep(0.05)
    assert not any(map(_runs, pids))
    assert list(folder.iterdir()) == []


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "says"),
    [
        ((3, 2), {}, ArgumentTypeError, "`fn` must be a function"),
        ((rank, "2"), {}, ArgumentTypeError, "`replicas` must be a whole number"),
        ((rank, True), {}, ArgumentTypeError, "`replicas` must be a whole number"),
        ((rank, 0), {}, ArgumentError, "`replicas` must be at least 1"),
        ((rank, 1), {"timeout_s": 0}, ArgumentError, "`timeout_s` must be positive"),
        ((rank, 1), {"backend": "pytorch"}, UnknownNameError, "Try: 'torch'"),
        ((rank, 1), {"args": (threading.Lock(),)}, ArgumentTypeError, "must be picklable.*lock"),
    ],
)
def test_bad_arguments(arguments, options, kind, says):
    with pytest.raises(kind, match=says):
        us.launch(*arguments, **options)

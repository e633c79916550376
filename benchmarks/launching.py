"""What `unisync run` costs over the engine's own launcher, and whether it leaves anything behind.

`python -m benchmarks.launching`: interleaved with torchrun, mpiexec, and processes started by hand.
`python -m benchmarks.launching --in-a-row 100 [BACKEND ...]`: as many launches of a world, one after the other; exit
code 1 if one fails or leaves a process, a file in /dev/shm or a temporary file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from benchmarks.paired import compare

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
MARK = "UNISYNC_BENCHMARK_MARK"

HELLO = "print('hello')"
WORLD = """
import unisync as us
world = us.init_distributed()
assert float(us.all_reduce(us.asarray(1.0), op="sum")) == 2.0
"""


def main(rounds: int = 15) -> None:
    """Print the seconds that two processes take from the command to its end."""
    print(
        "\n## Launching\n\n| two processes that | launched by | median | over its own launcher | 95 % interval, ratio |"
    )
    print("|---|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for backend, launcher, own in (
            ("torch", "torchrun", _torchrun),
            ("numpy", "mpiexec", _mpiexec),
            ("jax", "processes started by hand", _started),
        ):
            hello, world = _file(folder, "hello", HELLO), _file(folder, "world", WORLD)
            _compare("print a line", launcher, own(hello), backend, hello, rounds)
            if own is not _started:
                _compare("all-reduce once", launcher, own(world), backend, world, rounds)


def _compare(what: str, launcher: str, theirs: Callable[[], object], backend: str, program: Path, rounds: int) -> None:
    found = compare(
        launcher, {launcher: theirs, "unisync run": lambda: _unisync(backend, program)}, rounds=rounds, warmup=2
    )
    for c in found:
        interval = f"{c.ratio_low:.2f} – {c.ratio_high:.2f}"
        print(
            f"| {what} | {c.name} ({backend}) | {c.median_s:.2f} s | {c.extra_us / 1e6:+.2f} s | {interval} |",
            flush=True,
        )


def _file(folder: Path, name: str, text: str) -> Path:
    file = folder / f"{name}.py"
    file.write_text(text)
    return file


def _run(*command: str, **environment: str) -> None:
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1", **environment})


def _unisync(backend: str, program: Path) -> None:
    _run(sys.executable, "-m", "unisync", "run", "--backend", backend, "--replicas", "2", str(program))


def _torchrun(program: Path) -> Callable[[], None]:
    tool = shutil.which("torchrun", path=str(Path(sys.executable).parent)) or "torchrun"
    return lambda: _run(tool, "--standalone", "--nproc-per-node", "2", str(program), UNISYNC_BACKEND="torch")


def _mpiexec(program: Path) -> Callable[[], None]:
    tool = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or "mpiexec"
    return lambda: _run(tool, "-n", "2", sys.executable, str(program), UNISYNC_BACKEND="numpy")


def _started(program: Path) -> Callable[[], None]:
    def run() -> None:
        processes = [subprocess.Popen([sys.executable, str(program)], stdout=subprocess.DEVNULL) for _ in range(2)]
        assert [p.wait() for p in processes] == [0, 0]

    return run


def in_a_row(backend: str, count: int) -> list[str]:
    """What went wrong in as many launches of a world of two processes; empty if nothing did."""
    problems: list[str] = []
    shared = _shared()
    with tempfile.TemporaryDirectory() as name:
        program, folder = _file(Path(name), "world", WORLD), Path(name) / "temporary"
        folder.mkdir()
        mark = uuid.uuid4().hex
        command = [sys.executable, "-m", "unisync", "run", "--backend", backend, "--replicas", "2", str(program)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), MARK: mark}
        for i in range(count):
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            if done.returncode:
                problems.append(f"launch {i} ended with {done.returncode}: {done.stderr[-2000:]}")
            problems += [f"launch {i} left process {pid}" for pid in _marked(mark)]
        problems += [f"left {path.name}" for path in folder.iterdir()]
    end = time.monotonic() + 10  # others on this machine may be at work as well
    while (left := _shared() - shared) and time.monotonic() < end:
        time.sleep(0.2)
    return problems + [f"left /dev/shm/{name}" for name in sorted(left)]


def _shared() -> set[str]:
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


def _marked(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def _count(arguments: list[str]) -> int:
    count, failed = int(arguments[0]), 0
    for backend in arguments[1:] or BACKENDS:
        started = time.perf_counter()
        problems = in_a_row(backend, count)
        each = (time.perf_counter() - started) / count
        print(f"{backend}: {count} launches, {each:.2f} s each, {len(problems)} problems", flush=True)
        print("".join(f"  {problem}\n" for problem in problems[:20]), end="")
        failed += bool(problems)
    return failed


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in-a-row"]:
        sys.exit(_count(sys.argv[2:]))
    main()

"""A collective between two processes over the same by the engine's own call, in the same processes, taking turns."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

import unisync as us
from benchmarks.paired import compare, show
from unisync import _context, _dispatch
from unisync.backends import import_by_hand, installed

PROCESSES, SMALL, LARGE = 2, 4 * 2**10, 16 * 2**20
CALLS, ROUNDS = {SMALL: 20, LARGE: 1}, {SMALL: 150, LARGE: 80}
MAX_RATIO, MAX_EXTRA_US = {SMALL: 1.05, LARGE: 1.02}, {SMALL: 10.0, LARGE: 0.0}


def run(backend: str) -> None:
    """Measure as one of the processes; the first prints."""
    us.set_backend(backend)
    with us.init_distributed() as world:
        by_hand, engine = import_by_hand(backend), world._engine
        for op, call in (("all_reduce", _sum), ("all_gather", us.all_gather)):
            for size in (SMALL, LARGE):
                draws = np.random.default_rng(world.process_index)
                x = us.asarray(draws.normal(size=size // 4).astype(np.float32), device=world.device)

                def ours(x: object = x, call=call) -> None:
                    by_hand.wait([call(x)])

                theirs = by_hand.launched(op, x, engine)
                first = next(iter(theirs))
                np.testing.assert_allclose(us.to_numpy(call(x)), us.to_numpy(theirs[first]()), rtol=1e-6)
                _compare(f"{op} of {size // 1024} KB", size, theirs, f"us.{op}", ours)
                if hasattr(by_hand, "launched_program"):  # what is compiled keeps its arrays in another form
                    value, compiled = us.PerReplica([x]), us.spmd(call)
                    value = us.spmd(lambda x: x)(value)
                    programs = by_hand.launched_program(op, value, engine)

                    def in_spmd(value: object = value, compiled=compiled) -> None:
                        by_hand.wait(compiled(value))

                    _compare(f"compiled {op} of {size // 1024} KB", size, programs, f"us.spmd(us.{op})", in_spmd)


def _compare(what: str, size: int, theirs: dict, name: str, ours: object) -> None:
    """Print the times of ours over the first of theirs, and whether they are within the limit."""
    by_hand = import_by_hand(us.current_backend())
    waited = {n: (lambda f=f: by_hand.wait([f()])) for n, f in theirs.items()}
    found = compare(next(iter(theirs)), {**waited, name: ours}, rounds=ROUNDS[size], calls=CALLS[size], warmup=10)
    world = _context.world()
    if world.process_index == 0:
        show(f"{world.backend} ({world.engine}), {what}, {world.size} processes", found)
        own = found[-1]
        verdict = "holds" if own.holds(MAX_RATIO[size], MAX_EXTRA_US[size]) else "DOES NOT HOLD"
        limit = f"{MAX_RATIO[size]}" + (f" or {MAX_EXTRA_US[size]:g} µs more" if MAX_EXTRA_US[size] else "")
        print(f"\nAt most {limit}: {verdict}.", flush=True)


def _sum(x: object) -> object:
    return us.all_reduce(x, op="sum")


def main() -> None:
    """Measure every installed backend whose engine can be called by hand, one math thread each."""
    print("\n## Collectives between processes")
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    for name in _dispatch.BACKENDS:
        if installed(name) and hasattr(import_by_hand(name), "launched"):
            command = [sys.executable, "-m", "unisync", "run", "--backend", name, "--replicas", str(PROCESSES),
                       "-m", "benchmarks.launched", name]  # fmt: skip
            subprocess.run(command, env={**os.environ, **threads}, check=True)


if __name__ == "__main__":
    run(sys.argv[1]) if len(sys.argv) > 1 else main()

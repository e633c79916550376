"""A collective of two replicas: over the same by the framework's own means, and against the machine's copy bandwidth.

Between threads an all-reduce of n bytes must at least read both arrays and write both results, so half of what one
`np.copyto` of n bytes reaches is asked for. On one busy core the threads take turns, which widens the intervals.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import unisync as us
from benchmarks import each
from benchmarks.paired import CONTROL, compare, show

REPLICAS, SMALL, LARGE = 2, 4 * 2**10, 16 * 2**20
CALLS = {SMALL: 20, LARGE: 5}
ROUNDS = {SMALL: 200, LARGE: 200}
IN_A_ROW = 5
MAX_COPIES = 2.0  # an all-reduce of LARGE bytes, in copies of as many


def run(backend: str) -> None:
    """Measure one backend in this process and print its tables."""
    us.set_backend(backend)
    by_hand = import_module(f"unisync.backends.{backend}.by_hand")
    with us.init_distributed(replicas=REPLICAS, device="cpu") as world:
        total = us.spmd(lambda x: us.all_reduce(x, op="sum"))
        for size in (SMALL, LARGE):
            value = world.scatter(np.random.default_rng(0).normal(size=REPLICAS * size // 4).astype(np.float32))

            def ours(value: us.PerReplica = value) -> None:
                by_hand.wait(total(value))

            with by_hand.collective("all_reduce", value, world._engine) as theirs:
                own = [us.to_numpy(x) for x in total(value)]
                expected = [us.to_numpy(x) for x in by_hand.results(theirs())]
                assert all(np.array_equal(x, y) for x, y in zip(own, expected, strict=True)), backend
                found = compare(
                    "by hand", {"by hand": theirs, "us.all_reduce": ours}, rounds=ROUNDS[size], calls=CALLS[size]
                )
            show(f"{backend}, all_reduce of {size // 1024} KB, {REPLICAS} replicas, over by hand", found)
        if world.engine == "threads":
            _against_copies(ours, backend)
            _in_a_row(world, backend)


def _against_copies(ours: Callable[[], object], backend: str) -> None:
    source, target = np.ones(LARGE // 4, np.float32), np.empty(LARGE // 4, np.float32)
    candidates = {
        "np.copyto": lambda: np.copyto(target, source),
        "np.copy, to new memory": lambda: np.copy(source),
        "us.all_reduce, to new memory": ours,
    }
    found = compare("np.copyto", candidates, rounds=ROUNDS[LARGE])
    show(f"{backend}, all_reduce of {LARGE // 2**20} MB between two threads, against one thread's copy", found)
    copied, reduced = (LARGE / found[i].median_s / 1e9 for i in (1, 3))
    print(f"\nnp.copyto: {copied:.2f} GB/s; all_reduce: {reduced:.2f} GB/s of each replica's array.")
    print(f"Of memory read and written: {2 * copied:.1f} GB/s and {4 * reduced:.1f} GB/s.")
    verdict = "holds" if found[3].ratio_low <= MAX_COPIES else "DOES NOT HOLD"
    print(f"At most {MAX_COPIES:g} times the copy: {verdict}.")


def _in_a_row(world: us.World, backend: str) -> None:
    """IN_A_ROW all-reduces against as many copies, each of arrays of its own, which nobody finds in the cache."""

    def copies() -> Callable[[], object]:
        pairs = [(np.ones(LARGE // 4, np.float32), np.ones(LARGE // 4, np.float32)) for _ in range(IN_A_ROW)]
        return lambda: [np.copyto(target, source) for target, source in pairs]

    def total(x: Any) -> None:
        us.all_reduce(x, op="sum")  # the result is dropped, as gradients are after a step

    values = [world.scatter(np.ones(REPLICAS * LARGE // 4, np.float32)) for _ in range(IN_A_ROW)]
    one, several = us.spmd(total), us.spmd(lambda *xs: [total(x) for x in xs])
    inside, outside = "us.all_reduce", "us.spmd of us.all_reduce"
    candidates: dict[str, Callable[[], object]] = {
        CONTROL: copies(),
        "np.copyto": copies(),
        inside: lambda: several(*values),
        outside: lambda: [one(value) for value in values],
    }
    found = compare("np.copyto", candidates, rounds=ROUNDS[LARGE])
    count = f"{IN_A_ROW} times {LARGE // 2**20} MB"
    show(
        f"{backend}, all_reduce of {count}, of arrays that nobody has in the cache, against one thread's copies", found
    )


def main() -> None:
    """Measure every installed backend."""
    each.backend("collectives", "Collectives")


if __name__ == "__main__":
    run(sys.argv[1]) if len(sys.argv) > 1 else main()

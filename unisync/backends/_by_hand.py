"""Collectives between threads as one would write them without unisync, for `unisync bench` to compare with."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

OPS: tuple[str, ...] = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "permute")
"""What every backend's `by_hand.py` knows: all_reduce and reduce_scatter sum, broadcast sends the first replica's
array, permute hands each replica's to the next."""


@contextlib.contextmanager
def in_threads(op: str, arrays: Sequence[Any], concat: Callable, copy: Callable) -> Iterator[Callable[[], list[Any]]]:
    """A function that does the collective once, with a thread for each array, and returns the results.

    Every thread lays down its array, waits for the others, computes its own result, and waits again: only then may
    arrays change.
    """
    part, size = _PARTS[op], len(arrays)
    begin, brought, done = (threading.Barrier(n) for n in (size + 1, size, size + 1))
    slots, results = [None] * size, [None] * size

    def replica(rank: int) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            while True:
                begin.wait()
                slots[rank] = arrays[rank]
                brought.wait()
                results[rank] = part(slots, rank, concat, copy)
                done.wait()

    threads = [threading.Thread(target=replica, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()

    def call() -> list[Any]:
        begin.wait()
        done.wait()
        return list(results)

    try:
        yield call
    finally:
        begin.abort()
        for thread in threads:
            thread.join()


def _total(parts: Sequence[Any], copy: Callable) -> Any:
    if len(parts) == 1:
        return copy(parts[0])
    total = parts[0] + parts[1]
    for x in parts[2:]:
        total += x
    return total


def _slices(xs: Sequence[Any], rank: int) -> list[Any]:
    n = xs[0].shape[0] // len(xs)
    return [x[rank * n : (rank + 1) * n] for x in xs]


_PARTS: dict[str, Callable[..., Any]] = {  # (all arrays, replica, concat, copy) → its result, in memory of its own
    "all_reduce": lambda xs, rank, concat, copy: _total(xs, copy),
    "all_gather": lambda xs, rank, concat, copy: concat(xs),
    "reduce_scatter": lambda xs, rank, concat, copy: _total(_slices(xs, rank), copy),
    "broadcast": lambda xs, rank, concat, copy: copy(xs[0]),
    "all_to_all": lambda xs, rank, concat, copy: concat(_slices(xs, rank)),
    "permute": lambda xs, rank, concat, copy: copy(xs[rank - 1]),
}

"""The adding-up of the thread engine: flat arrays that share memory, by parts that fit in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unisync.backends._memory import Pool
from unisync.backends._rendezvous import Work

PART_BYTES = 2**21
"""How much of each array one part of the work is at most."""

BLOCK_BYTES = 2**19
"""How much of each array is reduced at a time, into memory that stays in the processor's cache, to be copied from there
to all results. Smaller blocks cost more hand-overs of the interpreter's lock."""

POOLED_BYTES = 2**18
"""From this size on, results of a reduction lie in one block of a pool."""

_UFUNCS: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


def reduction(values: Sequence[Sequence[np.ndarray]], ops: Sequence[str], pool: Pool) -> Work:
    """The reduction of each member's flat arrays in the order of replicas, into memory for each member."""
    columns = list(zip(*values, strict=True))
    outs = [_rows(len(values), xs[0], pool) for xs in columns]
    parts: list[tuple[Any, ...]] = []
    for xs, rows, op in zip(columns, outs, ops, strict=True):
        size = xs[0].size
        step = PART_BYTES // xs[0].itemsize if isinstance(rows, np.ndarray) else max(size, 1)
        parts += [(xs, rows, op, low, min(low + step, size)) for low in range(0, size, step)]

    def do(part: int) -> None:
        _reduce(*parts[part])

    return Work([list(own) for own in zip(*outs, strict=True)], len(parts), do)


def _rows(count: int, x: np.ndarray, pool: Pool) -> np.ndarray | list[np.ndarray]:
    if x.nbytes < POOLED_BYTES:
        return [np.empty_like(x) for _ in range(count)]
    return pool.rows(count, x.size, x.dtype)


def _reduce(xs: Sequence[np.ndarray], rows: Any, op: str, low: int, high: int) -> None:
    with np.errstate(all="ignore"):
        if not isinstance(rows, np.ndarray):  # separate arrays, which are small
            _total(xs, op, rows[0])
            for row in rows[1:]:
                row[:] = rows[0]
            return
        step = BLOCK_BYTES // xs[0].itemsize
        block = np.empty(min(step, high - low), xs[0].dtype)
        for begin in range(low, high, step):
            end = min(begin + step, high)
            rows[:, begin:end] = _total([x[begin:end] for x in xs], op, block[: end - begin])


def _total(xs: Sequence[np.ndarray], op: str, out: np.ndarray) -> np.ndarray:
    ufunc = _UFUNCS["sum" if op == "mean" else op]
    ufunc(xs[0], xs[1], out=out)
    for x in xs[2:]:
        ufunc(out, x, out=out)
    if op == "mean":
        np.divide(out, out.dtype.type(len(xs)), out=out)
    return out


def sum_of_slices(xs: list[np.ndarray], i: int) -> np.ndarray:
    """The sum of the i-th of equal slices along axis 0, as many as there are arrays."""
    n = xs[0].shape[0] // len(xs)
    parts = [x[i * n : (i + 1) * n] for x in xs]
    out = np.empty(parts[0].shape, parts[0].dtype)
    with np.errstate(all="ignore"):
        np.add(parts[0], parts[1], out=out)
        for part in parts[2:]:
            np.add(out, part, out=out)
    return out

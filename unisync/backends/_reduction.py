"""The adding-up of the thread engine: flat arrays that share memory, by parts that fit in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unisync.backends._memory import Pool
from unisync.backends._rendezvous import Work

PART_BYTES = 2**23
"""How much of each array one part of the work is at most. Smaller parts cost more hand-overs of the interpreter's lock."""

BLOCK_BYTES = 2**19
"""How much of each array is worked on at a time where that takes more than one operation."""

TILE_BYTES = 2**16
"""How much of each array a part reads at a time, and writes all results of, before the processor's cache forgets it."""

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
        step = min(-(-size // len(xs)), PART_BYTES // xs[0].itemsize) or 1
        parts += [(xs, rows, op, low, min(low + step, size)) for low in range(0, size, step)]

    def do(part: int) -> None:
        xs, rows, op, low, high = parts[part]
        step = high - low if len(xs) == 2 and op != "mean" else BLOCK_BYTES // xs[0].itemsize
        for begin in range(low, high, step):
            _reduce(xs, rows, op, begin, min(begin + step, high))

    return Work([list(own) for own in zip(*outs, strict=True)], len(parts), do)


def _rows(count: int, x: np.ndarray, pool: Pool) -> Sequence[np.ndarray]:
    if x.nbytes < POOLED_BYTES:
        return [np.empty_like(x) for _ in range(count)]
    return pool.rows(count, x.size, x.dtype)


def _reduce(xs: Sequence[np.ndarray], rows: Any, op: str, low: int, high: int) -> None:
    ufunc = _UFUNCS["sum" if op == "mean" else op]
    parts = [x[low:high] for x in xs]
    with np.errstate(all="ignore"):
        total = parts[0]
        for x in parts[1 : None if op == "mean" else -1]:
            total = ufunc(total, x, out=None if total is parts[0] else total)
        last = total.dtype.type(len(xs)) if op == "mean" else parts[-1]
        _into_all(np.divide if op == "mean" else ufunc, total, last, rows, low, high)


def _into_all(ufunc: Callable[..., Any], x: np.ndarray, y: Any, rows: Any, low: int, high: int) -> None:
    """ufunc(x, y) into a place of each row."""
    if not isinstance(rows, np.ndarray):  # separate arrays, which are small
        first = ufunc(x, y, out=rows[0][low:high])
        for row in rows[1:]:
            row[low:high] = first
        return
    # One call, which needs the interpreter's lock only once. In the order "C" it comes to the next tile when it has
    # written the last one to all rows, so that memory is read once.
    tile = TILE_BYTES // x.itemsize
    whole = x.size // tile * tile
    if whole:
        shape = len(rows), whole // tile, tile
        target = rows[:, low : low + whole].reshape(shape).transpose(1, 0, 2)
        ufunc(_tiles(x, whole, tile), _tiles(y, whole, tile), out=target, order="C")
    if whole < x.size:
        ufunc(x[whole:], y[whole:] if isinstance(y, np.ndarray) else y, out=rows[:, low + whole : high])


def _tiles(x: Any, whole: int, tile: int) -> Any:
    return x[:whole].reshape(-1, 1, tile) if isinstance(x, np.ndarray) else x


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

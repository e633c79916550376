"""The adding-up of the thread engine: flat arrays that share memory, by chunks that fit in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unisync.backends._rendezvous import Work

CHUNK_BYTES = 2**20
"""How much of each array is reduced at a time. Smaller chunks cost more hand-overs of the interpreter's lock."""

_UFUNCS: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


Brought = tuple[Sequence[np.ndarray], Sequence[np.ndarray | None]]
"""What a member brings: flat arrays, and for each where its own copy of the result goes (None: anywhere)."""


def reduction(values: Sequence[Brought], ops: Sequence[str]) -> Work:
    """The reduction of each member's flat arrays in the order of replicas, by chunks, into arrays for each member."""
    outs = [[np.empty_like(x) if out is None else out for x, out in zip(xs, os, strict=True)] for xs, os in values]
    columns = [([xs[i] for xs, _ in values], [own[i] for own in outs], op) for i, op in enumerate(ops)]
    chunks = []
    for i, x in enumerate(values[0][0]):
        step = max(1, CHUNK_BYTES // x.itemsize)
        chunks += [(i, slice(low, min(low + step, x.size))) for low in range(0, x.size, step)]

    def do(part: int) -> None:
        i, place = chunks[part]
        xs, own, op = columns[i]
        _reduce(xs, own, op, place)

    return Work(outs, len(chunks), do)


def _reduce(xs: list[np.ndarray], outs: list[np.ndarray], op: str, place: slice) -> None:
    first, ufunc = outs[0][place], _UFUNCS["sum" if op == "mean" else op]
    with np.errstate(all="ignore"):
        ufunc(xs[0][place], xs[1][place], out=first)
        for x in xs[2:]:
            ufunc(first, x[place], out=first)
        if op == "mean":
            np.divide(first, first.dtype.type(len(xs)), out=first)
    for out in outs[1:]:
        out[place] = first


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

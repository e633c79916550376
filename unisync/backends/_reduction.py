"""The adding-up of the thread engine: flat arrays that share memory, by chunks that fit in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisync.backends._rendezvous import Work

CHUNK_BYTES = 2**20
"""How much of each array is reduced at a time. Smaller chunks cost more hand-overs of the interpreter's lock."""

_UFUNCS: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


def reduction(values: list[tuple[np.ndarray, np.ndarray | None]], op: str) -> Work:
    """The reduction of flat arrays in the order of replicas, by chunks, into an array for each."""
    xs = [x for x, _ in values]
    outs = [np.empty_like(x) if out is None else out for x, out in values]
    size, step = xs[0].size, max(1, CHUNK_BYTES // xs[0].itemsize)
    ufunc = _UFUNCS["sum" if op == "mean" else op]

    def do(chunk: int) -> None:
        place = slice(chunk * step, min((chunk + 1) * step, size))
        first = outs[0][place]
        with np.errstate(all="ignore"):
            ufunc(xs[0][place], xs[1][place], out=first)
            for x in xs[2:]:
                ufunc(first, x[place], out=first)
            if op == "mean":
                np.divide(first, first.dtype.type(len(xs)), out=first)
        for out in outs[1:]:
            out[place] = first

    return Work(outs, -(-size // step), do)


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

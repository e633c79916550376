"""Dealing a global batch out to replicas, so that the parts put together say the same as the whole."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from unisync._dispatch import of
from unisync.errors import DataError


class Part(NamedTuple):
    """One replica's part of a batch.

    Attributes:
        x: inputs.
        y: targets.
        weights: how much each row counts; None: all count the same.
        share: how much of the whole batch's weight this part has, 0 to 1; None: all parts have the same. Of a part that
            was not dealt out, but is all that a process has: its weight.
    """

    x: Any
    y: Any
    weights: Any
    share: Any


def deal(x: Any, y: Any, weights: Any, replicas: int, weighs: bool) -> list[Part]:
    """The parts of a batch, one per replica, all with the same number of rows.

    A batch that does not divide is filled up with copies of its first row that have weight 0; the last parts may then
    hold no real row at all. Where the loss does not know weights, each row is repeated equally often instead: a mean
    over the samples does not see that.

    Args:
        x: inputs, (N, ...), of any backend.
        y: targets, (N, ...).
        weights: (N,), or None.
        replicas: how many parts.
        weighs: whether the loss takes weights.
    """
    rows = x.shape[0]
    missing = -rows % replicas
    if weights is None and missing and not weighs:
        times = replicas // math.gcd(rows, replicas)
        x, y, rows, missing = _repeat(x, times), _repeat(y, times), rows * times, 0
    if weights is None and not missing:
        size = rows // replicas
        return [Part(x[i : i + size], y[i : i + size], None, None) for i in range(0, rows, size)]
    counts = np.ones(rows, np.float32) if weights is None else of[type(weights)].to_numpy(weights)
    if missing:
        x, y = fill_up(x, missing), fill_up(y, missing)
        counts = np.concatenate([counts, np.zeros(missing, counts.dtype)])
    size = (rows + missing) // replicas
    sums = counts.reshape(replicas, size).astype(np.float64).sum(axis=1)
    shares = sums / (sums.sum() or 1.0)
    return [
        Part(x[a : a + size], y[a : a + size], counts[a : a + size], np.array(shares[i]))
        for i, a in enumerate(range(0, rows + missing, size))
    ]


def own_part(x: Any, y: Any, weights: Any, rows: int | None, weighs: bool) -> Part:
    """A process's own batch as its part.

    Args:
        x: inputs, (N, ...), of any backend.
        y: targets, (N, ...).
        weights: (N,), or None.
        rows: to how many rows to fill it up with copies of weight 0, so that all parts have one shape; None: not.
        weighs: whether the loss takes weights.

    Raises:
        DataError: it must be filled up, and the loss does not know weights; or it has more rows.
    """
    missing = 0 if rows is None else rows - x.shape[0]
    if missing < 0 or (missing and not weighs):
        cure = "drop the last, short batch" if missing > 0 else "batches of one size"
        raise DataError(
            f"sharded batches must have the {rows} rows of the first one here, got {x.shape[0]}. Try: {cure}, or a "
            "loss that takes `weights`."
        )
    if weights is None and (rows is None or not weighs):
        return Part(x, y, None, np.array(float(x.shape[0])))
    counts = np.ones(x.shape[0], np.float32) if weights is None else of[type(weights)].to_numpy(weights)
    counts = np.concatenate([counts, np.zeros(missing, counts.dtype)])
    return Part(fill_up(x, missing), fill_up(y, missing), counts, np.array(counts.sum(dtype=np.float64)))


def fill_up(array: Any, missing: int) -> Any:
    """The array with so many copies of its first row at its end."""
    m = of[type(array)]
    return m.concat([array, m.repeat(array[:1], missing, axis=0)], axis=0) if missing else array


def _repeat(array: Any, times: int) -> Any:
    m = of[type(array)]
    return m.concat([array] * times, axis=0)

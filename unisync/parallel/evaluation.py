"""Losses, metrics and outputs of a model that is not being trained, over data of any length."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from unisync._dispatch import of
from unisync.errors import DataError
from unisync.parallel.history import RUN_AHEAD


def means(
    run: Callable[..., tuple[Any, ...]], batches: Iterable[Any], intake: Any, *, weighed: bool = False
) -> list[float]:
    """The means over all samples of what `run(x, y, weights)` returns, each array of shape ().

    Args:
        run: what gives the means of a batch.
        batches: the batches.
        intake: what makes a batch native.
        weighed: whether the last of what `run` returns is the weight of the batch.

    Raises:
        DataError: there are no batches.
    """
    pending: list[tuple[Any, tuple[Any, ...]]] = []
    sums: list[float] = []
    total = 0.0

    def read() -> None:
        nonlocal sums, total
        for samples, values in pending:
            weight = float(samples)
            sums = [a + weight * float(b) for a, b in zip(sums or [0.0] * len(values), values, strict=True)]
            total += weight
        pending.clear()

    for batch in batches:
        x, y, weights, samples = intake(batch)
        values = run(x, y, weights)
        pending.append((values[-1], values[:-1]) if weighed else (samples, values))
        if len(pending) >= RUN_AHEAD:
            read()
    read()
    if not total:
        raise DataError("`data` must have at least one sample, got none. Try: other data.")
    return [value / total for value in sums]


def outputs(run: Callable[[Any], Any], x: np.ndarray, batch_size: int, native: Callable[[Any], Any]) -> np.ndarray:
    """The model's outputs for all inputs, on the host. The last batch is filled up, so that all have one shape."""
    parts = []
    size = min(batch_size, len(x))
    for start in range(0, len(x), size):
        rows = x[start : start + size]
        real = len(rows)
        if real < size:
            rows = np.concatenate([rows, np.repeat(rows[:1], size - real, axis=0)])
        made = run(native(rows))
        parts.append(of[type(made)].to_numpy(made)[:real])
    return np.concatenate(parts) if len(parts) > 1 else np.array(parts[0])

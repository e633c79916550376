"""Arrays cut into batches, in an order that a seed settles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import numpy as np

from unisync.data.batches import Batch
from unisync.errors import ArgumentError, ArgumentTypeError, DataError
from unisync.functional.random import Key


@final
class Loader:
    """Batches of arrays; each sample once per epoch.

    The order of an epoch depends on the seed and the epoch's number alone, and is the same on every backend. The
    last batch, if short, is filled up to the full size with repeated rows of weight 0; other batches have weights
    None.

    Args:
        x: inputs, (N, ...).
        y: targets, (N, ...).
        batch_size: samples per batch.
        shuffle: whether to draw a new order for each epoch.
        seed: settles the orders.
        pad: whether to fill up the last batch; else it is shorter.

    Raises:
        DataError: there are no samples, or x and y differ in length.
        ArgumentError: `batch_size` is below 1, or larger than the number of samples.

    Example:
        >>> import numpy as np
        >>> loader = us.data.Loader(np.arange(5), np.arange(5), batch_size=2, shuffle=False)
        >>> [(batch.x.tolist(), batch.weights) for batch in loader]
        [([0, 1], None), ([2, 3], None), ([4, 4], array([1., 0.], dtype=float32))]
    """

    def __init__(
        self, x: np.ndarray, y: np.ndarray, batch_size: int, *, shuffle: bool = True, seed: int = 0, pad: bool = True
    ) -> None:
        check_pair(x, y)
        check_size("batch_size", batch_size)
        if batch_size > len(x):
            raise ArgumentError(
                f"`batch_size` must be at most the number of samples, {len(x)}, got {batch_size}. "
                f"Try: batch_size={len(x)}."
            )
        self.x, self.y = x, y
        self.batch_size, self.shuffle, self.seed, self.pad = batch_size, shuffle, seed, pad
        self._epoch = 0

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return -(-len(self.x) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the next epoch."""
        self._epoch += 1
        return self.batches(self._epoch - 1)

    def batches(self, epoch: int, *, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, counted from 0, without the first `skip`."""
        size, n = self.batch_size, len(self.x)
        order = Key(self.seed).fold_in(epoch).generator().permutation(n) if self.shuffle else np.arange(n)
        for start in range(skip * size, n, size):
            rows = order[start : start + size]
            real = len(rows)
            if real == size or not self.pad:
                yield Batch(self.x[rows], self.y[rows], None)
                continue
            rows = np.concatenate([rows, np.repeat(rows[:1], size - real)])
            yield Batch(self.x[rows], self.y[rows], (np.arange(size) < real).astype(np.float32))


def check_pair(x: Any, y: Any) -> None:
    """Raise if two arrays are not the inputs and targets of at least one sample.

    Raises:
        DataError: they are not.
    """
    for name, array in (("x", x), ("y", y)):
        if not getattr(array, "shape", ()):
            raise DataError(
                f"`{name}` must be an array of samples, got {type(array).__name__}. Try: np.asarray({name})."
            )
    if len(x) != len(y):
        raise DataError(
            f"`x` and `y` must have one length, got {len(x)} and {len(y)} (shapes {tuple(x.shape)} and "
            f"{tuple(y.shape)}). Try: one target per input."
        )
    if len(x) == 0:
        raise DataError(f"data must have at least one sample, got x of shape {tuple(x.shape)}. Try: other data.")


def check_size(name: str, value: Any) -> None:
    """Raise unless value is an integer of at least 1.

    Raises:
        ArgumentTypeError: it is no integer.
        ArgumentError: it is zero or negative.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ArgumentTypeError(f"`{name}` must be an integer, got {value!r}. Try: {name}=1.")
    if value < 1:
        raise ArgumentError(f"`{name}` must be at least 1, got {value}. Try: {name}=1.")

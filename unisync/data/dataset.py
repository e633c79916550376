"""What a data source becomes: arrays to train on, arrays to test on, and what a model must know of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, final

import numpy as np

from unisync.errors import ArgumentError, DataError
from unisync.functional.random import Key

Kind = Literal["image", "table", "sequence", "text"]


@final
@dataclass(frozen=True, slots=True)
class Dataset:
    """Training and test data on the host.

    Attributes:
        name: where it came from, e.g. "digits" or a file's name.
        kind: "image" (N, H, W, C), "table" (N, features), "sequence" (N, T, features), or "text" (N, T) of integers.
        x_train: inputs to train on; floats of kind float32, or int64 characters of text.
        y_train: their targets: int64 labels (N,), next characters (N, T), or float32 values (N, outputs).
        x_test: inputs to test on.
        y_test: their targets.
        classes: what label i means, in order; for text, the vocabulary; None where the targets are numbers.
        features: the names of the inputs of a table, else None.
        target_mean: what `standardise_targets` took off each target; None if they are as they were.
        target_scale: what it then divided them by; a model's outputs times this plus `target_mean` are in the
            targets' own units.
    """

    name: str
    kind: Kind
    x_train: np.ndarray = field(repr=False)
    y_train: np.ndarray = field(repr=False)
    x_test: np.ndarray = field(repr=False)
    y_test: np.ndarray = field(repr=False)
    classes: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    target_mean: np.ndarray | None = field(default=None, repr=False)
    target_scale: np.ndarray | None = field(default=None, repr=False)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, without the batch axis."""
        return self.x_train.shape[1:]

    @property
    def outputs(self) -> int:
        """How many numbers a model gives per sample (per character of text): the classes, or the target values."""
        return len(self.classes) if self.classes is not None else math.prod(self.y_train.shape[1:])

    @property
    def vocabulary(self) -> tuple[str, ...] | None:
        """The characters of a text, by their number; None for other data."""
        return self.classes if self.kind == "text" else None

    def standardise_targets(self) -> Dataset:
        """The same data, but each target value with mean 0 and standard deviation 1 over the training samples.

        Targets of any size, such as prices, are then learned at usual learning rates. The loaders leave targets as
        they are; `unisync train` does this where the target is a number.

        Returns:
            Dataset with `target_mean` and `target_scale` (1 where a target is constant); itself if the targets are
            classes or standardised already.

        Example:
            >>> x, y = np.zeros((4, 2)), np.array([[100.0], [300.0], [100.0], [300.0]])
            >>> data = us.data.Dataset("prices", "table", x, y, x, y).standardise_targets()
            >>> data.y_test[:2].tolist(), data.target_mean.tolist(), data.target_scale.tolist()
            ([[-1.0], [1.0]], [200.0], [100.0])
        """
        if self.classes is not None or self.target_mean is not None:
            return self
        train = self.y_train.astype(np.float64)  # the sum of many large numbers overflows or rounds in float32
        mean, spread = train.mean(axis=0), train.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        y_train, y_test = (((y - mean) / scale).astype(np.float32) for y in (train, self.y_test))
        return replace(self, y_train=y_train, y_test=y_test, target_mean=mean, target_scale=scale)


def split(n: int, test_fraction: float, seed: int, labels: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the samples to train on and of those to test on, in random order.

    Args:
        n: how many samples there are.
        test_fraction: the part to test on, in (0, 1).
        seed: the same seed gives the same split.
        labels: labels of shape (n,), to give both parts every class in the same proportion; None for a plain split.

    Returns:
        (training positions, test positions): int64 arrays that hold each of 0 ... n − 1 once.

    Raises:
        ArgumentError: the fraction leaves one of the parts empty.

    Example:
        >>> train, test = us.data.split(10, 0.2, seed=0)
        >>> len(train), len(test)
        (8, 2)
    """
    if not 0 < test_fraction < 1:
        raise ArgumentError(f"`test_fraction` must be between 0 and 1, got {test_fraction}. Try: 0.2.")
    order = Key(seed).generator().permutation(n)
    count = min(max(round(n * test_fraction), 1), n - 1)
    if count < 1:
        raise DataError(f"data must have at least 2 samples to be split, got {n}. Try: more data.")
    if labels is None:
        return order[count:], order[:count]
    # Each class's samples take evenly spaced ranks in [0, 1); the smallest ranks are tested on.
    rank = np.empty(n)
    for label in np.unique(labels):
        members = order[labels[order] == label]
        rank[members] = (np.arange(len(members)) + 0.5) / len(members)
    by_rank = order[np.argsort(rank[order], kind="stable")]
    train = by_rank[count:]
    return train[Key(seed).fold_in(1).generator().permutation(len(train))], by_rank[:count]


def existing_file(path: str | Path) -> Path:
    """The path of a file that is there and not empty.

    Raises:
        DataError: it is not; the message names the file.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        raise DataError(f"data file {str(path)!r} is a directory. Try: the path of a file in it.")
    if not file.exists():
        raise DataError(f"data file {str(path)!r} does not exist. Try: a path relative to {str(Path.cwd())!r}.")
    if file.stat().st_size == 0:
        raise DataError(f"data file {str(path)!r} is empty. Try: another file.")
    return file

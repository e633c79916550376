"""What the training-step benchmark trains: three models, their data and their optimizers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

import unisync as us
from unisync.cli.models import build_model
from unisync.data import Dataset

WIDTH, HEADS, BLOCKS, LENGTH, VOCABULARY = 64, 4, 2, 64, 64


@final
@dataclass(frozen=True, slots=True)
class Job:
    """A model of the command line, made data of its kind, and an optimizer: "sgd" (momentum) or "adam"."""

    model: str
    dataset: Dataset
    batch_size: int
    optimizer: str
    learning_rate: float
    momentum: float = 0.9

    def build(self) -> Any:
        return build_model(self.model, self.dataset)

    def transform(self) -> us.optim.Transform:
        if self.optimizer == "sgd":
            return us.optim.sgd(self.learning_rate, momentum=self.momentum)
        return us.optim.adam(self.learning_rate)

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        return self.dataset.x_train[: self.batch_size], self.dataset.y_train[: self.batch_size]


def job(model: str, batch_size: int = 64) -> Job:
    """The job of one model. Data is generated with seed 0; its values do not matter to the time."""
    rng = np.random.default_rng(0)
    if model == "transformer":
        x = rng.integers(0, VOCABULARY, (batch_size, LENGTH))
        y = rng.integers(0, VOCABULARY, (batch_size, LENGTH))
        classes = tuple(chr(32 + i) for i in range(VOCABULARY))
        return Job(model, Dataset("generated", "text", x, y, x, y, classes=classes), batch_size, "adam", 1e-3)
    x = rng.random((batch_size, 28, 28, 1), np.float32)
    y = rng.integers(0, 10, batch_size)
    dataset = Dataset("generated", "image", x, y, x, y, classes=tuple("0123456789"))
    return Job(model, dataset, batch_size, "sgd", 0.05)

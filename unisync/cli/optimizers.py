"""The optimizer that the command line trains with: what the user says, and for the rest what suits the model."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any, final

from unisync import optim
from unisync.data import Dataset
from unisync.errors import ArgumentError, unknown
from unisync.optim.recipes import RECIPES

SCHEDULES = ("cosine", "constant")


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """An optimizer, its first learning rate, and how that changes over the steps."""

    optimizer: str
    learning_rate: float
    schedule: str

    def build(self, steps: int) -> optim.Transform:
        """The transform for a training of so many steps."""
        options: dict[str, Any] = {"momentum": 0.9} if self.optimizer == "sgd" else {}
        rate: Any = self.learning_rate
        if self.schedule == "cosine":
            rate = optim.cosine(rate, steps)
        return optim.by_name(self.optimizer, rate, **options)

    def __str__(self) -> str:
        return f"{self.optimizer} at {self.learning_rate:g} ({self.schedule})"


def choose(
    model: str, data: Dataset, optimizer: str | None, learning_rate: float | None, schedule: str = "cosine"
) -> Choice:
    """What the user said, completed.

    Args:
        model: the model's name on the command line.
        data: what it is trained on.
        optimizer: a name; None for the model's own.
        learning_rate: None for the model's own, or the optimizer's if that was named.
        schedule: "cosine": from the learning rate down to 0 over all steps; "constant".

    Raises:
        UnknownNameError: there is no such optimizer or schedule; names the nearest.
        ArgumentError: the learning rate is negative or not finite.
    """
    if learning_rate is not None and not 0 <= learning_rate < math.inf:
        raise ArgumentError(f"`lr` must be a number of at least 0, got {learning_rate}. Try: --lr 0.01.")
    if schedule not in SCHEDULES:
        raise unknown("schedule", schedule, SCHEDULES)
    usual, usual_rate = default_optimizer(model, data)
    name = optimizer or usual
    if name not in RECIPES:
        raise unknown("optimizer", name, RECIPES)
    if learning_rate is None and name != usual:
        usual_rate = float(inspect.signature(RECIPES[name]).parameters["learning_rate"].default)
    return Choice(name, usual_rate if learning_rate is None else learning_rate, schedule)


def default_optimizer(model: str, data: Dataset) -> tuple[str, float]:
    """The optimizer and first learning rate for a model if the user names none.

    Those of the named models reach good figures on the digits in ten epochs. It is SGD where SGD does, since its trace
    is the same on every backend; Adam turns the rounding noise of a zero gradient into a full step. Targets that are
    numbers can be of any size, at which SGD diverges and Adam does not.
    """
    if model not in _CLASSIFIERS:
        return "adam", 1e-3
    return _CLASSIFIERS[model] if data.classes is not None else ("adam", 1e-2)


_CLASSIFIERS = {"mlp": ("sgd", 0.05), "cnn": ("sgd", 0.05), "lstm": ("adam", 1e-2), "transformer": ("adam", 3e-3)}

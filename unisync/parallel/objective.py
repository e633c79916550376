"""The loss as the trainer uses it: a scalar of outputs, targets and sample weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from unisync.errors import ArgumentError, ArgumentTypeError
from unisync.parallel.metrics import weighted_mean


@final
@dataclass(frozen=True, slots=True)
class Objective:
    """A user's loss, called with weights if it knows them.

    Attributes:
        loss: (outputs, targets) → a scalar, or one value per sample, (N, ...), of which the mean is taken; or
            (outputs, targets, weights=None) → a scalar, the weighted mean.
        weighs: whether it takes `weights`. A batch for one that does not is never filled up with rows of weight 0.
    """

    loss: Callable[..., Any]
    weighs: bool

    def __call__(self, outputs: Any, targets: Any, weights: Any) -> Any:
        if weights is not None and self.weighs:
            return self.loss(outputs, targets, weights=weights)
        value = self.loss(outputs, targets)
        shape = tuple(getattr(value, "shape", ()))
        if not shape:
            if weights is not None:
                raise ArgumentError(
                    "`loss` must take `weights` or return one value per sample if batches have weights, got a scalar. "
                    "Try: def loss(outputs, targets, weights=None)."
                )
            return value
        if shape[0] != targets.shape[0]:
            raise ArgumentError(
                f"`loss` must return a scalar or one value per sample, ({targets.shape[0]}, ...), got shape {shape}. "
                "Try: us.mean."
            )
        return weighted_mean(value, weights)


def as_objective(loss: Any) -> Objective:
    """The objective of a loss.

    Raises:
        ArgumentTypeError: it is not callable.
    """
    if not callable(loss):
        raise ArgumentTypeError(
            f"`loss` must be a function of (outputs, targets), got {loss!r}. Try: us.losses.softmax_cross_entropy."
        )
    try:
        weighs = "weights" in inspect.signature(loss).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        weighs = False
    return Objective(loss, weighs)

"""Metrics: one value per sample, averaged exactly over uneven batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unisync import losses
from unisync._dispatch import namespace
from unisync.errors import ArgumentError, ArgumentTypeError, ShapeError
from unisync.losses import same_shape

Metric = Callable[[Any, Any], Any]
"""(outputs, targets) → one value per sample, shape (N,), or (N, ...) to be averaged over the further axes."""


def accuracy(outputs: Any, targets: Any) -> Any:
    """Whether the largest output is the target's class: 1.0 or 0.0.

    Outputs with one number per target, (N, 1) or the targets' shape (N,), are logits of yes-or-no questions: see
    `binary_accuracy`.

    Args:
        outputs: scores of shape (N, ..., classes); or logits of shape (N, 1) or (N,).
        targets: integer labels of shape (N, ...).

    Returns:
        Array of the targets' shape of float32.

    Raises:
        ShapeError: the shapes do not fit.

    Example:
        >>> us.metrics.accuracy(us.asarray([[0.1, 0.9], [0.8, 0.2]]), us.asarray([1, 1]))
        array([1., 0.], dtype=float32)
    """
    shape, wanted = outputs.shape, targets.shape
    if len(shape) == len(wanted) and (len(shape) == 1 or shape[-1] == wanted[-1] == 1):
        return binary_accuracy(outputs, targets)
    if not same_shape(shape[:-1], wanted):
        raise ShapeError(
            f"`targets` must have the outputs' shape without the last axis (classes), got outputs {tuple(shape)} and "
            f"targets {tuple(wanted)}. Try: integer labels, or us.metrics.binary_accuracy for yes-or-no questions."
        )
    m = namespace(outputs)
    if shape[-1] == 1:
        return binary_accuracy(m.squeeze(outputs, -1), targets)
    return m.astype(m.equal(m.argmax(outputs, axis=-1), targets), "float32")


def binary_accuracy(outputs: Any, targets: Any) -> Any:
    """Whether a logit is on the target's side: (output > 0) == (target > 0.5), as 1.0 or 0.0.

    Args:
        outputs: logits of shape (N, ...).
        targets: 0 or 1, booleans or probabilities, of the outputs' shape.

    Returns:
        Array of the outputs' shape of float32.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> us.metrics.binary_accuracy(us.asarray([2.0, -1.0, 0.5]), us.asarray([1, 0, 0]))
        array([1., 1., 0.], dtype=float32)
    """
    if not same_shape(outputs.shape, targets.shape):
        raise ShapeError(
            f"`targets` must have the outputs' shape, got outputs {tuple(outputs.shape)} and targets "
            f"{tuple(targets.shape)}. Try: us.reshape(targets, outputs.shape)."
        )
    m = namespace(outputs)
    return m.astype(m.equal(m.greater(outputs, 0), m.greater(m.astype(targets, "float32"), 0.5)), "float32")


def defaults(loss: Any) -> dict[str, Metric]:
    """The metrics of a trainer that is given none: accuracy if the loss is one of the cross entropies."""
    loss = getattr(loss, "func", loss)
    if loss is losses.softmax_cross_entropy:
        return {"accuracy": accuracy}
    return {"accuracy": binary_accuracy} if loss is losses.binary_cross_entropy else {}


def checked(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """The metrics, if they are functions under names.

    Raises:
        ArgumentTypeError: they are not.
        ArgumentError: a name is taken.
    """
    if not isinstance(metrics, Mapping) or not all(isinstance(k, str) and callable(f) for k, f in metrics.items()):
        raise ArgumentTypeError(
            f"`metrics` must be a dict from names to functions, got {metrics!r}. "
            'Try: {"accuracy": us.metrics.accuracy}.'
        )
    for name in ("loss", "epoch", "seconds"):
        if name in metrics:
            raise ArgumentError(
                f"`metrics` must not be named {name!r}, which the history holds already. Try: my_{name}."
            )
    return dict(metrics)


def batch_means(metrics: Mapping[str, Metric], outputs: Any, targets: Any, weights: Any) -> tuple[Any, ...]:
    """The weighted mean of each metric over a batch: arrays of shape ().

    Raises:
        ArgumentError: a metric does not return one value per sample.
    """
    return tuple(_mean_per_sample(name, metric(outputs, targets), targets, weights) for name, metric in metrics.items())


def _mean_per_sample(name: str, values: Any, targets: Any, weights: Any) -> Any:
    shape, n = tuple(getattr(values, "shape", ())), targets.shape[0]
    if not shape or (shape[0] != n and shape[0] is not None and n is not None):
        what = "one number for the whole batch" if not shape else f"shape {shape}"
        raise ArgumentError(
            f"metric {name!r} must return one value per sample, shape ({n}, ...), got {what}. Means of batches do not "
            "average to the mean of uneven batches. Try: the value of each sample, without the mean over axis 0."
        )
    m = namespace(values)
    if not str(m.dtype_of(values)).startswith(("float", "bfloat")):
        values = m.astype(values, "float32")
    return weighted_mean(values, weights)


def weighted_mean(values: Any, weights: Any) -> Any:
    """The mean over samples, weighted, of values of shape (N, ...): the mean over the further axes comes first."""
    m = namespace(values)
    if weights is None:
        return m.mean(values)
    if len(values.shape) > 1:
        values = m.mean(values, axis=tuple(range(1, len(values.shape))))
    weights = m.astype(weights, m.dtype_of(values), copy=False)
    return m.divide(m.sum(m.multiply(values, weights)), m.sum(weights))

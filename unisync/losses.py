"""Losses: functions (outputs, targets, weights=None) → scalar, the mean over the samples.

With weights, of shape (N,), it is the weighted mean: a sample of weight 0 counts as if it were absent, and one of
weight 2 as if it were there twice. The loss of no sample (all weights 0) is 0, with zero gradients. Formulas are
torch's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unisync._dispatch import namespace
from unisync._labels import check_labels as check_labels
from unisync._types import KINDS
from unisync.errors import ArgumentError, ArgumentTypeError, ShapeError


def softmax_cross_entropy(outputs: Any, targets: Any, weights: Any = None, *, label_smoothing: float = 0.0) -> Any:
    """The mean of −log softmax(outputs)[target], for classification.

    Args:
        outputs: logits (no softmax applied), floating-point array of shape (N, classes), or (N, ..., classes).
        targets: integer array of shape (N,), or (N, ...), with values in [0, classes). They are checked on NumPy,
            and on JAX if they have numbers and are on a CPU; torch and TensorFlow raise errors of their own. In a
            compiled function on JAX, and on accelerators, a label out of range gives a meaningless loss: check data
            once with `check_labels`.
        weights: array of shape (N,), or of the targets' shape to weigh positions; default all ones.
        label_smoothing: the share of the target that is spread evenly over all classes, in [0, 1].

    Returns:
        Scalar array of the logits' dtype.

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentTypeError: the targets are not integers.
        DataError: on NumPy and JAX: a label is out of range.

    Example:
        >>> float(us.losses.softmax_cross_entropy(us.zeros((2, 4)), us.asarray([0, 3])))
        1.3862943649291992
    """
    m = namespace(outputs, targets)
    if not same_shape(outputs.shape[:-1], targets.shape):
        raise ShapeError(
            f"`targets` must have the outputs' shape without the last axis (classes), got outputs {_text(outputs)} and "
            f"targets {_text(targets)}. Try: integer labels, us.argmax(targets, axis=-1) if they are one-hot."
        )
    if m.dtype_of(targets) not in KINDS["integral"]:
        raise ArgumentTypeError(
            f"`targets` must be integer labels, got {m.dtype_of(targets)}. Try: us.astype(targets, us.int64)."
        )
    if type(targets) is np.ndarray:  # host data: the check costs little
        check_labels(targets, outputs.shape[-1])
    if weights is None and not label_smoothing:
        return m.softmax_cross_entropy_with_integer_labels(outputs, targets, mean=True)
    values = m.softmax_cross_entropy_with_integer_labels(outputs, targets)
    if label_smoothing:
        if not 0.0 <= label_smoothing <= 1.0:
            raise ArgumentError(f"`label_smoothing` must lie in [0, 1], got {label_smoothing}. Try: 0.1.")
        even = m.logsumexp(outputs, axis=-1) - m.mean(outputs, axis=-1)
        values = (1.0 - label_smoothing) * values + label_smoothing * even
    return _weighted_mean(m, values, weights)


def binary_cross_entropy(outputs: Any, targets: Any, weights: Any = None) -> Any:
    """The mean of −t · log σ(x) − (1 − t) · log(1 − σ(x)), for yes-or-no questions; computed without overflow.

    As torch's BCEWithLogitsLoss: outputs are logits x, not probabilities; do not apply a sigmoid.

    Args:
        outputs: logits, floating-point array of shape (N, ...).
        targets: probabilities of "yes" in [0, 1], of the outputs' shape and any dtype (integers and booleans too).
        weights: array of shape (N,), or of the outputs' shape; default all ones.

    Returns:
        Scalar array.

    Raises:
        ShapeError: the shapes do not fit.

    Example:
        >>> float(us.losses.binary_cross_entropy(us.asarray([0.0, 100.0]), us.asarray([1, 1])))
        0.3465735912322998
    """
    m = _namespace(outputs, targets)
    t = m.astype(targets, m.dtype_of(outputs), copy=False)
    return _weighted_mean(m, (1.0 - t) * outputs + m.softplus(-outputs), weights)


def mse(outputs: Any, targets: Any, weights: Any = None) -> Any:
    """The mean of (output − target)².

    Args:
        outputs: floating-point array of shape (N, ...).
        targets: array of the outputs' shape.
        weights: array of shape (N,), or of the outputs' shape; default all ones.

    Returns:
        Scalar array.

    Raises:
        ShapeError: the shapes differ (no broadcasting: (N, 1) against (N,) is a mistake).

    Example:
        >>> float(us.losses.mse(us.asarray([1.0, 3.0]), us.asarray([1.0, 1.0])))
        2.0
    """
    m = _namespace(outputs, targets)
    difference = m.subtract(outputs, targets)
    return _weighted_mean(m, difference * difference, weights)


def l1(outputs: Any, targets: Any, weights: Any = None) -> Any:
    """The mean of |output − target|.

    Args:
        outputs: floating-point array of shape (N, ...).
        targets: array of the outputs' shape.
        weights: array of shape (N,), or of the outputs' shape; default all ones.

    Returns:
        Scalar array.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> float(us.losses.l1(us.asarray([1.0, 3.0]), us.asarray([1.0, 1.0])))
        1.0
    """
    m = _namespace(outputs, targets)
    return _weighted_mean(m, m.abs(m.subtract(outputs, targets)), weights)


def huber(outputs: Any, targets: Any, weights: Any = None, *, delta: float = 1.0) -> Any:
    """The mean of d² / 2 where d = |output − target| ≤ delta, of delta · (d − delta / 2) beyond (Huber 1964).

    Args:
        outputs: floating-point array of shape (N, ...).
        targets: array of the outputs' shape.
        weights: array of shape (N,), or of the outputs' shape; default all ones.
        delta: where the parabola passes into a straight line; positive.

    Returns:
        Scalar array.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> float(us.losses.huber(us.asarray([1.0, 4.0]), us.asarray([1.0, 1.0])))
        1.25
    """
    if delta <= 0:
        raise ArgumentError(f"`delta` must be positive, got {delta}. Try: delta=1.0.")
    m = _namespace(outputs, targets)
    distance = m.abs(m.subtract(outputs, targets))
    near = m.minimum(distance, delta)
    return _weighted_mean(m, 0.5 * near * near + delta * (distance - near), weights)


def _namespace(outputs: Any, targets: Any) -> Any:
    m = namespace(outputs, targets)
    if not same_shape(outputs.shape, targets.shape):
        raise ShapeError(
            f"`targets` must have the outputs' shape, got outputs {_text(outputs)} and targets {_text(targets)}. "
            "Try: us.reshape(targets, outputs.shape)."
        )
    return m


def _weighted_mean(m: Any, values: Any, weights: Any) -> Any:
    """Σ weight · value / Σ weight; with weights (N,), a sample's value is the mean over its further axes."""
    if weights is None:
        return m.mean(values)
    weights = m.astype(weights, m.dtype_of(values), copy=False)
    if len(weights.shape) == 1 and len(values.shape) > 1:
        values = m.mean(values, axis=tuple(range(1, len(values.shape))))
    if not same_shape(weights.shape, values.shape):
        raise ShapeError(
            f"`weights` must have one number per sample, got shape {_text(weights)} for {_text(values)} samples. "
            "Try: weights of shape (N,)."
        )
    total = m.sum(weights)
    return m.sum(values * weights) / m.where(total == 0, m.ones_like(total), total)


def same_shape(a: Any, b: Any) -> bool:
    """Whether two shapes agree; sizes unknown while tracing (None) agree with all."""
    return a == b or (len(a) == len(b) and all(m == n or m is None or n is None for m, n in zip(a, b, strict=True)))


def _text(x: Any) -> str:
    return str(tuple(x.shape))

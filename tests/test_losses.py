"""Losses against torch: values, gradients, weights, and errors."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import unisync as us
from unisync import errors, losses

torch = pytest.importorskip("torch")
F = torch.nn.functional

REAL = {
    "binary cross entropy": (losses.binary_cross_entropy, F.binary_cross_entropy_with_logits),
    "mse": (losses.mse, F.mse_loss),
    "l1": (losses.l1, F.l1_loss),
    "huber": (losses.huber, F.huber_loss),
    "huber 0.3": (partial(losses.huber, delta=0.3), partial(F.huber_loss, delta=0.3)),
}
CLASSES = {
    "plain": (losses.softmax_cross_entropy, F.cross_entropy),
    "smoothed": (
        partial(losses.softmax_cross_entropy, label_smoothing=0.2),
        partial(F.cross_entropy, label_smoothing=0.2),
    ),
}
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}


def check(backend, ours, theirs, x, target, dtype, weights=None):
    """Value and gradient of ours against theirs."""
    given = torch.tensor(x, requires_grad=True)
    expected = theirs(given)
    expected.backward()
    w = None if weights is None else us.asarray(weights)
    value, gradient = us.jit(us.value_and_grad(lambda y: ours(y, us.asarray(target), w)))(us.asarray(x))
    assert us.dtype_of(value) == dtype
    np.testing.assert_allclose(us.to_numpy(value), expected.item(), rtol=10 * TOLERANCE[dtype])
    np.testing.assert_allclose(us.to_numpy(gradient), given.grad.numpy(), atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 2, 3)])
@pytest.mark.parametrize("name", REAL)
def test_real_targets(name, shape, dtype, backend, rng):
    ours, theirs = REAL[name]
    x, target = 3 * rng.standard_normal(shape).astype(dtype), rng.random(shape).astype(dtype)
    check(backend, ours, lambda y: theirs(y, torch.tensor(target)), x, target, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("label", ["int64", "int32"])
@pytest.mark.parametrize("name", CLASSES)
def test_labels(name, label, dtype, backend, rng):
    ours, theirs = CLASSES[name]
    x, target = 3 * rng.standard_normal((7, 4)).astype(dtype), rng.integers(0, 4, 7).astype(label)
    check(backend, ours, lambda y: theirs(y, torch.tensor(target).long()), x, target, dtype)
    x, target = 3 * rng.standard_normal((7, 5, 4)).astype(dtype), rng.integers(0, 4, (7, 5)).astype(label)
    check(backend, ours, lambda y: theirs(y.movedim(-1, 1), torch.tensor(target).long()), x, target, dtype)


@pytest.mark.parametrize("name", [*REAL, *CLASSES])
def test_weights(name, backend, rng):
    """Weight 0 is as if the sample were absent, 2 as if it were there twice; its gradient is exactly 0."""
    ours = (REAL | CLASSES)[name][0]
    x = rng.standard_normal((4, 5, 3))
    target = rng.random((4, 5, 3)) if name in REAL else rng.integers(0, 3, (4, 5))
    weights = np.array([1.0, 0.0, 2.0, 1.0])
    value, gradient = us.value_and_grad(lambda y: ours(y, us.asarray(target), us.asarray(weights)))(us.asarray(x))
    chosen = np.array([0, 2, 2, 3])
    expected = ours(us.asarray(x[chosen]), us.asarray(target[chosen]))
    np.testing.assert_allclose(us.to_numpy(value), us.to_numpy(expected), rtol=1e-12)
    assert not us.to_numpy(gradient)[1].any()
    ones = ours(us.asarray(x), us.asarray(target), us.ones(4))
    np.testing.assert_allclose(us.to_numpy(ones), us.to_numpy(ours(us.asarray(x), us.asarray(target))), rtol=1e-12)


def test_weights_of_every_position(backend, rng):
    x, target = rng.standard_normal((2, 3, 4)), rng.integers(0, 4, (2, 3))
    weights = np.array([[1.0, 1, 0], [1, 0, 0]])
    value = losses.softmax_cross_entropy(us.asarray(x), us.asarray(target), us.asarray(weights))
    real = weights > 0
    np.testing.assert_allclose(
        us.to_numpy(value), F.cross_entropy(torch.tensor(x[real]), torch.tensor(target[real])).item(), rtol=1e-12
    )


def test_no_sample_at_all_is_zero(backend):
    value, gradient = us.value_and_grad(lambda x: losses.mse(x, us.ones((3, 2)), us.zeros(3)))(us.zeros((3, 2)))
    assert float(value) == 0.0
    assert not us.to_numpy(gradient).any()


def test_logits_at_zero_and_far_out(backend):
    """The gradient of zero logits is σ(0) − t, and large logits neither overflow nor lose it."""
    x, target = us.asarray([0.0, 0.0, 1e4, -1e4, 1e4]), us.asarray([0, 1, 1, 0, 0])
    value, gradient = us.value_and_grad(lambda y: losses.binary_cross_entropy(y, target))(x)
    np.testing.assert_allclose(us.to_numpy(gradient) * 5, [0.5, -0.5, 0.0, 0.0, 1.0], atol=1e-6)
    assert float(value) == pytest.approx((2 * np.log(2) + 1e4) / 5)


BAD = {
    "broadcast": (losses.mse, (3, 1), (3,), None, r"outputs \(3, 1\) and targets \(3,\)"),
    "one hot": (losses.softmax_cross_entropy, (3, 4), (3, 4), None, r"us\.argmax\(targets, axis=-1\)"),
    "weights": (losses.mse, (3, 2), (3, 2), (4,), r"`weights`.*\(4,\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_shapes_that_do_not_fit(name, backend):
    loss, outputs, targets, weights, text = BAD[name]
    with pytest.raises(errors.ShapeError, match=text):
        loss(us.ones(outputs), us.ones(targets), None if weights is None else us.ones(weights))


def test_arguments(backend):
    with pytest.raises(errors.ArgumentTypeError, match="integer labels, got float32"):
        losses.softmax_cross_entropy(us.ones((3, 4)), us.ones(3))
    with pytest.raises(errors.ArgumentError, match="`delta` must be positive"):
        losses.huber(us.ones(3), us.ones(3), delta=0.0)
    with pytest.raises(errors.ArgumentError, match="`label_smoothing`"):
        losses.softmax_cross_entropy(us.ones((3, 4)), us.asarray([0, 1, 2]), label_smoothing=1.5)


def test_labels_out_of_range():
    losses.check_labels(np.array([0, 1, 2]), 3)
    losses.check_labels(np.zeros(0, int), 3)
    with pytest.raises(errors.DataError, match=r"got 3 at row 1 \(the largest is 5\)\. Try: a last layer with 6"):
        losses.check_labels(np.array([0, 3, 5]), 3)
    with pytest.raises(errors.DataError, match=r"got -1 at row 1, position \(0,\)"):
        losses.check_labels(np.array([[0, 1], [-1, 1]]), 3)
    with pytest.raises(errors.DataError, match=r"got -1 at row 0 \(the least is -1\)\. Try: labels that count from 0"):
        losses.check_labels(np.array([-1, 0]), 1)
    with us.backend("numpy"), pytest.raises(errors.DataError, match="got 4 at row 2"):
        losses.softmax_cross_entropy(us.zeros((3, 4)), np.array([0, 1, 4]))


def test_labels_out_of_range_in_a_users_own_loop(backend):
    """JAX would clamp them: the loss of another label, without a word."""
    x = us.zeros((3, 4))
    for bad in ([0, 1, 4], [0, -1, 1]):
        labels = us.asarray(bad)
        with pytest.raises(Exception) as found:
            us.to_numpy(us.value_and_grad(lambda y, t=labels: losses.softmax_cross_entropy(y, t))(x)[0])
        if backend in ("numpy", "jax"):
            assert isinstance(found.value, errors.DataError)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_gradient_of_abs_at_zero_is_zero(backend, compiled):
    gradient = us.grad(lambda x: us.sum(us.abs(x)))
    gradient = us.jit(gradient) if compiled else gradient
    assert us.to_numpy(gradient(us.asarray([-2.0, 0.0, -0.0, 3.0]))).tolist() == [-1.0, 0.0, 0.0, 1.0]


def test_embedding_indices_out_of_range(backend):
    if backend == "numpy":
        pytest.skip("NumPy counts -1 from the end")
    with pytest.raises(Exception, match=r"(?i)range|in \[0, 3\)"):
        us.to_numpy(us.nn.embedding(us.eye(3), us.asarray([0, -1])))


def test_accuracy_of_single_logits(backend):
    logits, labels = us.asarray([[2.0], [-1.0], [0.5]]), us.asarray([1, 0, 0])
    for outputs, targets in ((logits, labels), (logits, labels[:, None]), (logits[:, 0], labels)):
        found = us.metrics.accuracy(outputs, targets)
        assert tuple(found.shape) == tuple(targets.shape)
        assert us.to_numpy(found).ravel().tolist() == [1.0, 1.0, 0.0]
    assert us.to_numpy(us.metrics.accuracy(us.eye(3), us.asarray([0, 1, 1]))).tolist() == [1.0, 1.0, 0.0]
    for outputs, targets in ((us.eye(3), labels[:, None]), (us.eye(3), us.eye(3)), (us.eye(2), labels)):
        with pytest.raises(errors.ShapeError, match="without the last axis"):
            us.metrics.accuracy(outputs, targets)
    with pytest.raises(errors.ShapeError, match="must have the outputs' shape"):
        us.metrics.binary_accuracy(logits, labels)


def test_binary_cross_entropy_has_an_accuracy(backend):
    x = np.array([[-2.0], [-1.0], [1.0], [2.0]], np.float32)
    made = us.parallelize(
        us.nn.Linear(1, 1), loss=losses.binary_cross_entropy, params={"weight": us.ones((1, 1)), "bias": us.zeros(1)}
    )
    assert made.evaluate((x, np.array([[0], [1], [1], [1]])))["accuracy"] == 0.75

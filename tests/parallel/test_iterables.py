"""What can be trained on besides arrays: loaders of the frameworks, generators, lists, data sets."""

import functools

import numpy as np
import pytest

import unisync as us
from unisync.backends import installed
from unisync.errors import DataError

X = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
Y = np.arange(10) % 3
CUTS = (slice(0, 5), slice(5, 10))  # uneven batches are tested with the trainer


def batches():
    return [(X[cut], Y[cut]) for cut in CUTS]


def losses_on(data, epochs=2, **options):
    made = us.parallelize(us.nn.Linear(4, 3), loss=us.losses.softmax_cross_entropy, optimizer=us.optim.sgd(0.1))
    history = made.train(data, epochs=epochs, verbose=False, **options)
    assert len(history) == epochs
    return history.step_losses


@functools.cache
def losses_on_arrays(backend):
    return losses_on((X, Y), batch_size=5, shuffle=False)


@pytest.fixture
def expected(backend):
    return losses_on_arrays(backend)


@pytest.mark.parametrize(
    "make",
    [
        batches,
        lambda: [{"x": x, "y": y} for x, y in batches()],
        lambda: [[x, y] for x, y in batches()],
        lambda: us.data.Loader(X, Y, 5, shuffle=False),
        lambda: lambda: (batch for batch in batches()),
        lambda: [(us.asarray(x), us.asarray(y)) for x, y in batches()],
    ],
    ids=["tuples", "dicts", "lists", "loader", "function", "native arrays"],
)
def test_iterables(expected, make):
    assert losses_on(make()) == pytest.approx(expected, rel=1e-5)


def test_dict_of_arrays_and_data_set(expected):
    data = us.data.Dataset("d", "table", X, Y, X[:5], Y[:5], classes=("a", "b", "c"))
    assert losses_on({"x": X, "y": Y}, batch_size=5, shuffle=False) == pytest.approx(expected)
    made = us.parallelize(us.nn.Linear(4, 3), loss=us.losses.softmax_cross_entropy, optimizer=us.optim.sgd(0.1))
    record = made.train(data, batch_size=5, shuffle=False, verbose=False)[0]
    assert {"test_loss", "test_accuracy"} < set(record)
    assert made.evaluate(data)["loss"] == pytest.approx(record["test_loss"], rel=1e-5)


@pytest.mark.skipif(not installed("torch"), reason="needs torch")
def test_torch_data_loader(expected):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=5)
    assert losses_on(loader) == pytest.approx(expected, rel=1e-5)


@pytest.mark.skipif(not installed("tensorflow"), reason="needs tensorflow")
def test_tf_data(expected):
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(5)
    assert losses_on(data) == pytest.approx(expected, rel=1e-5)


def test_arrays_of_another_framework(expected):
    for name in ("torch", "jax", "tensorflow"):
        if installed(name):
            x, y = us.asarray(X, like=_one_of(name)), us.asarray(Y, like=_one_of(name))
            assert losses_on((x, y), batch_size=5, shuffle=False) == pytest.approx(expected, rel=1e-5)
            batches = [(us.asarray(X[cut], like=x), us.asarray(Y[cut], like=x)) for cut in CUTS]
            assert losses_on(batches) == pytest.approx(expected, rel=1e-5)


def _one_of(name):
    with us.backend(name):
        return us.ones(1)


def test_a_generator_runs_dry(backend):
    assert len(losses_on((batch for batch in batches()), epochs=1)) == 2
    made = us.parallelize(us.nn.Linear(4, 3), loss=us.losses.softmax_cross_entropy, optimizer=us.optim.sgd(0.1))
    with pytest.raises(DataError, match="ran dry after epoch 1: a generator can be run through only once"):
        made.train((batch for batch in batches()), epochs=2, verbose=False)
    assert (made.steps, made.epochs, len(made.history)) == (2, 1, 1)


def test_a_buffer_that_is_filled_again(backend):
    """A generator may reuse its arrays: the trainer has taken their numbers before it asks for the next batch."""

    def reusing():
        x, y = np.empty((4, 4), np.float32), np.empty(4, np.int64)
        for i in range(20):
            x[:], y[:] = X[i % 5 : i % 5 + 4], Y[i % 5 : i % 5 + 4]
            yield x, y

    def fresh():
        return [(X[i % 5 : i % 5 + 4].copy(), Y[i % 5 : i % 5 + 4].copy()) for i in range(20)]

    assert losses_on(reusing(), epochs=1) == pytest.approx(losses_on(fresh(), epochs=1), rel=1e-5)


def test_large_arrays_that_are_filled_again(backend):
    """jax copies memory that is not aligned in a thread of its own, after the call that it was given to."""
    draws = np.random.default_rng(0)
    numbers = draws.normal(size=(10, 512, 1024)).astype(np.float32)
    buffer = np.empty(512 * 1024 + 4, np.float32)[4:].reshape(512, 1024)
    labels = np.zeros(512, np.int64)

    def losses(take):
        made = us.parallelize(us.nn.Linear(1024, 2), loss=us.losses.softmax_cross_entropy, optimizer=us.optim.sgd(1e-3))
        results = []
        for x in numbers:
            results.append(made.step((take(x), labels)))
            buffer[:] = 0
        return [result.loss for result in results]

    def filled(x):
        buffer[:] = x
        return buffer

    assert losses(filled) == pytest.approx(losses(lambda x: x), rel=1e-5)

"""Batches: every sample once, in an order that the seed settles, the tail filled up with weight 0."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import unisync as us
from unisync.errors import ArgumentError, ArgumentTypeError, DataError


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 70), size=st.integers(1, 70), shuffle=st.booleans(), pad=st.booleans(), epoch=st.integers(0, 3))
def test_each_sample_once(n, size, shuffle, pad, epoch):
    size = min(size, n)
    loader = us.data.Loader(np.arange(n), np.arange(n) * 10, size, shuffle=shuffle, seed=1, pad=pad)
    batches = list(loader.batches(epoch))
    assert len(batches) == len(loader)
    seen = []
    for batch in batches:
        weights = np.ones(len(batch.x)) if batch.weights is None else batch.weights
        assert np.array_equal(batch.y, batch.x * 10)
        assert not pad or len(batch.x) == size
        seen.extend(batch.x[weights > 0].tolist())
    assert sorted(seen) == list(range(n))


def test_order_depends_on_seed_and_epoch_alone():
    def order(seed, epoch):
        loader = us.data.Loader(np.arange(40), np.arange(40), 8, seed=seed)
        return np.concatenate([batch.x for batch in loader.batches(epoch)]).tolist()

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)
    loader = us.data.Loader(np.arange(40), np.arange(40), 8)
    first, second = ([row for batch in loader for row in batch.x.tolist()] for _ in range(2))
    assert (first, second) == (order(0, 0), order(0, 1))


def test_skip_leaves_out_the_first_batches():
    loader = us.data.Loader(np.arange(10), np.arange(10), 3)
    whole = [batch.x.tolist() for batch in loader.batches(2)]
    assert [batch.x.tolist() for batch in loader.batches(2, skip=2)] == whole[2:]


@pytest.mark.parametrize(
    ("x", "y", "size", "error", "message"),
    [
        (np.zeros((0, 2)), np.zeros(0), 1, DataError, "at least one sample"),
        (np.zeros((3, 2)), np.zeros(2), 1, DataError, "got 3 and 2"),
        (np.zeros((3, 2)), np.zeros(3), 4, ArgumentError, "at most the number of samples, 3, got 4"),
        (np.zeros((3, 2)), np.zeros(3), 0, ArgumentError, "at least 1, got 0"),
        (np.zeros((3, 2)), np.zeros(3), -2, ArgumentError, "at least 1, got -2"),
        (np.zeros((3, 2)), np.zeros(3), 1.5, ArgumentTypeError, "must be an integer"),
        (3.0, np.zeros(3), 1, DataError, "`x` must be an array of samples"),
    ],
)
def test_loader_refuses(x, y, size, error, message):
    with pytest.raises(error, match=message):
        us.data.Loader(x, y, size)


@pytest.mark.parametrize(
    "raw",
    [
        (np.zeros((2, 3)), np.zeros(2)),
        [np.zeros((2, 3)), np.zeros(2)],
        {"x": np.zeros((2, 3)), "y": np.zeros(2)},
        us.data.Batch(np.zeros((2, 3)), np.zeros(2)),
    ],
)
def test_forms_of_a_batch(raw):
    batch = us.data.as_batch(raw)
    assert (batch.x.shape, batch.y.shape, batch.weights) == ((2, 3), (2,), None)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (np.zeros((2, 3)), "got ndarray"),
        ({"image": 1, "label": 2}, r"got dict with \['image', 'label'\]"),
        ((np.zeros((2, 3)), np.zeros(3)), "one length"),
        ((np.zeros((0, 3)), np.zeros(0)), "at least 1"),
        ((3.0, np.zeros(3)), "must be arrays of samples"),
    ],
)
def test_no_batch(raw, message):
    with pytest.raises(DataError, match=message):
        us.data.as_batch(raw)

"""Random keys: the same key gives the same numbers, and no two ways of making one meet by accident."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest

import unisync as us
from unisync._key import Key
from unisync.errors import ArgumentTypeError, TraceError


def bits(key: Key) -> int:
    high, low = (int(word) for word in key.words())
    return high << 32 | low


def test_known_numbers():
    """The bits are promised: initial parameters depend on them on every backend and in every version."""
    assert bits(Key(0)) == 0xE220A8397B1DCDAF  # SplitMix64's first number from state 0
    assert Key(0).generator().random(2).tolist() == [0.16779389908422404, 0.9334678441718407]
    assert Key(7).fold_in(1, 2).generator().integers(0, 1000, 3).tolist() == [406, 959, 830]


def test_the_same_key_gives_the_same_numbers():
    for make in (lambda: Key(3), lambda: Key(3).fold_in(1, 2), lambda: Key(3).split()[1], lambda: Key(3).commit()):
        a, b = make(), make()
        assert a == b
        assert hash(a) == hash(b)
        np.testing.assert_array_equal(a.words(), b.words())
        np.testing.assert_array_equal(a.generator().random(5), b.generator().random(5))


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63, 2**64 - 2, np.int32(5), np.uint64(2**63 + 1), True])
def test_seeds(seed):
    assert Key(seed) == Key(int(seed) % 2**64)


@pytest.mark.parametrize("seed", [1.0, "1", None, np.float32(1)])
def test_a_seed_that_is_no_integer(seed):
    with pytest.raises(ArgumentTypeError, match=r"`seed` must be an integer"):
        Key(seed)


@pytest.mark.parametrize("number", [1.0, "1", None])
def test_folding_in_what_is_no_integer(number):
    with pytest.raises(ArgumentTypeError, match=r"`numbers` must be Python integers"):
        Key(0).fold_in(number)


def test_folding_in_several_is_folding_in_one_after_the_other():
    assert Key(0).fold_in(4, 5, 6) == Key(0).fold_in(4).fold_in(5).fold_in(6)
    assert Key(0).fold_in(np.int64(4)) == Key(0).fold_in(4)
    assert Key(0).fold_in() == Key(0)


def test_order_and_nesting_matter():
    """Also over a commit, which moves what was folded in into the data."""
    key = Key(0)
    assert key.fold_in(1, 2) != key.fold_in(2, 1)
    assert key.fold_in(1).commit().fold_in(2) != key.fold_in(2).commit().fold_in(1)
    assert key.fold_in(0) != key
    assert key.fold_in(0, 0) != key.fold_in(0)


def test_no_two_paths_meet():
    """Every key that a training run makes from small numbers is another: seeds, steps, layers, replicas, splits."""
    keys: list[Key] = []
    for seed, update, replica in itertools.product(range(4), range(40), range(4)):
        key = Key(seed).fold_in(update, 0, replica)
        keys += [key, key.commit(), *key.split(3), *key.commit().split(3), *(key.fold_in(i) for i in range(100, 105))]
    keys += [Key(seed) for seed in range(200)]
    keys += [Key(0).fold_in(n) for n in range(50, 30_000)]
    keys += [Key(seed).fold_in(n) for seed in range(4, 100) for n in range(100)]
    keys += [Key(seed).fold_in(m, n) for seed in range(4, 20) for m in range(20) for n in range(20)]
    assert len({bits(key) for key in keys}) == len(keys)


def test_splitting_is_not_folding():
    """`split` shares no key with `fold_in` of any step number."""
    made = {bits(key) for key in Key(0).split(100)}
    assert len(made) == 100
    assert made.isdisjoint({bits(Key(0).fold_in(a, b)) for a in range(24_000) for b in range(2)})


def test_split_keeps_its_first_keys():
    assert Key(1).split(5)[:2] == Key(1).split(2)
    assert Key(1).split(0) == ()


def test_streams_are_independent():
    """Neighbouring keys give uncorrelated, evenly spread numbers."""
    parents = [Key(seed).fold_in(step) for seed in range(16) for step in range(16)]
    draws = np.stack([key.generator().standard_normal(512) for key in (*parents, *Key(99).split(64))])
    correlation = np.corrcoef(draws) - np.eye(len(draws))
    assert np.abs(correlation).max() < 6 / np.sqrt(512)
    assert abs(draws.mean()) < 5 / np.sqrt(draws.size)
    words = np.stack([key.words() for key in parents]).view(np.uint8)
    ones = np.unpackbits(words, axis=1).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 5 * 0.5 / np.sqrt(len(parents))


def test_commit_moves_all_bits_into_the_data():
    key = Key(0).fold_in(1, 2)
    committed = key.commit()
    assert (key.salt == 0, committed.salt) == (False, 0)
    assert committed != key
    np.testing.assert_array_equal(committed.words(), committed.data)


@pytest.mark.parametrize("remade", [copy.copy, copy.deepcopy, lambda key: pickle.loads(pickle.dumps(key))])
def test_copies_are_equal(remade):
    key = Key(9).fold_in(3)
    made = remade(key)
    assert made == key
    assert made.fold_in(1) == key.fold_in(1)
    assert made.data.dtype == np.uint32


def test_equality_with_other_things():
    assert Key(0) != 0
    assert Key(0) != "Key(0)"
    assert len({Key(0), Key(0), Key(1)}) == 2


def test_a_key_is_a_tree(backend):
    """Its words are a leaf, which may become an array of any backend; what was folded in stays beside it."""
    key = Key(0).fold_in(5)
    leaves, structure = us.tree.flatten({"key": key})
    assert [leaf.dtype for leaf in leaves] == [np.uint32]
    assert us.tree.unflatten(structure, leaves)["key"] == key
    moved = us.tree.map(us.asarray, key)
    assert moved == key
    np.testing.assert_array_equal(us.to_numpy(moved.words()), key.words())
    np.testing.assert_array_equal(moved.generator().random(3), key.generator().random(3))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_draws(backend, dtype):
    key = Key(2).fold_in(1)
    uniform = us.random.uniform(key, (2000,), low=-1.0, high=3.0, dtype=dtype)
    normal = us.random.normal(key, (2000,), mean=2.0, std=0.5, dtype=dtype)
    assert us.dtype_of(uniform) == us.dtype_of(normal) == dtype
    u, n = us.to_numpy(uniform).astype("float64"), us.to_numpy(normal).astype("float64")
    assert u.min() >= -1.0
    assert u.max() < 3.0
    assert abs(u.mean() - 1.0) < 0.15
    assert abs(n.mean() - 2.0) < 0.06
    assert abs(n.std() - 0.5) < 0.05
    np.testing.assert_array_equal(
        us.to_numpy(us.random.uniform(key, (2000,), low=-1.0, high=3.0, dtype=dtype)), us.to_numpy(uniform)
    )
    assert not np.array_equal(us.to_numpy(us.random.normal(key.fold_in(0), (2000,), dtype=dtype)), us.to_numpy(normal))


def test_draws_of_booleans_and_scalars(backend):
    key = Key(4)
    drawn = us.to_numpy(us.random.bernoulli(key, 0.25, (40, 50)))
    assert drawn.dtype == bool
    assert abs(drawn.mean() - 0.25) < 0.05
    assert not us.to_numpy(us.random.bernoulli(key, 0.0, (100,))).any()
    assert us.to_numpy(us.random.bernoulli(key, 1.0, (100,))).all()
    assert tuple(us.random.uniform(key).shape) == ()


def test_host_draws_inside_a_compiled_function(backend):
    """Where the bits are traced, host draws say so instead of freezing one set of numbers."""
    if backend in ("numpy", "torch"):
        pytest.skip("runs the function as it is")

    def draw(key, x):
        return x + float(key.generator().random())

    with pytest.raises(TraceError, match="host draws need a key whose bits are known"):
        us.jit(draw)(Key(0), us.asarray(1.0))


@pytest.mark.parametrize(
    "draw", [us.random.normal, us.random.uniform, lambda key, shape: us.random.bernoulli(key, 0.5)]
)
def test_a_seed_is_no_key(backend, draw):
    with pytest.raises(ArgumentTypeError, match=r"must be a us.random.Key, got int. Try: us.random.Key\(3\)"):
        draw(3, (2,))

"""The memory of large results is used again, but never while anything still sees it."""

from __future__ import annotations

import gc
import weakref

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import unisync as us
from unisync.backends._memory import Pool
from unisync.backends._reduction import BLOCK_BYTES, PART_BYTES, POOLED_BYTES

LARGE = POOLED_BYTES // 4  # float32 numbers of the smallest result that lies in a pool


@pytest.fixture
def pair(backend):
    """A world of two threads."""
    with us.init_distributed(replicas=2, device="cpu") as world:
        if world.engine != "threads":
            pytest.skip("replicas are not threads")
        yield world


def whole(x):
    return x


def sliced(x):
    return x[7:-3][::2]


def reshaped(x):
    return us.reshape(x[:LARGE], (2, -1))[1]


def buffer(x):
    return memoryview(us.to_numpy(x))


def through_dlpack(x):
    return np.from_dlpack(x)


KEEPERS = (whole, sliced, reshaped, buffer, through_dlpack)


def numbers(kept):
    return np.array(kept if isinstance(kept, memoryview) else us.to_numpy(kept))


def test_what_is_kept_is_not_overwritten(pair):
    total = us.spmd(lambda x: us.all_reduce(x, op="sum"))

    @settings(max_examples=30, deadline=None, derandomize=True, database=None)
    @given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from((*KEEPERS, None)), st.integers(0, 4)), max_size=12))
    def check(steps):
        kept = []
        for value, (size, keep, drop) in enumerate(steps, 1):
            result = total(pair.scatter(np.full(2 * (LARGE + size % 2), value, np.float32)))
            for own in result:
                assert np.all(numbers(own) == 2 * value)
                if keep is not None:
                    seen = keep(own)
                    kept.append((seen, numbers(seen)))
            del result, own
            del kept[:drop]
            for seen, before in kept:
                assert np.array_equal(numbers(seen), before)

    check()


def test_a_result_may_be_written_to(pair):
    def fn(x):
        first = us.all_reduce(x, op="sum")
        view = np.from_dlpack(first)
        view += 1 + us.replica_index()
        second = us.all_reduce(x, op="sum")
        return first, second

    for rank, (first, second) in enumerate(us.spmd(fn)(pair.scatter(np.ones(2 * LARGE, np.float32)))):
        assert np.all(us.to_numpy(first) == 3 + rank)
        assert np.all(us.to_numpy(second) == 2)


def test_handles_and_trees_hold_their_memory(pair):
    def fn(x):
        handles = [us.all_reduce(x * n, op="sum", async_op=True) for n in (1, 2, 3)]
        trees = [us.all_reduce({"a": x * n, "b": x[:5] * n, "c": x * (n + 1)}, op="mean") for n in (1, 2, 3)]
        return [handle.wait() for handle in handles], trees

    for sums, trees in us.spmd(fn)(pair.scatter(np.ones(2 * LARGE, np.float32))):
        for n, (total, tree) in enumerate(zip(sums, trees, strict=True), 1):
            assert np.all(us.to_numpy(total) == 2 * n)
            assert [float(us.to_numpy(tree[k])[-1]) for k in "abc"] == [n, n, n + 1]


def test_results_outlive_the_world(backend):
    with us.init_distributed(replicas=2, device="cpu") as world:
        result = us.spmd(lambda x: us.all_reduce(x, op="sum"))(world.scatter(np.ones(2 * LARGE, np.float32)))
        own = list(result)
        del result
    gc.collect()
    assert all(np.all(us.to_numpy(x) == 2) for x in own)


@pytest.mark.parametrize("op", ["sum", "mean", "max", "prod"])
@pytest.mark.parametrize("replicas", [2, 3])
def test_sizes_around_the_limits_of_parts_and_blocks(backend, replicas, op):
    sizes = [limit // 4 + extra for limit in (POOLED_BYTES, BLOCK_BYTES, PART_BYTES) for extra in (-1, 0, 1)]
    ufunc = {"sum": np.add, "mean": np.add, "max": np.maximum, "prod": np.multiply}[op]
    with us.init_distributed(replicas=replicas, device="cpu") as world:
        if world.engine != "threads":
            pytest.skip("replicas are not threads")
        for size in sizes:
            x = np.random.default_rng(size).normal(size=(replicas, size)).astype(np.float32)
            expected = ufunc.reduce(x, axis=0)
            if op == "mean":
                expected = expected / np.float32(replicas)
            for own in us.spmd(lambda x: us.all_reduce(x, op=op))(world.scatter(x.reshape(-1))):
                assert np.array_equal(us.to_numpy(own), expected)


# The pool itself


def test_dropped_memory_comes_back():
    pool = Pool()
    address = pool.rows(2, 1000, "float32").__array_interface__["data"]
    assert pool.rows(2, 1000, "float32").__array_interface__["data"] == address


def test_rows_are_apart_and_aligned():
    rows = Pool().rows(3, 1001, "float32")
    assert rows.shape == (3, 1001)
    assert not any(np.shares_memory(rows[i], rows[j]) for i in range(3) for j in range(i))
    assert all(row.ctypes.data % 64 == 0 and row.flags.c_contiguous and row.flags.writeable for row in rows)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from((100, 200)), st.integers(0, 2)), max_size=40))
def test_no_two_live_results_share_memory(steps):
    pool, live = Pool(limit_bytes=5000), []
    for number, (count, size, drop) in enumerate(steps):
        rows = pool.rows(count, size, "float32")
        rows[:] = number
        live.append((rows[-1][1:], number))  # a view of a view
        del rows
        if drop:
            del live[:: drop + 1]
        assert all(np.all(view == own) for view, own in live)


def test_memory_beyond_the_limit_is_given_up():
    pool = Pool(limit_bytes=10_000)
    kept = [pool.rows(1, 1000, "float32") for _ in range(5)]
    owners = [weakref.ref(rows.base) for rows in kept]
    kept.clear()
    assert sum(owner() is not None for owner in owners) == 2
    large = weakref.ref(pool.rows(1, 10_000, "float32").base)
    assert large() is None
    pool.clear()
    assert all(owner() is None for owner in owners)

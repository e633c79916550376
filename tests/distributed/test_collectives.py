"""Every collective against a model of it in NumPy, on every engine; in launched worlds too (see test_launched.py)."""

from __future__ import annotations

import functools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import unisync as us
from unisync.errors import ArgumentError, ArgumentTypeError, MixedBackendsError, ShapeError, StateError, UnisyncError

REALS = ("float32", "float64", "float16")
INTEGERS = ("int8", "int32", "int64")
UFUNCS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


def own_code(world):
    """Whether replicas run code of their own, rather than all one program."""
    return world.engine in ("threads", "gloo", "nccl", "mpi")


def examples(world):
    """Fewer where each example is compiled."""
    return 40 if own_code(world) else 6


def on_examples(world, test, **strategies):
    """Run a test with random arguments; the world stays the same for all."""
    check = settings(
        max_examples=examples(world), deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )(given(**strategies)(test))  # fmt: skip
    check()


def partitions(size):
    """Lists of groups of one size, in random order; or None."""
    sizes = [n for n in range(1, size + 1) if size % n == 0]
    return st.none() | st.builds(
        lambda ranks, n: [ranks[i : i + n] for i in range(0, size, n)],
        st.permutations(range(size)),
        st.sampled_from(sizes),
    )


def groups_of(groups, size):
    return groups or [list(range(size))]


def shapes(min_dims=0):
    return st.lists(st.integers(0, 5), min_size=min_dims, max_size=3).map(tuple)


def draw(rng, shape, dtype):
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    if dtype.startswith("complex"):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def reduced(arrays, op):
    """The model of all_reduce."""
    dtype = arrays[0].dtype
    if dtype.kind == "b":
        return functools.reduce(np.logical_or if op in ("sum", "max") else np.logical_and, arrays)
    wide = [a.astype(np.float32) if dtype == np.float16 else a for a in arrays]
    with np.errstate(all="ignore"):
        total = functools.reduce(UFUNCS["sum" if op == "mean" else op], wide)
        total = total / wide[0].dtype.type(len(arrays)) if op == "mean" else total
        return np.asarray(total).astype(dtype)


def assert_close(got, expected):
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    rtol = {"float16": 1e-3, "float32": 1e-5, "complex64": 1e-5}.get(str(got.dtype), 1e-12)
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol)


def each(world, groups):
    """(replica, members of its group, its position there)."""
    for group in groups_of(groups, world.size):
        for position, replica in enumerate(group):
            yield replica, group, position


# Reductions


def test_all_reduce_is_its_model(world, run):
    def test(op, dtype, shape, seed, groups):
        if op == "mean" and dtype in (*INTEGERS, "bool"):
            op = "sum"
        if op in ("max", "min") and dtype.startswith("complex"):
            op = "prod"
        rng = np.random.default_rng(seed)
        arrays = [draw(rng, shape, dtype) for _ in range(world.size)]
        got = run(world, lambda x: us.all_reduce(x, op, groups=groups), arrays)
        for replica, group, _ in each(world, groups):
            assert_close(got[replica], reduced([arrays[r] for r in group], op))
            np.testing.assert_array_equal(got[replica], got[group[0]])

    on_examples(
        world, test,
        op=st.sampled_from(["sum", "mean", "max", "min", "prod"]),
        dtype=st.sampled_from([*REALS, *INTEGERS, "bool", "complex64"]),
        shape=shapes(), seed=st.integers(0, 2**20), groups=partitions(world.size),
    )  # fmt: skip


@pytest.mark.parametrize("op", ["sum", "mean", "max", "min", "prod"])
def test_bfloat16_is_reduced_in_float32_and_rounded_once(world, run, rng, op):
    arrays = [rng.normal(size=(50,)).astype(np.float32) for _ in range(world.size)]

    def both(x):
        half = us.astype(x, "bfloat16")
        total = us.all_reduce(half, op)
        assert us.dtype_of(total) == "bfloat16"
        return us.astype(total, "float32"), us.astype(us.all_reduce(us.astype(half, "float32"), op), "bfloat16")

    for got, expected in run(world, both, arrays):
        np.testing.assert_array_equal(got, expected.astype(np.float32))


@pytest.mark.parametrize("op", ["sum", "mean"])
def test_large_arrays_are_reduced_in_parts(world, run, rng, op):
    arrays = [rng.normal(size=(1_200_001,)).astype(np.float32) for _ in range(world.size)]
    got = run(world, lambda x: us.all_reduce(x, op), arrays)
    for result in got:
        assert_close(result, reduced(arrays, op))
        np.testing.assert_array_equal(result, got[0])


@pytest.mark.parametrize("op", ["sum", "max"])
def test_a_tree_of_large_and_small_arrays(world, run, rng, op):
    def tree():
        return [
            draw(rng, shape, dtype)
            for dtype in ("float32", "float64", "bool", "float16")
            for shape in ((30_001,), (3,), (200, 100), (70_000,), (2, 2))
        ]

    trees = [tree() for _ in range(world.size)]
    for got in run(world, lambda t: us.all_reduce(t, op), trees):
        for result, *arrays in zip(got, *trees, strict=True):
            assert_close(result, reduced(arrays, op))


def test_a_tree_keeps_its_form(world, run, rng):
    def tree():
        return {
            "w": draw(rng, (3, 4), "float32"), "b": [draw(rng, (), "float32"), draw(rng, (2,), "float64")],
            "n": (draw(rng, (5,), "int32"), draw(rng, (0, 3), "float32")), "on": draw(rng, (4,), "bool"),
        }  # fmt: skip

    trees = [tree() for _ in range(world.size)]
    got = run(world, lambda t: us.all_reduce(t, "sum"), trees)
    expected = us.tree.map(lambda *xs: reduced(list(map(np.asarray, xs)), "sum"), *trees)
    for result in got:
        us.tree.map(lambda a, b: assert_close(np.asarray(a), b), result, expected)


def test_an_empty_tree_is_returned_as_it_is(world, run):
    assert (
        run(world, lambda x: us.all_reduce({"a": [], "b": None}), [np.zeros(1)] * world.size)
        == [{"a": [], "b": None}] * world.size
    )


def test_numbers_become_arrays(world, run):
    got = run(world, lambda x: us.all_reduce({"a": 2.0, "b": 3}, "sum"), [np.zeros(1)] * world.size)
    assert [(float(t["a"]), int(t["b"])) for t in got] == [(2.0 * world.size, 3 * world.size)] * world.size


@pytest.mark.parametrize("op", ["sum", "mean", "prod"])
def test_non_finite_values_pass_through(world, run, op):
    arrays = [np.ones(4, np.float32) for _ in range(world.size)]
    arrays[-1][:] = [np.nan, np.inf, -np.inf, 1]
    arrays[0][2] = -np.inf if world.size == 1 else np.inf
    for got in run(world, lambda x: us.all_reduce(x, op), arrays):
        np.testing.assert_array_equal(got, reduced(arrays, op))


@pytest.mark.parametrize("op", ["max", "min"])
def test_the_largest_of_infinities(world, run, op):
    arrays = [np.asarray([r, np.inf, -np.inf], np.float32) for r in range(world.size)]
    for got in run(world, lambda x: us.all_reduce(x, op), arrays):
        np.testing.assert_array_equal(got, reduced(arrays, op))


def test_arguments_are_not_changed(world, run, rng):
    arrays = [rng.normal(size=(100_000,)).astype(np.float32) for _ in range(world.size)]

    def fn(x):
        results = us.all_reduce(x, "sum"), us.broadcast(x), us.all_gather(x)
        return x, results

    for got, before in zip(run(world, fn, arrays), arrays, strict=True):
        np.testing.assert_array_equal(got[0], before)


def test_allreduce_is_an_alias():
    assert us.allreduce is us.all_reduce


# Moving data


def test_all_gather_is_its_model(world, run):
    def test(dtype, shape, seed, groups):
        rng = np.random.default_rng(seed)
        arrays = [draw(rng, shape, dtype) for _ in range(world.size)]
        got = run(world, lambda x: us.all_gather({"a": x, "b": x}, groups=groups), arrays)
        for replica, group, _ in each(world, groups):
            expected = np.concatenate([np.atleast_1d(arrays[r]) for r in group])
            assert_close(got[replica]["a"], expected)
            assert_close(got[replica]["b"], expected)

    on_examples(
        world, test, dtype=st.sampled_from([*REALS, *INTEGERS, "bool", "complex64"]), shape=shapes(),
        seed=st.integers(0, 2**20), groups=partitions(world.size),
    )  # fmt: skip


def test_reduce_scatter_is_its_model(world, run):
    def test(op, dtype, rows, rest, seed, groups):
        rng = np.random.default_rng(seed)
        members = len(groups_of(groups, world.size)[0])
        arrays = [draw(rng, (rows * members, *rest), dtype) for _ in range(world.size)]
        got = run(world, lambda x: us.reduce_scatter({"a": x, "b": x}, op, groups=groups), arrays)
        for replica, group, position in each(world, groups):
            total = reduced([arrays[r] for r in group], op)
            for part in got[replica].values():
                assert_close(part, total[position * rows : (position + 1) * rows])

    on_examples(
        world, test, op=st.sampled_from(["sum", "mean"]), dtype=st.sampled_from(REALS), rows=st.integers(0, 3),
        rest=shapes().map(lambda s: s[:2]), seed=st.integers(0, 2**20), groups=partitions(world.size),
    )  # fmt: skip


def test_reduce_scatter_of_booleans_is_a_logical_or(world, run, rng):
    arrays = [rng.random((4 * world.size,)) < 0.4 for _ in range(world.size)]
    got = run(world, lambda x: us.reduce_scatter(x, "sum"), arrays)
    np.testing.assert_array_equal(np.concatenate(got), reduced(arrays, "sum"))


def test_broadcast_is_its_model(world, run):
    def test(dtype, shape, seed, groups, root):
        rng = np.random.default_rng(seed)
        root %= len(groups_of(groups, world.size)[0])
        arrays = [draw(rng, shape, dtype) for _ in range(world.size)]
        got = run(world, lambda x: us.broadcast({"a": x, "b": x}, root, groups=groups), arrays)
        for replica, group, _ in each(world, groups):
            for part in got[replica].values():
                assert_close(part, arrays[group[root]])

    on_examples(
        world, test, dtype=st.sampled_from([*REALS, *INTEGERS, "bool"]), shape=shapes(),
        seed=st.integers(0, 2**20), groups=partitions(world.size), root=st.integers(0, 3),
    )  # fmt: skip


def test_broadcast_carries_non_finite_values_of_the_root_alone(world, run):
    arrays = [np.full(3, np.nan, np.float32) for _ in range(world.size)]
    arrays[0][:] = [1, np.inf, np.nan]
    for got in run(world, us.broadcast, arrays):
        np.testing.assert_array_equal(got, arrays[0])


def test_all_to_all_is_its_model(world, run):
    def test(dtype, rows, rest, seed, groups):
        rng = np.random.default_rng(seed)
        members = len(groups_of(groups, world.size)[0])
        arrays = [draw(rng, (rows * members, *rest), dtype) for _ in range(world.size)]
        got = run(world, lambda x: us.all_to_all({"a": x, "b": x}, groups=groups), arrays)
        for replica, group, position in each(world, groups):
            for part in got[replica].values():
                expected = np.concatenate([arrays[r][position * rows : (position + 1) * rows] for r in group])
                assert_close(part, expected)

    on_examples(
        world, test, dtype=st.sampled_from([*REALS, *INTEGERS, "bool"]), rows=st.integers(0, 3),
        rest=shapes().map(lambda s: s[:2]), seed=st.integers(0, 2**20), groups=partitions(world.size),
    )  # fmt: skip


def test_permute_is_its_model(world, run):
    def test(dtype, shape, seed, targets, kept):
        rng = np.random.default_rng(seed)
        pairs = [pair for pair, keep in zip(enumerate(targets), kept, strict=False) if keep]
        arrays = [draw(rng, shape, dtype) for _ in range(world.size)]
        got = run(world, lambda x: us.permute({"a": x, "b": x}, pairs), arrays)
        sources = {target: source for source, target in pairs}
        for replica in range(world.size):
            expected = arrays[sources[replica]] if replica in sources else np.zeros_like(arrays[0])
            for part in got[replica].values():
                assert_close(part, expected)

    on_examples(
        world, test, dtype=st.sampled_from([*REALS, *INTEGERS, "bool"]), shape=shapes(), seed=st.integers(0, 2**20),
        targets=st.permutations(range(world.size)), kept=st.lists(st.booleans(), min_size=4, max_size=4),
    )  # fmt: skip


def test_replica_index_and_barrier(world, run):
    def fn(x):
        us.barrier()
        return us.asarray(us.replica_index())

    assert [int(i) for i in run(world, fn, [np.zeros(1)] * world.size)] == list(range(world.size))


# Derivatives


def test_the_gradient_of_the_square_of_a_sum_over_1_2_3_4_is_80(four, run):
    arrays = [np.float64(r + 1) for r in range(4)]
    assert run(four, us.grad(lambda x: us.all_reduce(x, "sum") ** 2), arrays) == [80.0] * 4


def test_the_gradient_of_a_mean_is_the_mean_of_the_cotangents(four, run):
    arrays = [np.float64(r + 1) for r in range(4)]
    assert run(four, us.grad(lambda x: us.all_reduce(x) ** 2), arrays) == [5.0] * 4
    weighted = us.grad(lambda x: us.all_reduce(x) * us.stop_gradient(x))  # cotangents 1, 2, 3, 4
    assert run(four, weighted, arrays) == [2.5] * 4


def test_gradients_stay_within_groups(four, run):
    arrays = [np.float64(r + 1) for r in range(4)]
    got = run(four, us.grad(lambda x: us.all_reduce(x, "sum", groups=[[0, 2], [1, 3]]) ** 2), arrays)
    assert got == [16.0, 24.0, 16.0, 24.0]  # 2 replicas, each 2 · (1 + 3), or 2 · (2 + 4)


def test_gradients_of_trees(two, run, rng):
    trees = [{"w": rng.normal(size=(2, 3)), "b": rng.normal(size=(3,))} for _ in range(2)]

    def loss(tree):
        total = us.all_reduce(tree, "sum")
        return us.sum(total["w"] ** 2) + us.sum(total["b"] ** 3)

    for got in run(two, us.grad(loss), trees):
        np.testing.assert_allclose(got["w"], 4 * (trees[0]["w"] + trees[1]["w"]), rtol=1e-12)
        np.testing.assert_allclose(got["b"], 6 * (trees[0]["b"] + trees[1]["b"]) ** 2, rtol=1e-12)


def test_second_derivatives(two, run):
    inner = us.grad(lambda x: us.all_reduce(x, "sum") ** 3)  # 2 · 3 s²
    outer = us.grad(lambda x: inner(x))  # the sum over replicas of 12 s
    assert run(two, outer, [np.float64(1), np.float64(2)]) == [72.0] * 2


def test_the_pullback_of_vjp(two, run):
    def fn(x):
        value, pullback = us.vjp(lambda y: us.all_reduce(y, "sum"), x)
        return value, pullback(x)[0]

    assert run(two, fn, [np.float64(1), np.float64(2)]) == [(3.0, 3.0)] * 2


def _never_silently_wrong(run, world, fn, arrays, expected):
    """The gradient is right, or an error says that there is none."""
    try:
        got = run(world, us.grad(fn), arrays)
    except (NotImplementedError, UnisyncError) as error:
        words = ("derivative", "gradient", "differentia")
        assert any(word in str(error).lower() for word in words)  # noqa: PT017
        return
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-12)


@pytest.mark.parametrize("op", ["max", "min", "prod"])
def test_other_reductions_have_the_right_gradient_or_none(two, run, op):
    # Per-replica values: cotangents 1 and 10 add up at the replica whose number was taken.
    arrays = [np.float64(2), np.float64(5)]
    total = {"max": [0.0, 11.0], "min": [11.0, 0.0], "prod": [55.0, 22.0]}[op]

    def fn(x):
        return us.all_reduce(x, op) * us.where(us.stop_gradient(x) < 3, us.ones_like(x), 10 * us.ones_like(x))

    _never_silently_wrong(run, two, fn, arrays, total)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: us.sum(us.all_gather(x) ** 2), [[4.0, 8.0], [12.0, 16.0]]),
        (lambda x: us.sum(us.reduce_scatter(x, "sum") ** 2), [[8.0, 12.0], [8.0, 12.0]]),
        (lambda x: us.sum(us.broadcast(x, 1) ** 2), [[0.0, 0.0], [12.0, 16.0]]),
        (lambda x: us.sum(us.all_to_all(x) ** 2), [[2.0, 4.0], [6.0, 8.0]]),
        (lambda x: us.sum(us.permute(x, [(0, 1)]) ** 2), [[2.0, 4.0], [0.0, 0.0]]),
    ],
    ids=["all_gather", "reduce_scatter", "broadcast", "all_to_all", "permute"],
)
def test_moves_have_the_right_gradient_or_none(two, run, fn, expected):
    _never_silently_wrong(run, two, fn, [np.asarray([1.0, 2.0]), np.asarray([3.0, 4.0])], expected)


# The asynchronous form


def test_the_asynchronous_form_gives_the_same(world, run, rng):
    trees = [{"a": draw(rng, (3,), "float32"), "b": draw(rng, (2, 2), "float16")} for _ in range(world.size)]

    def fn(tree):
        handles = [us.all_reduce(tree, op, async_op=True) for op in ("mean", "max")]
        now = us.all_reduce(tree, "sum")
        results = [h.wait() for h in reversed(handles)]
        assert all(h.is_completed() for h in handles)
        return results, now, handles[0].wait()

    for (largest, mean), total, again in run(world, fn, trees):
        for key in ("a", "b"):
            arrays = [t[key] for t in trees]
            assert_close(mean[key], reduced(arrays, "mean"))
            assert_close(largest[key], reduced(arrays, "max"))
            assert_close(total[key], reduced(arrays, "sum"))
            np.testing.assert_array_equal(again[key], mean[key])


# Objects


def test_objects(world):
    def gather(x):
        return us.all_gather_object({"replica": us.replica_index()}), us.broadcast_object([us.replica_index()], 0)

    if own_code(world) or world.size == 1:
        expected = [{"replica": r} for r in range(world.size)], [0]
        assert list(us.spmd(gather)(0)) == [expected] * world.local_replicas
    else:
        with pytest.raises(UnisyncError, match="Try"):
            us.spmd(lambda x: [us.all_gather_object(1), x][1])(0)
        with pytest.raises(UnisyncError, match="Try"):
            us.spmd(lambda x: [us.broadcast_object(1), x][1])(0)


def test_objects_are_each_replicas_own(four):
    if not own_code(four):
        pytest.skip("no object collectives where replicas share one program")

    def fn():
        everyone = us.all_gather_object([us.replica_index()], groups=[[3, 0], [1, 2]])
        shared = us.broadcast_object({"a": [us.replica_index()]}, root=1)
        us.barrier()
        everyone[0].append("mine")
        shared["a"].append(us.replica_index())
        us.barrier()
        return everyone, shared

    value = us.spmd(fn)()
    got = list(value) if four.process_count == 1 else us.all_gather_object(value[0])
    assert [everyone for everyone, _ in got] == [
        [[3, "mine"], [0]],
        [[1, "mine"], [2]],
        [[1, "mine"], [2]],
        [[3, "mine"], [0]],
    ]
    assert [shared["a"] for _, shared in got] == [[1, r] for r in range(4)]


# Only where replicas run code of their own


def test_uneven_all_gather(four, all_replicas):
    if not own_code(four):
        pytest.skip("shapes are equal where replicas share one program")

    def fn():
        x = us.reshape(us.arange(2 * us.replica_index()), (-1, 2))
        x = us.astype(x, "float64")
        tree = us.all_gather({"a": x, "b": us.ones(us.replica_index())})
        assert us.to_numpy(tree["b"]).tolist() == [1.0] * 6
        return tree["a"], us.grad(lambda y: us.sum(us.all_gather(y) ** 2))(x)

    for r, (whole, gradient) in enumerate(all_replicas(four, us.spmd(fn)())):
        np.testing.assert_array_equal(whole.reshape(-1), [0, 1, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5])
        np.testing.assert_array_equal(gradient.reshape(-1), 8.0 * np.arange(2 * r))


def test_send_and_recv(two, all_replicas):
    def fn(x):
        if us.replica_index() == 0:
            us.send({"x": x, "n": us.ones(2)}, to=1)
            return us.recv(x, source=1)
        got = us.recv({"x": x, "n": us.zeros(2)}, source=0)
        us.send(got["x"] + got["n"][0], to=0)
        return x

    args = two.scatter(np.asarray([[1.0, 2.0], [5.0, 6.0]]))
    if own_code(two):
        np.testing.assert_array_equal(all_replicas(two, us.spmd(fn)(args))[0], [[2.0, 3.0]])
    else:
        other = 1 - two.process_index
        with pytest.raises(StateError, match=r"Try: us\.permute"):
            us.spmd(lambda x: [us.send(x, other), x][1])(args)
        with pytest.raises(StateError, match=r"Try: us\.permute"):
            us.spmd(lambda x: us.recv(x, other))(args)


# Errors, the same on any number of replicas


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: us.all_reduce(x, "average"), ValueError, "'average'"),
        (lambda x: us.all_reduce(us.astype(x, "int32")), ArgumentTypeError, "op='sum'"),
        (lambda x: us.all_reduce(us.astype(x, "bool"), "mean"), ArgumentTypeError, "bool"),
        (lambda x: us.all_reduce(us.astype(x, "complex64"), "max"), ArgumentTypeError, "complex64"),
        (lambda x: us.all_reduce(x, groups=[[0], [0]]), ArgumentError, "exactly once"),
        (lambda x: us.all_reduce(x, groups=[[17]]), ArgumentError, "exactly once"),
        (lambda x: us.all_reduce(x, groups=[0]), ArgumentTypeError, "list of lists"),
        (lambda x: us.broadcast(x, root=17), ArgumentError, "position in the group"),
        (lambda x: us.reduce_scatter(x, "max"), ValueError, "'max'"),
        (lambda x: us.permute(x, [(0, 17)]), ArgumentError, "targets"),
        (lambda x: us.permute(x, [(0, 0), (0, 0)]), ArgumentError, "sources"),
        (lambda x: us.permute(x, [0]), ArgumentTypeError, "source, target"),
        (lambda x: us.all_reduce("text"), TypeError, "array"),
    ],
)
def test_wrong_arguments(world, call, error, text):
    with pytest.raises(error, match=text):
        us.spmd(call)(us.ones(4))


def test_groups_must_be_of_one_size(four):
    with pytest.raises(ArgumentError, match="one size"):
        us.spmd(lambda x: us.all_reduce(x, groups=[[0, 1, 2], [3]]))(us.ones(4))


@pytest.mark.parametrize("op", [us.reduce_scatter, us.all_to_all])
def test_axis_0_must_be_divisible(two, op):
    with pytest.raises(ShapeError, match=r"2 divides, got shape \(3,\)"):
        us.spmd(op)(us.ones(3))
    with pytest.raises(ShapeError, match=r"got shape \(\)"):
        us.spmd(op)(us.asarray(1.0))


def test_arrays_of_another_backend_are_refused(two):
    torch = pytest.importorskip("torch")
    if two.backend == "torch":
        pytest.skip("its own")
    with pytest.raises(MixedBackendsError, match=r"us\.convert"):
        us.spmd(lambda: us.all_reduce(torch.ones(2)))()


# Without a world


def test_without_a_world_each_is_the_identity(backend):
    x = us.ones((2, 3))
    for call in (us.all_reduce, us.all_gather, us.reduce_scatter, us.broadcast, us.all_to_all):
        assert call(x) is x
    assert us.all_reduce(x, async_op=True).wait() is x
    assert us.permute(x, [(0, 0)]) is x
    assert us.to_numpy(us.permute(x, [])).sum() == 0
    assert us.to_numpy(us.all_gather(us.asarray(2.0))).shape == (1,)
    assert us.replica_index() == 0
    assert us.all_gather_object("a") == ["a"]
    assert us.broadcast_object("a") == "a"
    us.barrier()


def test_outside_spmd_in_a_world_of_several_in_one_process_is_an_error(two):
    if two.process_count > 1:
        pytest.skip("this process is one replica")
    with pytest.raises(StateError, match=r"us\.spmd"):
        us.all_reduce(us.ones(2))
    with pytest.raises(StateError, match=r"us\.spmd"):
        us.replica_index()

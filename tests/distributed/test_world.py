"""Worlds: made, laid out, filled, emptied, ended and made again, the same on every engine."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import unisync as us
from unisync import _context
from unisync.backends._workers import cores
from unisync.backends.numpy import _blas
from unisync.errors import ArgumentError, ArgumentTypeError, ShapeError, StateError, TraceError, UnknownNameError


def host(tree):
    return us.tree.map(us.to_numpy, tree)


# What a world says of itself


def test_attributes(world):
    assert world.local_replicas == world.size == len(world.devices)
    assert (world.process_index, world.process_count) == (0, 1)
    assert world.backend == us.current_backend()
    assert world.engine in ("threads", "shard_map", "mirrored")
    assert world.axes == {"data": world.size}
    assert world.device == world.devices[0]
    assert _context.world() is world
    assert f"size={world.size}" in repr(world)


def test_one_replica_is_the_default_on_a_cpu(backend):
    with us.init_distributed(device="cpu") as world:
        assert world.size == 1


@pytest.mark.parametrize(
    ("mode", "axes", "groups"),
    [
        ("data_parallel", {"data": 4}, {"data": [[0, 1, 2, 3]]}),
        ("model_parallel", {"model": 4}, {"model": [[0, 1, 2, 3]]}),
        ({"model": 2, "data": 2}, {"data": 2, "model": 2}, {"data": [[0, 2], [1, 3]], "model": [[0, 1], [2, 3]]}),
        ({"data": 4, "model": 1}, {"data": 4, "model": 1}, {"data": [[0, 1, 2, 3]], "model": [[0], [1], [2], [3]]}),
    ],
)
def test_axes_and_their_groups(mode, axes, groups):
    with us.backend("numpy"), us.init_distributed(replicas=4, mode=mode) as world:
        assert list(world.axes.items()) == list(axes.items())
        assert {axis: world.groups(axis) for axis in axes} == groups


def test_the_groups_of_an_axis_in_a_collective(backend):
    with us.init_distributed(mode={"data": 2, "model": 2}, device="cpu") as world:
        assert world.size == 4

        def fn(x):
            return [us.all_reduce(x, "sum", groups=world.groups(axis)) for axis in ("data", "model")]

        got = us.spmd(fn)(world.scatter(np.asarray([1.0, 2.0, 4.0, 8.0])))
        assert [[float(x[0]) for x in pair] for pair in host(list(got))] == [[5, 3], [10, 3], [5, 12], [10, 12]]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"replicas": 0}, ArgumentError, "at least 1"),
        ({"replicas": -2}, ArgumentError, "at least 1"),
        ({"replicas": 2.0}, ArgumentTypeError, "whole number"),
        ({"replicas": True}, ArgumentTypeError, "whole number"),
        ({"replicas": 2, "mode": "data"}, UnknownNameError, "data_parallel"),
        ({"replicas": 2, "mode": {"rows": 2}}, UnknownNameError, "'data', 'model'"),
        ({"replicas": 2, "mode": {"data": 0}}, ArgumentError, "at least 1"),
        ({"replicas": 2, "mode": {"data": 3}}, ArgumentError, "product"),
        ({"replicas": 2, "mode": {}}, ArgumentTypeError, "dict of axes"),
        ({"replicas": 2, "mode": 2}, ArgumentTypeError, "dict of axes"),
        ({"replicas": 2, "engine": "thread"}, UnknownNameError, "engine"),
        ({"replicas": 2, "timeout_s": 0}, ArgumentError, "positive"),
    ],
)
def test_wrong_arguments(backend, arguments, error, text):
    with pytest.raises(error, match=text):
        us.init_distributed(**{"device": "cpu", **arguments})
    assert _context.world() is None


def test_a_wrong_device(backend):
    with pytest.raises((ArgumentError, UnknownNameError), match="device"):
        us.init_distributed(replicas=2, device="abacus")


def test_an_unknown_axis(two):
    with pytest.raises(UnknownNameError, match="'data'"):
        two.groups("model")


# Into the replicas and back


def test_scatter_gives_contiguous_slices(world):
    n = world.size
    batch = {"x": np.arange(24.0).reshape(12, 2), "y": us.arange(4)}
    parts = world.scatter(batch)
    assert isinstance(parts, us.PerReplica)
    assert len(parts) == n
    for r in range(n):
        np.testing.assert_array_equal(us.to_numpy(parts[r]["x"]), batch["x"][r * 12 // n : (r + 1) * 12 // n])
        np.testing.assert_array_equal(us.to_numpy(parts[r]["y"]), np.arange(4)[r * 4 // n : (r + 1) * 4 // n])
        assert world.backend == us.namespace(parts[r]["x"]).NAME


def test_gather_undoes_scatter(world, rng):
    batch = {"x": rng.normal(size=(8, 3)), "y": [np.arange(4)]}
    back = host(world.gather(world.scatter(batch)))
    np.testing.assert_array_equal(back["x"], batch["x"])
    np.testing.assert_array_equal(back["y"][0], batch["y"][0])


def test_gather_stacks_scalars(world):
    got = world.gather(us.spmd(lambda: us.asarray(us.replica_index()))())
    np.testing.assert_array_equal(us.to_numpy(got), np.arange(world.size))


def test_first(world):
    assert us.to_numpy(world.first(world.scatter(np.arange(4)))).tolist() == list(range(4 // world.size))


def test_scatter_needs_a_divisible_axis(two):
    with pytest.raises(ShapeError, match=r"`y` must .* 2 replicas divide, got shape \(3,\)\. Try"):
        two.scatter({"x": np.ones(4), "y": np.ones(3)})
    with pytest.raises(ShapeError, match=r"shape \(\).*world\.replicate"):
        two.scatter({"x": 2.0})


def test_replicate_gives_each_its_own_copy(world):
    tree = {"w": us.ones((2,)), "n": 3, "h": np.zeros(3)}
    copies = world.replicate(tree)
    assert len(copies) == world.size
    for copy in copies:
        assert us.to_numpy(copy["w"]).tolist() == [1, 1]
        assert int(us.to_numpy(copy["n"])) == 3
        assert world.backend == us.namespace(copy["h"]).NAME
    if world.engine == "threads":
        copies[0]["w"][:] = 7
        copies[0]["h"][:] = 7
        assert us.to_numpy(tree["w"]).tolist() == [1, 1]
        assert tree["h"].tolist() == [0, 0, 0]
        assert all(us.to_numpy(copy["w"]).tolist() == [1, 1] for copy in copies[1:])


@pytest.mark.parametrize("call", ["first", "gather"])
def test_only_per_replica_values_come_out(two, call):
    with pytest.raises(ArgumentTypeError, match=r"us\.PerReplica, got dict"):
        getattr(two, call)({"a": 1})


# spmd


def test_arguments_of_both_kinds(world):
    def fn(x, scale, *, shift, table):
        return {"y": x * scale + shift + table["t"][0], "r": us.asarray(us.replica_index())}

    x = np.arange(4.0)
    shift = world.scatter(np.arange(world.size) * 10.0)
    got = us.spmd(fn)(world.scatter(x), 2.0, shift=shift, table={"t": (us.asarray(0.5, dtype="float64"),)})
    assert len(got) == world.size
    expected = x.reshape(world.size, -1) * 2 + 10 * np.arange(world.size)[:, None] + 0.5
    np.testing.assert_array_equal(np.stack([us.to_numpy(t["y"]) for t in got]), expected)
    assert [int(us.to_numpy(t["r"])) for t in got] == list(range(world.size))


def test_results_feed_the_next_call(world):
    add = us.spmd(lambda x, y: x + y)
    x = world.scatter(np.arange(4.0))
    for _ in range(3):
        x = add(x, x)
    np.testing.assert_array_equal(us.to_numpy(world.gather(x)), 8 * np.arange(4.0))


def test_replicas_see_the_worlds_backend(world):
    names = us.spmd(lambda: us.tree.map(us.asarray, {us.current_backend(): us.ones(1)}))()
    assert [list(t) for t in names] == [[world.backend]] * world.size


def test_a_per_replica_value_inside_a_tree_is_refused(two):
    x = two.scatter(np.arange(4.0))
    with pytest.raises(ArgumentTypeError, match=r"0 must be a us\.PerReplica or hold none, got a dict"):
        us.spmd(lambda tree: tree["x"])({"x": x})
    with pytest.raises(ArgumentTypeError, match="'tree' must"):
        us.spmd(lambda tree: tree)(tree=[x])


def test_a_per_replica_value_of_another_world_is_refused(two):
    x = us.PerReplica([us.ones(1)] * 3)
    with pytest.raises(ArgumentTypeError, match="each of the 2 replicas"):
        us.spmd(lambda x: x)(x)


def test_spmd_needs_a_world(backend):
    with pytest.raises(StateError, match=r"us\.init_distributed"):
        us.spmd(lambda x: x)(us.ones(1))


def test_spmd_does_not_nest(two):
    with pytest.raises(StateError, match="outside replicas"):
        us.spmd(lambda: us.spmd(lambda: us.ones(1))())()
    with pytest.raises(StateError, match="outside replicas"):
        us.spmd(lambda: us.init_distributed(replicas=2))()


def test_an_error_in_fn_comes_out_as_it_is(world):
    def fn(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        us.spmd(fn)(us.ones(1))
    assert [us.to_numpy(x).tolist() for x in us.spmd(us.all_reduce)(us.ones(1))] == [[1.0]] * world.size


def test_a_function_of_spmd_serves_world_after_world(backend):
    total = us.spmd(lambda x: us.all_reduce(x, "sum"))
    for n in (2, 1, 4):
        with us.init_distributed(replicas=n, device="cpu") as world:
            assert us.to_numpy(world.first(total(us.ones(1)))).tolist() == [n]


# The end


def test_a_new_world_ends_the_previous(backend):
    first = us.init_distributed(replicas=2, device="cpu")
    with us.init_distributed(replicas=1, device="cpu") as second:
        assert _context.world() is second
        with pytest.raises(StateError, match="ended"):
            first.scatter(np.ones(2))
    assert _context.world() is None
    first.end()
    second.end()


def test_fifty_worlds(backend):
    def total():
        return us.all_reduce(us.ones(1), "sum")

    us.init_distributed(replicas=2, device="cpu").end()
    before = threading.active_count()
    for i in range(50 if backend in ("numpy", "torch") else 5):
        n = (2, 4, 1)[i % 3]
        with us.init_distributed(replicas=n, device="cpu") as world:
            assert us.to_numpy(world.first(us.spmd(total)())).tolist() == [n]
    assert threading.active_count() == before


# Threads of mathematics: replicas that each use all cores stand in each other's way


def test_numpy_replicas_share_the_cores():
    controls = _blas._controls()
    if not controls:
        pytest.skip("this NumPy brought no OpenBLAS along")
    share = max(1, cores() // 2)
    before = [get() for get, _ in controls]
    try:
        for _, put in controls:
            put(share + 1)
        with us.backend("numpy"), us.init_distributed(replicas=2):
            us.spmd(us.barrier)()
            assert {get() for get, _ in controls} == {share}
        assert {get() for get, _ in controls} == {share + 1}
        with us.backend("numpy"), us.init_distributed(replicas=1):
            us.spmd(us.barrier)()
            assert {get() for get, _ in controls} == {share + 1}
    finally:
        for (_, put), count in zip(controls, before, strict=True):
            put(count)


def test_a_numpy_of_another_build_shares_the_cores_by_threadpoolctl(monkeypatch):
    pytest.importorskip("threadpoolctl")
    controls = _blas._controls()
    if not controls:
        pytest.skip("this NumPy brought no OpenBLAS along")
    share = max(1, cores() // 2)
    before = [get() for get, _ in controls]
    monkeypatch.setattr(_blas, "_controls", list)
    try:
        for _, put in controls:
            put(share + 1)
        with us.backend("numpy"), us.init_distributed(replicas=2):
            us.spmd(us.barrier)()
            assert {get() for get, _ in controls} == {share}
        assert {get() for get, _ in controls} == {share + 1}
    finally:
        for (_, put), count in zip(controls, before, strict=True):
            put(count)


def test_torch_replicas_share_the_cores():
    torch = pytest.importorskip("torch")
    share = max(1, cores() // 2)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(share + 1)
        with us.backend("torch"), us.init_distributed(replicas=2):
            assert list(us.spmd(torch.get_num_threads)()) == [share] * 2
        assert torch.get_num_threads() == share + 1
    finally:
        torch.set_num_threads(before)


# Misuse


def test_a_world_that_cannot_be_made_leaves_the_one_there_is(two):
    for wrong in ({"engine": "nccl"}, {"device": "tpu9"}, {"device": 3}):
        with pytest.raises((ArgumentError, ArgumentTypeError, UnknownNameError)):
            us.init_distributed(replicas=2, **wrong)
    assert _context.world() is two
    assert host(two.gather(us.spmd(lambda x: us.all_reduce(x, "sum"))(two.scatter(np.arange(2.0))))).tolist() == [1, 1]


@pytest.mark.parametrize("value", ["1", True])
def test_the_timeout_must_be_a_number(value):
    with pytest.raises(ArgumentTypeError, match="timeout_s"):
        us.init_distributed(replicas=2, timeout_s=value)


def test_per_replica_values_are_neither_replicated_nor_returned(two):
    value = two.scatter(np.arange(2.0))
    with pytest.raises(ArgumentTypeError, match="PerReplica"):
        two.replicate({"x": value})
    with pytest.raises(ArgumentTypeError, match="PerReplica"):
        us.spmd(lambda x: {"x": value})(value)


def test_a_world_cannot_be_ended_by_a_replica(two):
    with pytest.raises(StateError, match=r"inside us\.spmd"):
        us.spmd(lambda x: (two.end(), x)[1])(us.ones(1))
    assert _context.world() is two


def test_the_engines_functions_do_not_outlive_the_world(backend):
    with us.init_distributed(replicas=2, device="cpu") as world:
        run = world._engine.spmd(lambda x: us.all_reduce(x, "sum"))
        run(us.ones(1))
    with pytest.raises(StateError, match="end"):
        run(us.ones(1))


def test_empty_arrays_in_every_collective(world):
    def fn(x):
        empty = us.zeros((0, 3))
        twice = us.reshape(x, (world.size, -1))[:, :0]
        return [
            us.all_reduce(empty, "sum"),
            us.all_reduce(empty, "max"),
            us.all_gather(empty),
            us.all_gather(twice),
            us.reduce_scatter(empty, "sum"),
            us.reduce_scatter(twice, "sum"),
            us.broadcast(empty),
            us.all_to_all(empty),
            us.all_to_all(twice),
            us.permute(empty, [(0, world.size - 1)]),
        ]

    n = world.size
    shapes = [tuple(x.shape) for x in us.spmd(fn)(us.ones(2 * n))[0]]
    assert shapes == [(0, 3)] * 3 + [(n * n, 0), (0, 3), (1, 0), (0, 3), (0, 3), (n, 0), (0, 3)]


def test_a_derivative_through_spmd_is_right_or_refused(two):
    def loss(x):
        return us.sum(us.spmd(lambda y: us.all_reduce(y, "sum"))(x)[0])

    try:
        found = us.grad(loss)(us.ones(2))
    except (StateError, TraceError):
        return
    assert us.to_numpy(found).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("groups", [[[0.5, 1]], [["0", "1"]]])
def test_groups_are_of_whole_numbers(two, groups):
    with pytest.raises(ArgumentTypeError, match="groups"):
        us.spmd(lambda x: us.all_reduce(x, groups=groups))(us.ones(1))

"""The engine "mirrored": devices, programs, derivatives, what it refuses, and worlds made again."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import unisync as us
from unisync import _context, errors
from unisync._per_replica import PerReplica, parts

tf = pytest.importorskip("tensorflow")
from unisync.backends.tensorflow import _combine, _fast, engines  # noqa: E402


@pytest.fixture(autouse=True)
def tensorflow():
    with us.backend("tensorflow"):
        yield


@pytest.fixture
def engine():
    """An engine of three replicas, without a world."""
    made = engines.make_engine(None, 3, "cpu", 60.0)
    yield made
    made.end()


def values(result: PerReplica) -> list:
    return [us.tree.map(lambda x: np.asarray(x).tolist(), each) for each in result]


def of_replicas(engine, *arrays) -> PerReplica:
    return engine.place([np.asarray(each, np.float32) for each in arrays])


# Devices


def in_process(code: str, **environment: str) -> str:
    """What a new process prints."""
    run = subprocess.run(
        [sys.executable, "-c", "import unisync as us; us.set_backend('tensorflow')\n" + code],
        env={k: v for k, v in os.environ.items() if k != "UNISYNC_TF_DEVICES"} | environment,
        cwd=Path(us.__file__).parent.parent, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


COUNT = "import tensorflow as tf; print(len(tf.config.list_logical_devices('CPU')))"


def test_devices_are_reserved_by_the_first_world_and_not_by_loading():
    assert in_process(f"us.init_distributed(replicas=2).end(); us.init_distributed(replicas=4).end(); {COUNT}") == "4"


def test_one_replica_reserves_nothing_and_more_are_then_an_error_with_the_cure():
    code = (
        f"us.init_distributed(replicas=1).end(); us.ones(1); {COUNT}\n"
        "try:\n    us.init_distributed(replicas=2)\nexcept us.errors.StateError as error:\n    print(error)"
    )
    printed = in_process(code)
    assert printed.startswith("1\n")
    assert "at most the 1 CPU devices" in printed
    assert "us.init_distributed(replicas=2) before the first array" in printed
    assert "UNISYNC_TF_DEVICES=2" in printed


def test_the_environment_reserves_devices_at_load():
    code = f"us.ones(1); world = us.init_distributed(replicas=3); print(world.size, end=' '); {COUNT}"
    assert in_process(code, UNISYNC_TF_DEVICES="3") == "3 3"


@pytest.mark.parametrize("text", ["two", "0", "-1"])
def test_a_bad_number_of_devices_is_an_error(monkeypatch, text):
    from unisync import _config

    monkeypatch.setenv("UNISYNC_TF_DEVICES", text)
    with pytest.raises(errors.ArgumentError, match="UNISYNC_TF_DEVICES"):
        _config.tf_devices_from_environment()


def test_unknown_engines_and_devices_are_errors():
    with pytest.raises(errors.UnknownNameError, match="mirrored"):
        engines.make_engine("mirored", 1, None, 60.0)
    with pytest.raises(errors.UnknownNameError, match="gpu"):
        engines.make_engine(None, 1, "tpu", 60.0)


def test_trees_are_placed_on_their_devices(engine):
    placed = engine.place([{"a": np.full(2, i), "tag": "x", "count": i} for i in range(3)])
    assert [each["a"].device for each in placed] == list(engine.devices)
    assert len(set(engine.devices)) == 3
    assert [each["count"] for each in placed] == [0, 1, 2]
    copied = engine.replicate({"a": us.ones(2)})
    assert [each["a"].device for each in copied] == list(engine.devices)


def test_host_memory_is_not_shared(engine):
    host = np.ones(1 << 16, np.float32)
    copied = engine.replicate(host)
    host[:] = 7
    assert all(float(x[0]) == 1.0 for x in copied)


def test_the_strategy_serves_the_users_own_code(engine):
    assert isinstance(engine.strategy, tf.distribute.MirroredStrategy)

    def own(x):
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, x)

    assert values(engine.spmd(own)(of_replicas(engine, 1, 2, 3))) == [6.0] * 3


def test_strategies_of_one_process_have_keys_of_their_own():
    def own(x):
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, x)

    for size in (2, 4, 3, 2):
        with us.backend("tensorflow"), us.init_distributed(replicas=size, device="cpu") as world:
            out = us.spmd(own)(world.scatter(np.ones((size, 1), np.float32)))
            assert [float(x[0, 0]) for x in out] == [size] * size


# Programs


def test_one_program_per_structure_shapes_and_dtypes(engine):
    traces = []

    def fn(x, scale, *, name="a"):
        traces.append(name)
        return engine.all_reduce(x, "sum", None) * scale

    run = engine.spmd(fn)
    x = of_replicas(engine, [1.0], [2.0], [3.0])
    assert values(run(x, 2.0)) == [[12.0]] * 3
    assert values(run(x, 3.0)) == [[18.0]] * 3  # a new number is no new program
    assert len(traces) == 3
    out = run(x, us.asarray(1.0))
    assert len(traces) == 3
    run(out, 1.0)
    run(of_replicas(engine, [1.0], [2.0], [3.0]), 1.0)
    assert len(traces) == 3
    run(x, 2.0, name="b")
    assert len(traces) == 6
    run(of_replicas(engine, [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]), 2.0)
    assert len(traces) == 9


def test_numbers_that_python_needs_compile_anew(engine):
    run = engine.spmd(lambda x, n: us.concat([x] * n))
    x = of_replicas(engine, [1.0], [2.0], [3.0])
    assert values(run(x, 2)) == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    assert values(run(x, 3))[0] == [1.0, 1.0, 1.0]


def test_results_may_be_any_tree_and_differ_between_replicas(engine):
    def fn(x):
        index = engine.replica_index()
        out = {"x": x, "index": index, "name": f"replica {index}", "none": None}
        return out | ({"more": (x, 1.5)} if index == 1 else {})

    out = engine.spmd(fn)(of_replicas(engine, 1, 2, 3))
    assert [each["name"] for each in out] == ["replica 0", "replica 1", "replica 2"]
    assert [int(each["index"]) for each in out] == [0, 1, 2]
    assert [float(each["x"]) for each in out] == [1.0, 2.0, 3.0]
    assert float(out[1]["more"][1]) == 1.5
    assert values(engine.spmd(lambda t: t["x"] * 2)(out)) == [2.0, 4.0, 6.0]


def test_tuples_are_taken_apart_without_their_trees(engine):
    run = engine.spmd(lambda x, y: (x + y, {"b": y, "a": x}))
    x, y = of_replicas(engine, 1, 2, 3), of_replicas(engine, [10], [20], [30])
    first, second = parts(run(x, y))
    assert values(first) == [[11.0], [22.0], [33.0]]
    assert values(second) == [{"a": 1.0, "b": [10.0]}, {"a": 2.0, "b": [20.0]}, {"a": 3.0, "b": [30.0]}]
    again = engine.spmd(lambda x, t: x - t["b"])(first, second)
    assert values(again) == [[1.0], [2.0], [3.0]]


def test_shapes_known_only_when_it_runs(engine):
    out = engine.spmd(lambda x: x[x > 1.5])(of_replicas(engine, [1, 2], [2, 3], [0, 1]))
    assert values(out) == [[2.0], [2.0, 3.0], []]
    assert values(engine.spmd(lambda x: us.sum(x))(out)) == [2.0, 5.0, 0.0]


def test_arguments_of_other_worlds_are_refused(engine):
    with pytest.raises(errors.ArgumentTypeError, match="one tree per replica, 3, got 2"):
        engine.spmd(lambda x: x)(PerReplica([us.ones(1), us.ones(1)]))


def test_the_backend_and_scope_inside(engine):
    seen = []

    def fn(x):
        seen.append((us.current_backend(), _context.scope().index))
        return x

    with us.backend("numpy"):
        engine.spmd(fn)(of_replicas(engine, 1, 2, 3))
    assert seen == [("tensorflow", 0), ("tensorflow", 1), ("tensorflow", 2)]
    assert _context.scope() is None


# Collectives and derivatives


def test_lengths_may_differ_in_all_gather(engine):
    x = PerReplica([us.arange(i + 1, dtype="float32") for i in range(3)])
    assert values(engine.spmd(lambda x: engine.all_gather(x, None))(x)) == [[0, 0, 1, 0, 1, 2]] * 3
    weights = us.arange(6, dtype="float32")
    back = engine.spmd(us.grad(lambda x: us.sum(engine.all_gather(x, None) * weights)))(x)
    assert values(back) == [[0.0], [3.0, 6.0], [9.0, 12.0, 15.0]]


def test_lengths_may_differ_in_all_gather_of_trees():
    with us.init_distributed(replicas=2):
        trees = PerReplica([{"a": us.full(i + 1, i + 1.0), "b": us.full((i + 1, 2), i + 5.0)} for i in range(2)])
        for each in us.spmd(us.all_gather)(trees):
            assert np.asarray(each["a"]).tolist() == [1, 2, 2]
            assert np.asarray(each["b"]).tolist() == [[5, 5], [6, 6], [6, 6]]


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "uint32", "int32", "int64", "float64", "complex64"])
def test_dtypes_of_sums(engine, dtype):
    out = engine.spmd(lambda x: engine.all_reduce(x, "sum", None))(us.ones(2, dtype=dtype))
    assert out[2].dtype.name == dtype
    assert np.asarray(out[2]).tolist() == [3, 3]


def test_sums_go_from_left_to_right(rng):
    terms = [rng.normal(size=100).astype(np.float32) * 10.0 ** (i % 5) for i in range(19)]
    expected = terms[0]
    for term in terms[1:]:
        expected = expected + term
    assert np.array_equal(_combine._sum([tf.constant(t) for t in terms]), expected)


DERIVATIVES = {  # collective of a (3,) array → the derivative of the sum of its squares, from the arrays of all
    "all_reduce": (lambda e, x: e.all_reduce(x, "sum", None), lambda a: 2 * 3 * a.sum(0) + 0 * a),
    "mean": (lambda e, x: e.all_reduce_mean(x, None), lambda a: 2 * a.mean(0) + 0 * a),
    "all_gather": (lambda e, x: e.all_gather(x, None), lambda a: 2 * 3 * a),
    "reduce_scatter": (lambda e, x: e.reduce_scatter(x, None), lambda a: 2 * a.sum(0) + 0 * a),
    "broadcast": (lambda e, x: e.broadcast(x, 1, None), lambda a: 6 * a * np.array([[0], [1], [0]])),
    "all_to_all": (lambda e, x: e.all_to_all(x, None), lambda a: 2 * a),
    "permute": (lambda e, x: e.permute(x, [(0, 2), (1, 0)]), lambda a: 2 * a * np.array([[1], [1], [0]])),
}


@pytest.mark.parametrize("name", DERIVATIVES)
@pytest.mark.parametrize("record", ["tape", "public"])
def test_derivatives(engine, rng, monkeypatch, name, record):
    if record == "public":
        monkeypatch.setattr(_fast, "record_operation", None)
    collective, expected = DERIVATIVES[name]
    arrays = rng.normal(size=(3, 3)).astype(np.float32)
    back = engine.spmd(us.grad(lambda x: us.sum(collective(engine, x) ** 2)))(engine.place(list(arrays)))
    np.testing.assert_allclose([np.asarray(g) for g in back], expected(arrays), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_from_outside(engine, rng, name):
    """A tape around the whole program sees the ops themselves."""
    collective, expected = DERIVATIVES[name]
    arrays = rng.normal(size=(3, 3)).astype(np.float32)
    inputs = [tf.constant(a) for a in arrays]
    run = engine.spmd(lambda x: us.sum(collective(engine, x) ** 2))
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        losses = list(run(PerReplica(inputs)))
    found = tape.gradient(losses, inputs, unconnected_gradients="zero")
    np.testing.assert_allclose([np.asarray(g) for g in found], expected(arrays), rtol=1e-5, atol=1e-6)


def test_second_derivatives(engine):
    def inner(x):
        return engine.all_reduce(x, "sum", None) ** 2

    run = engine.spmd(us.grad(lambda x: us.grad(inner)(x)))
    assert values(run(of_replicas(engine, 1, 2, 3))) == [18.0] * 3  # of 2 · 3 · (a + b + c), three times


def test_derivatives_of_what_has_none_are_refused(engine):
    run = engine.spmd(us.grad(lambda x: engine.all_reduce(x, "max", None)))
    with pytest.raises(errors.ArgumentError, match="'sum' or 'mean'"):
        run(of_replicas(engine, 1, 2, 3))


def test_collectives_in_recomputed_functions(engine):
    def loss(x):
        return us.sum(us.recompute(lambda y: us.tanh(engine.all_reduce(y, "sum", None)) * y)(x))

    def plain(x):
        return us.sum(us.tanh(engine.all_reduce(x, "sum", None)) * x)

    x = of_replicas(engine, [0.1, 0.2], [0.2, 0.3], [-0.4, 0.1])
    found, expected = engine.spmd(us.grad(loss))(x), engine.spmd(us.grad(plain))(x)
    np.testing.assert_allclose(values(found), values(expected), rtol=1e-6)


def test_sums_by_the_strategys_own_ops(engine, monkeypatch):
    """The way of accelerators, here by collective ops of the CPU."""
    x = of_replicas(engine, [1, 2], [3, 4], [5, 6])
    used = []
    by_strategy = _combine.Combine._reduced_by_strategy

    def noted(self, tensors, op):
        used.append(op)
        return by_strategy(self, tensors, op)

    monkeypatch.setattr(_combine.Combine, "_reduced_by_strategy", noted)
    monkeypatch.setattr(_combine, "_on_accelerators", lambda devices: True)
    assert values(engine.spmd(lambda x: engine.all_reduce(x, "sum", None))(x)) == [[9.0, 12.0]] * 3
    assert values(engine.spmd(lambda x: engine.all_reduce_mean(x, None))(x)) == [[3.0, 4.0]] * 3
    assert used == ["sum", "mean"]


# What does not match, and what is refused


def other_op(engine, x, index):
    return engine.all_gather(x, None) if index == 1 else engine.all_reduce(x, "sum", None)


def other_shape(engine, x, index):
    return engine.all_reduce(us.concat([x, x]) if index == 1 else x, "sum", None)


def other_dtype(engine, x, index):
    return engine.all_reduce(us.astype(x, "float64") if index == 1 else x, "sum", None)


def other_root(engine, x, index):
    return engine.broadcast(x, index, None)


def skips(engine, x, index):
    return x if index == 1 else engine.all_reduce(x, "sum", None)


def one_more(engine, x, index):
    y = engine.all_reduce(x, "sum", None)
    return engine.all_reduce(y, "max", None) if index == 1 else y


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (other_op, ["replica 0: all_reduce(sum) of float32 (1,)", "replica 1: all_gather of float32 (1,)"]),
        (other_shape, ["replica 1: all_reduce(sum) of float32 (2,)"]),
        (other_dtype, ["replica 1: all_reduce(sum) of float64 (1,)"]),
        (other_root, ["replica 0: broadcast(0)", "replica 2: broadcast(2)"]),
        (skips, ["replica 0: all_reduce(sum)", "replica 1: no more\n"]),
        (one_more, ["replica 0: no more after all_reduce(sum)", "replica 1: all_reduce(max)"]),
    ],
)
def test_mismatches_name_each_replica_and_line(engine, fn, words):
    threads = threading.active_count()
    x = of_replicas(engine, [1], [2], [3])
    with pytest.raises(errors.CollectiveMismatchError) as caught:
        engine.spmd(lambda x: fn(engine, x, engine.replica_index()))(x)
    for word in words:
        assert word in str(caught.value)
    assert f"{__file__}:{fn.__code__.co_firstlineno + 1}" in str(caught.value)
    assert threading.active_count() == threads
    assert values(engine.spmd(lambda x: engine.all_reduce(x, "sum", None))(x)) == [[6.0]] * 3


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_replica_that_raises_comes_first(engine, index):
    def fn(x):
        y = engine.all_reduce(x, "sum", None)
        if engine.replica_index() == index:
            raise KeyError("mine")
        return engine.all_reduce(y, "sum", None)

    threads = threading.active_count()
    with pytest.raises(KeyError, match="mine") as caught:
        engine.spmd(fn)(of_replicas(engine, 1, 2, 3))
    assert caught.value.__notes__ == [f"in replica {index}"]
    assert threading.active_count() == threads


def test_replicas_cannot_meet_in_a_program_within_theirs(engine):
    x = of_replicas(engine, 1, 2, 3)

    def in_loop(x):
        return us.scan(lambda c, _: (engine.all_reduce(c, "sum", None), None), x, None, length=100)[0]

    def in_function(x):
        return tf.function(lambda y: engine.all_reduce(y, "sum", None), autograph=False)(x)

    for fn in (in_loop, in_function):
        with pytest.raises(errors.TraceError, match="loop, branch or"):
            engine.spmd(fn)(x)
    unrolled = engine.spmd(lambda x: us.scan(lambda c, _: (engine.all_reduce(c, "sum", None), None), x, None, length=3))
    assert [float(each[0]) for each in unrolled(x)] == [54.0] * 3


def test_objects_are_refused(engine):
    for call in (lambda: engine.all_gather_object(1, None), lambda: engine.broadcast_object(1, 0, None)):
        with pytest.raises(errors.TraceError, match="knows no Python objects"):
            engine.spmd(lambda x, call=call: call())(us.ones(1))


def test_collectives_belong_to_the_replicas_own_thread(engine):
    caught = []

    def elsewhere(x):
        def call():
            try:
                engine.all_reduce(x, "sum", None)
            except errors.StateError as error:
                caught.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return x

    engine.spmd(elsewhere)(of_replicas(engine, 1, 2, 3))
    assert len(caught) == 3


def test_spmd_is_refused_in_compiled_functions(engine):
    run = engine.spmd(lambda x: x)
    with pytest.raises(errors.TraceError, match="compiled as a whole"):
        us.jit(lambda x: run(x)[0])(us.ones(1))


# Reports and ends


def test_the_report_knows_the_step_and_the_sites():
    with us.init_distributed(replicas=2) as world:
        assert "no step has run" in world._engine.report()

        def training_step(x):
            return us.all_reduce(us.all_gather(x))

        run = us.spmd(training_step)
        for _ in range(3):
            run(world.scatter(us.ones(4)))
        report = world._engine.report()
    line = training_step.__code__.co_firstlineno + 1
    assert "step 3 was" in report
    assert "training_step" in report
    assert f"replica 0: all_gather of float32 (2,) at {__file__}:{line}" in report
    assert f"replica 1: all_reduce(mean) of float32 (4,) at {__file__}:{line}" in report


def test_an_ended_engine_says_so():
    engine = engines.make_engine(None, 2, "cpu", 60.0)
    run = engine.spmd(lambda x: x)
    run(us.ones(1))
    engine.end()
    with pytest.raises(errors.StateError, match="after its end"):
        run(us.ones(1))


def test_private_names_of_tensorflow_are_there():
    """Each has a stand-in; this says when a release makes us use it."""
    assert _fast.record_operation is not None
    assert _fast.stop_recording is not None
    from tensorflow.python.eager.context import context

    assert callable(context().abort_collective_ops)
    assert isinstance(us.ones(1), tf.__internal__.EagerTensor)


def one_world() -> None:
    with us.init_distributed(replicas=2) as world:

        def step(x, w):
            return w - 0.1 * us.all_reduce(us.grad(lambda w: us.sum((x @ w) ** 2))(w))

        run, w = us.spmd(step), world.replicate(np.ones((4, 2), np.float32))
        for _ in range(2):
            w = run(world.scatter(np.ones((8, 4), np.float32)), w)


def resources() -> tuple[int, int]:
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="counts threads and descriptors in /proc")
def test_worlds_leave_no_threads_descriptors_or_graphs():
    def graphs() -> int:
        gc.collect()
        return sum(type(x).__name__ == "FuncGraph" for x in gc.get_objects())

    for _ in range(3):
        one_world()
    before, kept = resources(), graphs()
    for _ in range(20):
        one_world()
    threads, descriptors = resources()  # one that was just ending when `before` was counted may be gone
    assert threads <= before[0]
    assert descriptors <= before[1]
    assert graphs() <= kept


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads memory in /proc")
def test_a_thousand_worlds_leave_no_memory():
    code = (
        "import sys; sys.path.insert(0, 'tests/distributed')\n"
        "from test_tensorflow_engine import one_world, resources\n"
        "def anonymous():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return int(next(x for x in lines if x.startswith('RssAnon')).split()[1]) / 1024\n"
        "for i in range(1000):\n"
        "    one_world()\n"
        "    if i == 49: before = *resources(), anonymous()\n"
        "after = *resources(), anonymous()\n"
        "print(*before[:2], *after[:2], after[2] - before[2])"
    )
    threads, descriptors, threads_after, descriptors_after, growth = map(float, in_process(code).split())
    assert threads_after <= threads
    assert descriptors_after <= descriptors
    assert growth <= 20

"""What is TensorFlow's own in a launched world, run in two processes by ../test_tensorflow_launched.py."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import unisync as us
from unisync.errors import StateError, TraceError

tf = pytest.importorskip("tensorflow")


@pytest.fixture
def world(backend):
    with us.init_distributed(device="cpu") as made:
        yield made


def test_the_strategy_owns_the_cluster(world):
    engine = world._engine
    assert world.engine == "multi_worker"
    assert isinstance(engine.strategy, tf.distribute.MultiWorkerMirroredStrategy)
    assert engine.strategy.num_replicas_in_sync == world.size
    assert world.device == f"/job:worker/replica:0/task:{world.process_index}/device:CPU:0"
    with engine.strategy.scope():
        variable = tf.Variable(1.0)
    total = engine.strategy.run(
        lambda: tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, variable.read_value())
    )
    assert float(total) == world.size


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32", "uint64", "bfloat16", "complex128"])
def test_dtypes_that_the_raw_ops_lack(world, dtype):
    x = us.astype(us.asarray([1, 2, 100]) + world.process_index, dtype)

    def moved(x):
        return us.all_gather(x), us.broadcast(x, 1), us.all_to_all(us.concat([x, x])), us.permute(x, [(0, 1)])

    def wide(x):
        return us.to_numpy(us.astype(x, "complex128" if dtype.startswith("complex") else "float64")).tolist()

    for gathered, sent, exchanged, permuted in (moved(x), us.spmd(moved)(x)[0]):
        assert wide(gathered) == [1, 2, 100, 2, 3, 101]
        assert wide(exchanged) == [1, 2, 100, 2, 3, 101]
        assert wide(sent) == [2, 3, 101]
        assert wide(permuted) == ([1, 2, 100] if world.process_index == 1 else [0, 0, 0])
        assert us.dtype_of(gathered) == us.dtype_of(permuted) == dtype


@pytest.mark.parametrize("n", [1000, 300_001])
@pytest.mark.parametrize("op", ["sum", "mean", "max", "min", "prod"])
def test_gathered_and_ring_reductions_agree_and_are_the_same_on_all(world, op, n):
    arrays = [np.random.default_rng(r).normal(size=n).astype(np.float32) for r in range(world.size)]
    mine = us.asarray(arrays[world.process_index])
    model = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}[op](arrays, axis=0)
    for got in (us.all_reduce(mine, op), us.spmd(lambda x: us.all_reduce(x, op))(mine)[0]):
        np.testing.assert_allclose(us.to_numpy(got), model, rtol=1e-5, atol=1e-6)
        bits = us.to_numpy(got).tobytes()
        assert us.all_gather_object(bits) == [bits] * world.size


@pytest.mark.parametrize("columns", [2, 5000])
def test_uneven_all_gather_outside_spmd(world, columns):
    rank = world.process_index
    x = us.astype(us.reshape(us.arange(3 * rank * columns), (-1, columns)), "float64")
    tree = us.all_gather({"a": x, "b": us.ones(rank + 1)})
    np.testing.assert_array_equal(us.to_numpy(tree["a"]), np.arange(3 * columns).reshape(-1, columns))
    assert us.to_numpy(tree["b"]).tolist() == [1.0] * 3
    gradient = us.grad(lambda y: us.sum(us.all_gather(y) ** 2))(x)
    np.testing.assert_array_equal(us.to_numpy(gradient), 4 * us.to_numpy(x))


def test_collectives_of_one_program_in_any_mixture(world):
    def mixed(x):
        return [call(x) for call in (us.broadcast, us.all_gather, us.all_reduce, us.broadcast, us.all_to_all) * 3]

    x = us.ones(100_000)
    for result in us.spmd(mixed)(x)[0]:
        assert float(us.to_numpy(result).min()) == float(us.to_numpy(result).max()) == 1.0


def test_collectives_within_a_loop(world):
    def looped(x):
        return us.scan(lambda carry, _: (us.all_reduce(carry, "sum"), carry), x, us.arange(3))[0]

    assert us.to_numpy(us.spmd(looped)(us.ones(4))[0]).tolist() == [float(world.size**3)] * 4


def test_gradients_outside_spmd(world):
    x = us.asarray(float(world.process_index + 1))
    assert float(us.grad(lambda y: us.all_reduce(y, "sum") ** 2)(x)) == 12.0
    assert float(us.grad(us.grad(lambda y: us.all_reduce(y, "sum") ** 3))(x)) == 72.0
    with pytest.raises(Exception, match="gradient"):
        us.grad(lambda y: us.all_reduce(y, "max"))(x)


def test_compiled_functions_of_the_users_own_are_refused(world):
    for compile in (us.jit, functools.partial(tf.function, autograph=False)):
        with pytest.raises(TraceError, match=r"Try: us\.spmd"):
            compile(lambda x: us.all_reduce(x))(us.ones(2))
    with pytest.raises(TraceError, match=r"outside us\.spmd"):
        us.spmd(lambda x: [us.all_gather_object(1), x][1])(us.ones(2))


def test_another_kind_of_device_is_refused(world):
    with pytest.raises(StateError, match="same for all worlds"):
        us.init_distributed(device="gpu")

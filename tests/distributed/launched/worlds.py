"""What holds in a world of processes, tested in each of its processes at once (see test_launched.py)."""

from __future__ import annotations

import numpy as np
import pytest

import unisync as us
from unisync import _context
from unisync.distributed import joining
from unisync.errors import ArgumentError, ArgumentTypeError, ShapeError, StateError

PLACE = joining.place()
ENGINES = {"numpy": "mpi", "torch": "gloo", "jax": "distributed", "tensorflow": "multi_worker"}
IN_PROCESS = {"numpy": "threads", "torch": "threads", "jax": "shard_map", "tensorflow": "mirrored"}


@pytest.fixture
def all_processes(backend):
    """The launcher's world."""
    with us.init_distributed(device="cpu") as world:
        yield world


def host(tree):
    return us.tree.map(us.to_numpy, tree)


def test_attributes(all_processes):
    world = all_processes
    assert (world.size, world.process_index, world.process_count) == (PLACE.size, PLACE.rank, PLACE.size)
    assert world.local_replicas == len(world.devices) == 1
    assert world.engine == ENGINES[world.backend]
    assert world.axes == {"data": world.size}
    assert _context.world() is world
    assert us.all_gather_object(world.process_index) == list(range(world.size))


def test_the_launcher_wins_over_replicas(backend, capfd):
    with us.init_distributed(replicas=7) as world:
        assert world.size == PLACE.size
    with us.init_distributed(replicas=7):
        pass
    notices = [line for line in capfd.readouterr().err.splitlines() if "replicas=7" in line]
    assert len(notices) == (PLACE.rank == 0)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"mode": {"data": 7}}, ArgumentError, "product"),
        ({"engine": "nothing"}, ArgumentError, "engine"),
        ({"timeout_s": -1}, ArgumentError, "positive"),
    ],
)
def test_wrong_arguments(backend, arguments, error, text):
    with pytest.raises(error, match=text):
        us.init_distributed(**arguments)
    assert _context.world() is None


def test_engines_of_one_process_are_refused_with_the_reason(backend):
    with pytest.raises(ArgumentError, match=f"started {PLACE.size} .*engine='{ENGINES[backend]}'"):
        us.init_distributed(engine=IN_PROCESS[backend])


def test_its_engine_may_be_named(backend):
    with us.init_distributed(engine=ENGINES[backend], mode={"data": 1, "model": PLACE.size}) as world:
        assert world.axes == {"data": 1, "model": PLACE.size}
        assert world.groups("model") == [list(range(PLACE.size))]


def test_scatter_keeps_this_process_slice(all_processes):
    n, r = all_processes.size, all_processes.process_index
    batch = {"x": np.arange(24.0).reshape(12, 2), "y": us.arange(2 * n)}
    part = all_processes.scatter(batch)
    assert len(part) == 1
    np.testing.assert_array_equal(us.to_numpy(part[0]["x"]), batch["x"][r * 12 // n : (r + 1) * 12 // n])
    np.testing.assert_array_equal(us.to_numpy(part[0]["y"]), [2 * r, 2 * r + 1])
    assert all_processes.backend == us.namespace(part[0]["x"]).NAME
    with pytest.raises(ShapeError, match="divide"):
        all_processes.scatter(np.ones(2 * n + 1))


def test_gather_gives_all_to_all(all_processes, rng):
    batch = {"x": rng.normal(size=(4 * all_processes.size, 3)), "y": [np.arange(4 * all_processes.size)]}
    back = host(all_processes.gather(all_processes.scatter(batch)))
    np.testing.assert_array_equal(back["x"], batch["x"])
    np.testing.assert_array_equal(back["y"][0], batch["y"][0])
    index = us.spmd(lambda: us.asarray(us.replica_index()))()
    np.testing.assert_array_equal(us.to_numpy(all_processes.gather(index)), np.arange(all_processes.size))


def test_first_is_the_first_replicas_on_every_rank(all_processes):
    r = all_processes.process_index
    value = us.PerReplica([{"x": us.asarray([1.0, 2.0]) * r, "name": f"rank {r}", "n": r + 3, "nothing": None}])
    got = all_processes.first(value)
    assert us.to_numpy(got["x"]).tolist() == [0.0, 0.0]
    assert all_processes.backend == us.namespace(got["x"]).NAME
    assert (got["name"], got["n"], got["nothing"]) == ("rank 0", 3, None)


def test_replicate_gives_a_copy(all_processes):
    tree = {"w": us.ones((2,)), "n": 3, "h": np.zeros(3)}
    (copy,) = all_processes.replicate(tree)
    assert us.to_numpy(copy["w"]).tolist() == [1, 1]
    assert us.to_numpy(copy["h"]).tolist() == [0, 0, 0]


def test_collectives_outside_spmd(all_processes, rng):
    n, r = all_processes.size, all_processes.process_index
    arrays = [rng.normal(size=(2 * n, 3)) for _ in range(n)]
    x = us.asarray(arrays[r])
    np.testing.assert_allclose(us.to_numpy(us.all_reduce(x, "sum")), np.sum(arrays, 0), rtol=1e-12)
    np.testing.assert_allclose(us.to_numpy(us.all_reduce({"a": x})["a"]), np.mean(arrays, 0), rtol=1e-12)
    np.testing.assert_array_equal(us.to_numpy(us.all_reduce(x, "max", async_op=True).wait()), np.max(arrays, 0))
    np.testing.assert_array_equal(us.to_numpy(us.all_gather(x)), np.concatenate(arrays))
    np.testing.assert_array_equal(us.to_numpy(us.broadcast(x, n - 1)), arrays[n - 1])
    np.testing.assert_allclose(
        us.to_numpy(us.reduce_scatter(x, "sum")), np.sum(arrays, 0)[2 * r : 2 * r + 2], rtol=1e-12
    )
    np.testing.assert_array_equal(us.to_numpy(us.all_to_all(x)), np.concatenate([a[2 * r : 2 * r + 2] for a in arrays]))
    pairs = [(i, (i + 1) % n) for i in range(n)]
    np.testing.assert_array_equal(us.to_numpy(us.permute(x, pairs)), arrays[r - 1])
    us.barrier()
    assert int(us.to_numpy(us.asarray(us.replica_index()))) == r
    assert us.all_gather_object({"rank": r})[n - 1] == {"rank": n - 1}
    assert us.broadcast_object([r], 1) == [1]


def test_the_mean_is_the_default_and_the_same_on_all(all_processes, rng):
    x = us.asarray(rng.normal(size=1000).astype(np.float32)) * (0.1 + all_processes.process_index)
    total = us.to_numpy(us.all_reduce(x))
    everywhere = us.all_gather_object(total.tobytes())
    assert len(set(everywhere)) == 1


def test_spmd_runs_this_replica(all_processes):
    x = all_processes.scatter(np.arange(4.0 * all_processes.size))
    got = us.spmd(lambda x, scale: us.all_reduce(x * scale, "sum"))(x, 2.0)
    assert len(got) == 1
    expected = 2 * np.arange(4.0 * all_processes.size).reshape(all_processes.size, 4).sum(0)
    np.testing.assert_array_equal(us.to_numpy(got[0]), expected)
    with pytest.raises(ArgumentTypeError, match="each of the 1 replicas"):
        us.spmd(lambda x: x)(us.PerReplica([us.ones(1)] * 2))


def test_world_after_world(backend):
    for i in range(4):
        world = us.init_distributed(device="cpu")
        x = us.ones(3) * (world.process_index + 1)
        assert us.to_numpy(us.all_reduce(x, "sum")).tolist() == [sum(range(1, world.size + 1))] * 3
        if i % 2:
            world.end()
            world.end()
            assert us.to_numpy(us.all_reduce(x, "sum")).tolist() == us.to_numpy(x).tolist()
            with pytest.raises(StateError, match="ended"):
                world.first(us.PerReplica([x]))


def test_its_report(all_processes):
    us.all_reduce(us.ones(3))
    us.barrier()
    report = all_processes._engine.report()
    assert f"rank {all_processes.process_index} is at " in report
    assert f"rank {(all_processes.process_index + 1) % all_processes.size} is " in report
    us.barrier()


def test_sums_of_no_numbers_that_are_not_waited_for(all_processes):
    empty, tree = us.asarray(np.zeros(0, "float32")), {"a": us.asarray(np.zeros((3, 0), "float32"))}
    assert tuple(us.all_reduce(empty, "sum", async_op=True).wait().shape) == (0,)
    assert tuple(us.all_reduce(tree, async_op=True).wait()["a"].shape) == (3, 0)

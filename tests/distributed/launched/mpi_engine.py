"""What is MPI's own in a world of processes, tested in each of them at once (see test_mpi_launched.py)."""

from __future__ import annotations

import atexit
import hashlib
import os

import numpy as np
import pytest
from mpi4py import MPI

import unisync as us
from unisync.errors import CollectiveMismatchError

LARGE = 300_000  # numbers, whose memory is used again


@pytest.fixture
def world():
    with us.backend("numpy"), us.init_distributed() as made:
        yield made


@pytest.fixture
def rank(world):
    return world.process_index


def same_everywhere(array):
    return len(set(us.all_gather_object(hashlib.sha256(array.tobytes()).hexdigest()))) == 1


def drawn(rank, *shape):
    return np.random.default_rng(rank).normal(size=shape)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("length", [1, 1000, LARGE])
def test_sums_have_the_same_bits_on_every_rank(world, rank, dtype, length):
    x = (drawn(rank, length) * 10.0 ** drawn(rank + 50, length)).astype(dtype)
    total = us.all_reduce(x, "sum")
    assert same_everywhere(total)
    np.testing.assert_allclose(total, sum(us.all_gather_object(x)), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_largest_is_nan_on_every_rank_if_one_is(world, rank, op, dtype):
    x = drawn(rank, 100).astype(dtype)
    x[rank] = np.nan
    found = us.all_reduce(x, op)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(found)), range(world.size))
    assert same_everywhere(found)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers(world, dtype):
    x = np.arange(5, dtype=dtype)
    np.testing.assert_array_equal(us.all_reduce(x, "sum"), x * world.size)
    np.testing.assert_array_equal(us.all_reduce(x, "max"), x)
    np.testing.assert_array_equal(us.reduce_scatter(us.tile(x, (world.size,)), "sum"), x * world.size)


def test_arrays_that_are_not_contiguous(world, rank):
    whole = drawn(rank, 6, 4)
    for x in (whole.T, whole[::2], whole[:, 1:3], np.broadcast_to(whole[0], (6, 4)), whole.astype(">f8")[:, 0]):
        expected = sum(us.all_gather_object(np.asarray(x, "float64")))
        np.testing.assert_allclose(us.all_reduce(x, "sum"), expected)
        np.testing.assert_allclose(us.broadcast(x), us.all_gather_object(x)[0])
        assert us.all_gather(x).shape == (world.size * x.shape[0], *x.shape[1:])


def test_results_are_memory_of_their_own(world):
    x = np.ones(LARGE)
    results = [us.all_reduce(x, "sum") for _ in range(3)]
    part = us.all_reduce(x, "sum")[7:9]  # a part keeps the whole
    results += [us.broadcast(x), us.all_gather(x)]
    for i, result in enumerate(results):
        result[:] = i
    assert [float(r[0]) for r in results] == [0, 1, 2, 3, 4]
    assert part.tolist() == [world.size] * 2
    assert x[0] == 1


def test_memory_is_used_again_when_no_array_of_it_is_left(world):
    x = np.ones(LARGE)
    address = us.all_reduce(x).ctypes.data
    assert us.all_reduce(x).ctypes.data == address
    kept = us.all_reduce(x)
    assert kept.ctypes.data == address
    assert us.all_reduce(x).ctypes.data != address


def test_asynchronous_reductions_run_side_by_side(world, rank):
    xs = [drawn(rank, n) for n in (3, LARGE, 7)]
    handles = [us.all_reduce(x, "sum", async_op=True) for x in xs]
    us.barrier()
    us.all_reduce(np.ones(3))
    for handle, x in reversed(list(zip(handles, xs, strict=True))):
        np.testing.assert_allclose(handle.wait(), sum(us.all_gather_object(x)))
        assert handle.is_completed()
    assert handles[0].wait() is handles[0].wait()


def test_an_asynchronous_reduction_is_not_waited_for(world, rank):
    if rank == 0:
        handle = us.all_reduce(np.ones(2), "sum", async_op=True)
        assert not handle.is_completed()  # the others come later
        MPI.COMM_WORLD.Barrier()
    else:
        MPI.COMM_WORLD.Barrier()
        handle = us.all_reduce(np.ones(2), "sum", async_op=True)
    assert handle.wait().tolist() == [world.size] * 2


def test_handles_may_be_dropped(world):
    for _ in range(20):
        us.all_reduce(np.ones(LARGE), "sum", async_op=True)
        np.full(LARGE, 5.0)  # takes the memory that is free
    us.barrier()
    assert us.all_reduce(np.ones(LARGE), "sum").tolist() == [world.size] * LARGE


def test_the_users_own_messages_are_left_alone(world, rank):
    comm = MPI.COMM_WORLD
    other = (rank + 1) % world.size
    got = np.zeros(3)
    requests = [comm.Irecv(got, MPI.ANY_SOURCE, MPI.ANY_TAG)]
    us.all_reduce(np.ones(10))
    us.permute(np.ones(4), [(0, 1), (1, 0)])
    requests.append(comm.Isend(np.full(3, float(rank)), other, 1))
    us.barrier()
    MPI.Request.Waitall(requests)
    assert got.tolist() == [(rank - 1) % world.size] * 3


def test_messages_keep_their_order_and_do_not_wait(world, rank):
    if rank == 0:
        for i in range(3):
            us.send(np.full(LARGE, float(i)), to=1)  # too large to be away before it is asked for
    us.barrier()
    if rank == 1:
        assert [us.recv(np.empty(LARGE), source=0)[-1] for _ in range(3)] == [0, 1, 2]


def test_a_message_of_another_shape(world, rank):
    if rank == 0:
        us.send(np.ones((2, 3), "float32"), to=1)
        us.send(np.ones(2), to=1)
    if rank == 1:
        with pytest.raises(CollectiveMismatchError, match=r"float32\[2, 3\].*like=us\.zeros\(\(2, 3\)"):
            us.recv(np.ones(2), source=0)
        assert us.recv(np.ones(2), source=0).tolist() == [1, 1]


def test_messages_arrive_though_the_sender_ends_its_world(world, rank):
    if rank == 0:
        us.send(np.ones(LARGE), to=1)
    else:
        if rank == 1:
            assert us.recv(np.empty(LARGE), source=0).sum() == LARGE
    world.end()


def test_communicators_go_back_at_the_end(world):
    world.end()
    for _ in range(60):  # an MPI library has some two thousand
        with us.init_distributed() as made:
            ranks = list(range(made.size))
            us.all_reduce(np.ones(1), groups=[ranks[::-1]])


def test_stamps_tell_the_wait_for_the_others(world, rank):
    us.barrier()
    if rank == 0:
        MPI.COMM_WORLD.Barrier()
    else:
        MPI.COMM_WORLD.Barrier()
        import time

        time.sleep(0.05)
    us.all_reduce(np.ones(4))
    event = world._engine.ring.events[-1]
    assert event.arrival_ns <= event.blocked_ns <= event.resumed_ns <= event.done_ns
    if rank == 0:
        assert event.resumed_ns - event.blocked_ns > 30e6


def test_shared_memory_has_no_name_that_could_be_left_behind(world):
    with open("/proc/self/maps") as maps:
        mapped = {line.split()[5] for line in maps if "mpich_shm" in line}
    assert not any(os.path.exists(path) for path in mapped)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of a process with threads
def test_a_forked_child_that_ends_leaves_mpi_to_its_parent(world):
    child = os.fork()
    if not child:
        atexit._run_exitfuncs()  # as sys.exit does at last
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert us.all_reduce(np.ones(1), "sum") == world.size

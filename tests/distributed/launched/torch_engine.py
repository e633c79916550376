"""What torch's engines of processes add to the common tests; test_torch_launched.py runs this in each process."""

from __future__ import annotations

import functools
import gc
import socket
import time
import weakref

import numpy as np
import pytest
import torch
import torch.distributed as dist

import unisync as us
from unisync.backends.torch import _nccl, launched
from unisync.backends.torch._messages import SHORT_BYTES
from unisync.distributed import joining
from unisync.errors import ArgumentError, CollectiveMismatchError, TraceError

PLACE = joining.place()
LONG = SHORT_BYTES // 4 + 1000  # float32 numbers that do not travel with their announcement
DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
          "float64", "complex64", "complex128", "bool")  # fmt: skip


class NcclOverGloo(_nccl.NcclProcesses):
    """The engine for CUDA devices, with gloo in the place of nccl: its own logic, without the hardware."""

    name = "gloo"

    def __init__(self, backend, member, device, timeout_s):
        _nccl.TorchProcesses.__init__(self, backend, member, torch.device("cpu"), timeout_s)


@pytest.fixture(params=["gloo", "nccl's logic"])
def world(backend, request, monkeypatch):
    if request.param != "gloo":
        monkeypatch.setattr(launched, "GlooProcesses", NcclOverGloo)
    with us.init_distributed() as made:
        yield made


def of_all(size, length, dtype):
    """The same on all ranks: an array for each."""
    rng = np.random.default_rng(length)
    numbers = [torch.from_numpy(rng.integers(0, 5, length)) for _ in range(size)]
    return [x.to(getattr(torch, dtype)) for x in numbers]


def equal(a, b):
    return a.dtype is b.dtype and a.shape == b.shape and bool((a.to(torch.complex128) == b.to(torch.complex128)).all())


@pytest.mark.parametrize("length", [7, LONG])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_added_and_moved(world, dtype, length):
    arrays = of_all(world.size, length, dtype)
    x = arrays[world.process_index]
    wide = [a.to(torch.complex128 if a.is_complex() else torch.float64) for a in arrays]
    total = functools.reduce(torch.add, wide).to(x.dtype)
    assert equal(us.all_reduce(x, "sum"), total)
    assert equal(us.all_reduce(x, "sum", async_op=True).wait(), total)
    if not x.is_complex():
        most = functools.reduce(torch.maximum, wide).to(x.dtype)
        assert equal(us.all_reduce(x, "max"), most)
    assert equal(us.all_gather(x), torch.cat(arrays))
    assert equal(us.broadcast(x, world.size - 1), arrays[-1])
    ring = [(r, (r + 1) % world.size) for r in range(world.size)]
    assert equal(us.permute(x, ring), arrays[world.process_index - 1])


@pytest.mark.parametrize("length", [50, LONG])
def test_sums_have_the_same_bits_everywhere_and_those_of_threads(backend, length):
    with us.init_distributed() as world:
        draws = [np.random.default_rng(r).normal(size=length).astype(np.float32) for r in range(world.size)]
        found = us.to_numpy(us.all_reduce(us.asarray(draws[world.process_index]), "sum"))
        later = us.to_numpy(us.all_reduce(us.asarray(draws[world.process_index]), "sum", async_op=True).wait())
        np.testing.assert_array_equal(found, functools.reduce(np.add, draws))
        for mine in (found, later):
            assert all(np.array_equal(mine, other) for other in us.all_gather_object(mine))


def test_lengths_may_differ_by_any_amount(world):
    lengths = [0, 3, LONG, SHORT_BYTES // 4][: world.size]
    for turn in range(world.size):
        own = lengths[(world.process_index + turn) % world.size]
        whole = us.all_gather(torch.full((own, 2), float(own)))
        expected = [lengths[(r + turn) % world.size] for r in range(world.size)]
        assert whole.shape == (sum(expected), 2)
        assert [int(part[0, 0]) for part in whole.split([n for n in expected if n])] == [n for n in expected if n]


def test_messages_keep_their_order_beside_collectives(world):
    right, left = (world.process_index + 1) % world.size, (world.process_index - 1) % world.size
    sent = [torch.full((n,), float(n + world.process_index)) for n in (3, LONG, 1, 0)]
    handles = [us.all_reduce(torch.full((LONG,), float(i)), "sum", async_op=True) for i in range(3)]
    if isinstance(world._engine, NcclOverGloo):
        pytest.skip("a message and its receipt are started together there")
    for x in sent:
        us.send(x, right)
    assert float(us.all_reduce(torch.ones(()), "sum")) == world.size
    for x in sent:
        assert equal(us.recv(torch.empty_like(x), left), x - world.process_index + left)
    for i, handle in reversed(list(enumerate(handles))):
        assert float(handle.wait()[-1]) == i * world.size


def test_a_message_of_another_form_is_refused(backend):
    with us.init_distributed() as world:
        right, left = (world.process_index + 1) % world.size, (world.process_index - 1) % world.size
        us.send(torch.ones(4), right)
        with pytest.raises(CollectiveMismatchError, match=r"float32\[4\].*float32\[3\]"):
            us.recv(torch.ones(3), left)


def test_an_asynchronous_sum_may_be_forgotten(world):
    for _ in range(50):
        us.all_reduce(torch.ones(10), "sum", async_op=True)
    assert float(us.all_reduce(torch.ones(()), "sum")) == world.size


@pytest.mark.parametrize("length", [0, 3, LONG])
def test_an_asynchronous_sum_ends_by_itself(world, length):
    handle = us.all_reduce(torch.ones(length), "sum", async_op=True)
    end = time.monotonic() + 20
    while not handle.is_completed():
        assert time.monotonic() < end
        time.sleep(0.001)
    assert equal(handle.wait(), torch.full((length,), float(world.size)))


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("length", [3, LONG])
def test_nan_wins_on_all_ranks(backend, op, length):
    with us.init_distributed() as world:
        for source in range(world.size):
            x = torch.full((length,), torch.nan if world.process_index == source else float(world.process_index))
            for found in (us.all_reduce(x, op), us.all_reduce(x, op, async_op=True).wait()):
                assert all(us.all_gather_object(bool(found.isnan().all())))


def test_no_gradient_goes_through_an_asynchronous_sum(world):
    with pytest.raises(TraceError, match="async_op"):
        us.grad(lambda x: us.all_reduce(x, "sum", async_op=True).wait())(torch.ones(()))
    us.barrier()


def test_the_users_own_torch_distributed_is_left_alone(backend):
    member = joining.member()
    port = free_port(member)
    store = dist.TCPStore("127.0.0.1", port, None, member.rank == 0, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=member.rank, world_size=member.size)
    try:
        with us.init_distributed() as world:
            assert float(us.all_reduce(torch.ones(()), "sum")) == world.size
        assert dist.is_initialized()
        x = torch.ones(())
        dist.all_reduce(x)
        assert float(x) == member.size
    finally:
        dist.destroy_process_group()


def free_port(member):
    if member.rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            member.channel.put("/test/port", free.getsockname()[1])
    return member.channel.get("/test/port", 30.0)


def test_worlds_leave_no_process_groups_behind(backend):
    for _ in range(3):
        with us.init_distributed() as world:
            us.all_reduce(torch.ones(3))
            us.all_reduce(torch.ones(LONG), groups=[[r] for r in range(world.size)][::-1])
            group = weakref.ref(world._engine.group_of_torch)
        assert group() is None  # not before a garbage collection, which may come in any thread
    gc.collect()
    assert not dist.is_initialized()


def test_wrong_engines_and_devices(backend):
    for arguments, text in (
        ({"engine": "mpi"}, "gloo"),
        ({"engine": "gloo", "device": "cuda"}, "'cpu'"),
        ({"engine": "nccl", "device": "cpu"}, "'cuda'"),
        ({"device": "nowhere"}, "torch device"),
    ):
        with pytest.raises(ArgumentError, match=text):
            us.init_distributed(**arguments)
    if not torch.cuda.is_available():
        with pytest.raises(ArgumentError, match="CUDA device for each"):
            us.init_distributed(engine="nccl")
    us.init_distributed().end()  # all ranks are still together


# Gradients summed during the backward pass


def summed(world, objective, params, *args, counts=True):
    figures = lambda aux, *args: [aux, torch.ones(())]  # noqa: E731
    engine = world._engine
    run = engine.overlapped_gradients(objective, figures, lambda *args: counts)
    (value, aux), sums, gradients = us.spmd(lambda: run(params, *args))()[0]
    return float(value), float(aux), [float(s) for s in sums], gradients


@pytest.mark.parametrize("counted", [True, False])
def test_overlapped_gradients_are_sums(world, counted):
    params = {
        "0": {"w": torch.arange(6.0).reshape(2, 3), "h": torch.ones(3, dtype=torch.bfloat16)},
        "10": {"w": torch.ones(600, 700), "d": torch.ones(4, dtype=torch.float64)},
        "unused": torch.ones(5), "t": torch.ones(3, 2).t(),
    }  # fmt: skip
    factor = world.process_index + 1.0

    def objective(p, factor):
        value = factor * (p["0"]["w"].sum() + (p["10"]["w"] ** 2).sum() + (p["t"] * 3).sum())
        return value + factor * (p["0"]["h"].float().sum() + p["10"]["d"].float().sum()), value

    mine = counted or world.process_index > 0  # else the first replica's do not count
    value, aux, sums, gradients = summed(world, objective, params, factor, counts=mine)
    total = sum(r + 1.0 for r in range(0 if counted else 1, world.size))
    expected = {
        "0": {"w": torch.full((2, 3), total), "h": torch.full((3,), total, dtype=torch.bfloat16)},
        "10": {"w": torch.full((600, 700), 2 * total), "d": torch.full((4,), total, dtype=torch.float64)},
        "unused": torch.zeros(5), "t": torch.full((2, 3), 3 * total),
    }  # fmt: skip
    us.tree.map(lambda a, b: torch.testing.assert_close(a, b, rtol=0, atol=0), gradients, expected)
    assert gradients["t"].stride() == params["t"].stride()
    assert not any(g.requires_grad for g in us.tree.leaves(gradients))
    assert sums[1] == world.size
    assert sums[0] == sum(us.all_gather_object(aux))
    assert value > aux


def test_a_parameter_that_some_replicas_do_not_use_counts_as_zeros_there(world):
    params = {"a": torch.ones(400_000), "b": torch.ones(3)}

    def objective(p):
        value = p["a"].sum() if world.process_index == 0 else p["b"].sum()
        return value, value.detach()

    _, _, _, gradients = summed(world, objective, params)
    assert float(gradients["a"][-1]) == 1
    assert gradients["b"].tolist() == [world.size - 1.0] * 3


def test_a_loss_without_parameters(world):
    _, _, sums, gradients = summed(world, lambda p: (torch.ones(()), torch.ones(())), {"a": torch.ones(3)})
    assert gradients["a"].tolist() == [0.0] * 3
    assert sums == [world.size, world.size]

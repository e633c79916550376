"""Worlds for the tests: one of every number of replicas, on every backend under test.

In a process that a launcher started (`unisync run --backend B --replicas N -m pytest ...`) there is one world, that of
the launcher; tests of other sizes are skipped, in all processes alike.
"""

from __future__ import annotations

import numpy as np
import pytest

import unisync as us
from unisync.distributed import joining

PLACE = joining.place()


def made(size):
    if PLACE is not None and size != PLACE.size:
        pytest.skip(f"the launcher started {PLACE.size} processes")
    return us.init_distributed(replicas=size, device="cpu")


@pytest.fixture(params=[1, 2, 4], ids=lambda n: f"{n} replicas")
def world(backend, request):
    """A world of 1, 2 and 4 replicas of each backend."""
    with made(request.param) as world:
        yield world


@pytest.fixture
def two(backend):
    """A world of 2 replicas of each backend."""
    with made(2) as world:
        yield world


@pytest.fixture
def four(backend):
    """A world of 4 replicas of each backend."""
    with made(4) as world:
        yield world


@pytest.fixture
def all_replicas():
    """all_replicas(world, value): what is in a per-replica value, of all replicas, on every rank; NumPy arrays."""

    def all_replicas(world, value):
        own = [us.tree.map(us.to_numpy, tree) for tree in value]
        return own if world.process_count == 1 else [tree for trees in us.all_gather_object(own) for tree in trees]

    return all_replicas


@pytest.fixture
def run(all_replicas):
    """run(world, fn, trees): fn of each replica's tree of NumPy arrays, as a list of trees of NumPy arrays."""

    def run(world, fn, trees):
        def own(stacked):
            return fn(us.tree.map(lambda x: us.reshape(x, x.shape[1:]), stacked))

        stacked = us.tree.map(lambda *xs: np.stack(xs), *trees)
        return all_replicas(world, us.spmd(own)(world.scatter(stacked)))

    return run

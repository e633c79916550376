"""Worlds for the tests: one of every number of replicas, on every backend under test."""

from __future__ import annotations

import numpy as np
import pytest

import unisync as us


@pytest.fixture(params=[1, 2, 4], ids=lambda n: f"{n} replicas")
def world(backend, request):
    """A world of 1, 2 and 4 replicas of each backend."""
    with us.init_distributed(replicas=request.param, device="cpu") as made:
        yield made


@pytest.fixture
def two(backend):
    """A world of 2 replicas of each backend."""
    with us.init_distributed(replicas=2, device="cpu") as made:
        yield made


@pytest.fixture
def four(backend):
    """A world of 4 replicas of each backend."""
    with us.init_distributed(replicas=4, device="cpu") as made:
        yield made


@pytest.fixture
def run():
    """run(world, fn, trees): fn of each replica's tree of NumPy arrays, as a list of trees of NumPy arrays."""

    def run(world, fn, trees):
        def own(stacked):
            return fn(us.tree.map(lambda x: us.reshape(x, x.shape[1:]), stacked))

        stacked = us.tree.map(lambda *xs: np.stack(xs), *trees)
        return [us.tree.map(us.to_numpy, out) for out in us.spmd(own)(world.scatter(stacked))]

    return run

"""Schedules: tables of values, host and native counts, and torch's schedulers."""

from __future__ import annotations

import math

import numpy as np
import pytest

import unisync as us
from unisync.errors import ArgumentError, ArgumentTypeError

o = us.optim

TABLES = {
    "constant": (o.constant(0.3), [0.3] * 8),
    "cosine": (o.cosine(1.0, 4), [1.0, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0.0, 0.0, 0.0, 0.0]),
    "cosine-end": (o.cosine(1.0, 2, end=0.5), [1.0, 0.75, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]),
    "warmup": (o.warmup_cosine(1.0, 4, 6, init=0.2, end=0.1), [0.2, 0.4, 0.6, 0.8, 1.0, 0.55, 0.1, 0.1]),
    "piecewise": (o.piecewise(1.0, {3: 0.5, 5: 0.1}), [1.0, 1.0, 1.0, 0.5, 0.5, 0.05, 0.05, 0.05]),
    "piecewise-lists": (o.piecewise(1.0, [3, 5], [0.5, 0.1]), [1.0, 1.0, 1.0, 0.5, 0.5, 0.05, 0.05, 0.05]),
    "exponential": (o.exponential(1.0, 0.25, steps=2), [0.5**n for n in range(8)]),
    "staircase": (o.exponential(1.0, 0.5, steps=3, staircase=True), [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]),
}


@pytest.mark.parametrize("name", TABLES)
def test_values(name):
    schedule, expected = TABLES[name]
    values = [schedule(count) for count in range(8)]
    assert all(type(value) in (int, float) for value in values)
    assert values == pytest.approx(expected, rel=1e-15, abs=1e-15)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("int64", 1e-6), ("float32", 1e-6), ("float64", 1e-14)])
def test_native_counts(backend, name, dtype, tolerance):
    schedule, expected = TABLES[name]
    for count, wanted in enumerate(expected):
        value = schedule(us.asarray(count, dtype=dtype))
        np.testing.assert_allclose(np.asarray(value, dtype="float64"), wanted, rtol=tolerance, atol=tolerance / 10)
        if us.is_array(value):
            assert us.dtype_of(value) == ("float32" if dtype == "int64" else dtype)


def test_warmup_cosine_equals_torchs():
    torch = pytest.importorskip("torch")
    plan = torch.optim.lr_scheduler
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.4)
    scheduler = plan.SequentialLR(
        optimizer,
        [
            plan.LinearLR(optimizer, start_factor=0.25, total_iters=5),
            plan.CosineAnnealingLR(optimizer, T_max=15, eta_min=0.01),
        ],
        milestones=[5],
    )
    ours = o.warmup_cosine(0.4, 5, 20, init=0.1, end=0.01)
    for count in range(20):
        assert ours(count) == pytest.approx(scheduler.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        scheduler.step()


def test_a_users_own_schedule(backend):
    optimizer = o.sgd(lambda count: 0.5 / (1 + count))
    params = {"weight": us.zeros(1)}
    update = us.jit(lambda g, s, p: optimizer.step(g, s, p))
    state = optimizer.init(params)
    for _ in range(3):
        params, state = update({"weight": us.ones(1)}, state, params)
    np.testing.assert_allclose(us.to_numpy(params["weight"]), [-(0.5 + 0.25 + 0.5 / 3)], rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: o.cosine(0.1, 0), "steps"),
        (lambda: o.cosine(0.1, 2.5), "steps"),
        (lambda: o.cosine(float("nan"), 10), "init"),
        (lambda: o.warmup_cosine(0.1, 10, 10), "steps"),
        (lambda: o.warmup_cosine(0.1, 0, 10), "warmup_steps"),
        (lambda: o.piecewise(0.1, [1, 2]), "boundaries"),
        (lambda: o.piecewise(0.1, [1, 2], [0.1]), "boundaries"),
        (lambda: o.piecewise(0.1, {1: 0.1}, [0.1]), "boundaries"),
        (lambda: o.exponential(0.1, 0.0), "decay_rate"),
        (lambda: o.exponential(0.1, 0.9, steps=-1), "steps"),
    ],
)
def test_bad_arguments(make, name):
    with pytest.raises(ArgumentError, match=f"`{name}` must .* Try: "):
        make()


def test_not_a_number():
    with pytest.raises(ArgumentTypeError, match=r"`init` must be a number .* got str\. Try"):
        o.cosine("fast", 10)

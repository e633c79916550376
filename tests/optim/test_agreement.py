"""Optimizers step by step against torch.optim, and those that torch lacks against the algorithms of their papers."""

from __future__ import annotations

import numpy as np
import pytest

import unisync as us

STEPS = 25
SHAPES = {"0": {"weight": (4, 3), "bias": (4,)}, "2": {"weight": (4, 3)}, "scale": ()}
DTYPES = [("float64", 1e-10), ("float32", 1e-6)]


def problem(dtype, seed=7):
    """First params and one tree of gradients per step, as NumPy arrays."""
    rng = np.random.default_rng(seed)

    def draw():
        return us.tree.map(
            lambda shape: np.asarray(rng.normal(size=shape), dtype), us.tree.unflatten(STRUCTURE, list(LEAVES))
        )

    return draw(), [draw() for _ in range(STEPS)]


class _Shape(tuple):
    """A shape as a leaf: a plain tuple would be a node."""


def _leaves(node):
    return {k: _leaves(v) for k, v in node.items()} if isinstance(node, dict) else _Shape(node)


LEAVES, STRUCTURE = us.tree.flatten(_leaves(SHAPES))


def ours(optimizer, params, gradients, compiled=False):
    """The params after each step, as NumPy trees."""
    params = us.tree.map(us.asarray, params)
    state, trace = optimizer.init(params), []
    update = us.jit(lambda g, s, p: optimizer.update(g, s, p)) if compiled else optimizer.update
    for grads in gradients:
        updates, state = update(us.tree.map(us.asarray, grads), state, params)
        params = us.optim.apply_updates(params, updates)
        trace.append(us.tree.map(us.to_numpy, params))
    return trace


def in_torch(make, params, gradients, before_step=None, scheduler=None):
    """The same by a torch.optim optimizer."""
    torch = pytest.importorskip("torch")
    leaves, structure = us.tree.flatten(params)
    tensors = [torch.tensor(leaf, requires_grad=True) for leaf in leaves]
    optimizer = make(torch.optim, tensors)
    plan = scheduler(torch.optim.lr_scheduler, optimizer) if scheduler else None
    trace = []
    for grads in gradients:
        for tensor, grad in zip(tensors, us.tree.leaves(grads), strict=True):
            tensor.grad = torch.tensor(grad)
        if before_step:
            before_step(torch, tensors)
        optimizer.step()
        if plan:
            plan.step()
        trace.append(us.tree.unflatten(structure, [t.detach().numpy().copy() for t in tensors]))
    return trace


def assert_same(actual, expected, tolerance):
    assert len(actual) == len(expected) == STEPS
    for step, (a, b) in enumerate(zip(actual, expected, strict=True)):
        for path, x, y in zip(us.tree.paths(a), us.tree.leaves(a), us.tree.leaves(b), strict=True):
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=f"step {step}, {path}")
            assert x.dtype == y.dtype


o = us.optim
TORCH = {
    "sgd": (o.sgd(0.1), lambda t, p: t.SGD(p, 0.1)),
    "sgd-momentum": (o.sgd(0.1, momentum=0.9), lambda t, p: t.SGD(p, 0.1, momentum=0.9)),
    "sgd-nesterov": (o.sgd(0.1, 0.9, nesterov=True), lambda t, p: t.SGD(p, 0.1, 0.9, nesterov=True)),
    "sgd-dampening": (o.sgd(0.1, 0.9, dampening=0.3), lambda t, p: t.SGD(p, 0.1, 0.9, dampening=0.3)),
    "sgd-decay": (o.sgd(0.1, 0.9, weight_decay=0.05), lambda t, p: t.SGD(p, 0.1, 0.9, weight_decay=0.05)),
    "sgd-all": (
        o.sgd(0.1, 0.8, nesterov=True, weight_decay=0.05),
        lambda t, p: t.SGD(p, 0.1, 0.8, nesterov=True, weight_decay=0.05),
    ),
    "sgd-default": (o.sgd(), lambda t, p: t.SGD(p)),
    "adam": (o.adam(), lambda t, p: t.Adam(p)),
    "adam-fast": (
        o.adam(0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.05),
        lambda t, p: t.Adam(p, 0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.05),
    ),
    "adam-no-first-moment": (o.adam(0.1, betas=(0.0, 0.9)), lambda t, p: t.Adam(p, 0.1, betas=(0.0, 0.9))),
    "adamw": (o.adamw(), lambda t, p: t.AdamW(p)),
    "adamw-fast": (o.adamw(0.1, weight_decay=0.2), lambda t, p: t.AdamW(p, 0.1, weight_decay=0.2)),
    "rmsprop": (o.rmsprop(), lambda t, p: t.RMSprop(p)),
    "rmsprop-momentum": (
        o.rmsprop(0.02, alpha=0.9, eps=1e-4, momentum=0.9, weight_decay=0.05),
        lambda t, p: t.RMSprop(p, 0.02, alpha=0.9, eps=1e-4, momentum=0.9, weight_decay=0.05),
    ),
    "rmsprop-centered": (o.rmsprop(centered=True), lambda t, p: t.RMSprop(p, centered=True)),
    "rmsprop-centered-momentum": (
        o.rmsprop(centered=True, momentum=0.5),
        lambda t, p: t.RMSprop(p, centered=True, momentum=0.5),
    ),
    "adagrad": (o.adagrad(), lambda t, p: t.Adagrad(p)),
    "adagrad-all": (
        o.adagrad(0.1, lr_decay=0.1, weight_decay=0.05, initial_accumulator=0.2, eps=1e-4),
        lambda t, p: t.Adagrad(
            p, 0.1, lr_decay=0.1, weight_decay=0.05, initial_accumulator_value=0.2, eps=1e-4
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("name", TORCH)
def test_equals_torch(backend, name, dtype, tolerance):
    optimizer, make = TORCH[name]
    params, gradients = problem(dtype)
    assert_same(ours(optimizer, params, gradients), in_torch(make, params, gradients), tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("name", ["sgd-dampening", "adam-fast", "adamw-fast", "adagrad-all"])
def test_compiled_equals_torch(backend, name, dtype, tolerance):
    optimizer, make = TORCH[name]
    params, gradients = problem(dtype)
    assert_same(ours(optimizer, params, gradients, compiled=True), in_torch(make, params, gradients), tolerance)


SCHEDULES = {
    "cosine": (o.cosine(0.1, STEPS, 0.01), lambda s, t: s.CosineAnnealingLR(t, STEPS, eta_min=0.01)),
    "piecewise": (o.piecewise(0.1, {3: 0.5, 10: 0.5}), lambda s, t: s.MultiStepLR(t, [3, 10], 0.5)),
    "exponential": (o.exponential(0.1, 0.9), lambda s, t: s.ExponentialLR(t, 0.9)),
    "staircase": (o.exponential(0.1, 0.5, 4, staircase=True), lambda s, t: s.StepLR(t, 4, 0.5)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "tolerance", "compiled"), [(*DTYPES[0], False), (*DTYPES[0], True), (*DTYPES[1], True)]
)
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_equal_torchs(backend, name, dtype, tolerance, compiled):
    schedule, plan = SCHEDULES[name]
    params, gradients = problem(dtype)
    expected = in_torch(lambda t, p: t.SGD(p, 0.1, momentum=0.9), params, gradients, scheduler=plan)
    assert_same(ours(o.sgd(schedule, momentum=0.9), params, gradients, compiled), expected, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("max_norm", [0.5, 1e3])
def test_clip_by_global_norm_equals_torch(backend, max_norm, dtype, tolerance):
    params, gradients = problem(dtype)
    expected = in_torch(
        lambda t, p: t.SGD(p, 0.1, momentum=0.9),
        params,
        gradients,
        before_step=lambda torch, tensors: torch.nn.utils.clip_grad_norm_(tensors, max_norm),
    )
    optimizer = o.chain(o.clip_by_global_norm(max_norm), o.sgd(0.1, momentum=0.9))
    assert_same(ours(optimizer, params, gradients), expected, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_clip_by_value_equals_torch(backend, dtype, tolerance):
    params, gradients = problem(dtype)
    expected = in_torch(
        lambda t, p: t.SGD(p, 0.1),
        params,
        gradients,
        before_step=lambda torch, tensors: torch.nn.utils.clip_grad_value_(tensors, 0.3),
    )
    assert_same(ours(o.chain(o.clip_by_value(0.3), o.sgd(0.1)), params, gradients), expected, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_groups_equal_torchs(backend, dtype, tolerance):
    params, gradients = problem(dtype)

    def make(t, p):  # leaves in order: 0/bias, 0/weight, 2/weight, scale
        return t.SGD(
            [{"params": [p[0]], "lr": 0.5}, {"params": [p[2]], "momentum": 0.9}, {"params": [p[1], p[3]]}], 0.1
        )

    optimizer = o.partition({"**/bias": o.sgd(0.5), "2/*": o.sgd(0.1, momentum=0.9)}, default=o.sgd(0.1))
    assert_same(ours(optimizer, params, gradients), in_torch(make, params, gradients), tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_frozen_layers_equal_torchs(backend, dtype, tolerance):
    params, gradients = problem(dtype)

    def hide(torch, tensors):
        tensors[0].grad = tensors[1].grad = None
        torch.nn.utils.clip_grad_norm_(tensors, 0.5)

    expected = in_torch(lambda t, p: t.AdamW(p, 0.1), params, gradients, before_step=hide)
    optimizer = o.chain(o.clip_by_global_norm(0.5), o.adamw(0.1), o.freeze("0"))
    assert_same(ours(optimizer, params, gradients), expected, tolerance)


MASKS = {
    "pattern": "**/weight",
    "patterns": ["0/weight", "2/*"],
    "function": lambda path, param: len(param.shape) > 1,
    "tree": {"0": {"weight": True, "bias": False}, "2": {"weight": True}, "scale": False},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_masked_weight_decay_equals_torchs_groups(backend, name, mask):
    params, gradients = problem("float64")
    decay = {"weight_decay": 0.3}

    def make(t, p):
        cls = t.AdamW if name == "adamw" else t.SGD
        return cls([{"params": [p[1], p[2]], **decay}, {"params": [p[0], p[3]], "weight_decay": 0.0}], 0.1)

    optimizer = o.by_name(name, 0.1, mask=MASKS[mask], **decay)
    assert_same(ours(optimizer, params, gradients), in_torch(make, params, gradients), 1e-10)


def by_lion(params, gradients, lr, beta1, beta2, decay):
    """Algorithm 2 of https://arxiv.org/abs/2302.06675."""
    momentum = {key: np.zeros_like(p) for key, p in params.items()}
    for grads in gradients:
        for key, g in grads.items():
            c = beta1 * momentum[key] + (1 - beta1) * g
            params[key] = params[key] - lr * (np.sign(c) + decay * params[key])
            momentum[key] = beta2 * momentum[key] + (1 - beta2) * g
        yield dict(params)


def by_lamb(params, gradients, lr, beta1, beta2, eps, decay):
    """Algorithm 2 of https://arxiv.org/abs/1904.00962 with φ(z) = z, and ratio 1 where a norm is zero."""
    first = {key: np.zeros_like(p) for key, p in params.items()}
    second = {key: np.zeros_like(p) for key, p in params.items()}
    for t, grads in enumerate(gradients, 1):
        for key, g in grads.items():
            x = params[key]
            first[key] = beta1 * first[key] + (1 - beta1) * g
            second[key] = beta2 * second[key] + (1 - beta2) * g * g
            direction = first[key] / (1 - beta1**t) / (np.sqrt(second[key] / (1 - beta2**t)) + eps) + decay * x
            norms = np.linalg.norm(x), np.linalg.norm(direction)
            params[key] = x - lr * (norms[0] / norms[1] if min(norms) > 0 else 1.0) * direction
        yield dict(params)


PAPERS = {
    "lion": (o.lion(0.01, betas=(0.8, 0.95), weight_decay=0.1), lambda p, g: by_lion(p, g, 0.01, 0.8, 0.95, 0.1)),
    "lion-default": (o.lion(), lambda p, g: by_lion(p, g, 1e-4, 0.9, 0.99, 0.0)),
    "lamb": (
        o.lamb(0.05, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1),
        lambda p, g: by_lamb(p, g, 0.05, 0.8, 0.95, 1e-4, 0.1),
    ),
    "lamb-default": (o.lamb(), lambda p, g: by_lamb(p, g, 1e-3, 0.9, 0.999, 1e-6, 0.01)),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", PAPERS)
def test_equals_paper(backend, name, compiled):
    optimizer, algorithm = PAPERS[name]
    params, gradients = problem("float64")

    def flat(tree):
        return dict(zip(us.tree.paths(tree), us.tree.leaves(tree), strict=True))

    params["0"]["bias"][:] = 0  # a norm of zero
    expected = algorithm(flat(params), [flat(g) for g in gradients])
    for actual, wanted in zip(ours(optimizer, params, gradients, compiled), expected, strict=True):
        for path, x in flat(actual).items():
            np.testing.assert_allclose(x, wanted[path], rtol=1e-10, atol=1e-10, err_msg=path)

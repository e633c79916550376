"""Derivatives on NumPy against central differences in float64: first order, second order, and their dtype."""

from __future__ import annotations

import numpy as np
import pytest

import unisync as us

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def _numpy():
    with us.backend("numpy"):
        yield


def normal(*shape):
    return RNG.standard_normal(shape)


def positive(*shape):
    return RNG.uniform(0.5, 2.0, shape)


def apart(*shape):
    """Distinct numbers, none near zero and no two near each other: no kink within a step of the differences."""
    n = int(np.prod(shape))
    values = (np.arange(n) - n // 2 + 0.5) * 0.17
    return RNG.permutation(values).reshape(shape)


LABELS = np.asarray([2, 0, 4])
MASK = np.asarray([[True, False, True], [True, True, False], [False, True, True], [True, True, True]])
IMAGE = normal(2, 6, 7, 4)
KERNEL = normal(6, 4, 3, 2)
GROUPED = normal(6, 2, 3, 2)

UNARY = {
    "acos": lambda: RNG.uniform(-0.8, 0.8, (3, 2)),
    "acosh": lambda: RNG.uniform(1.5, 3.0, (3, 2)),
    "asin": lambda: RNG.uniform(-0.8, 0.8, (3, 2)),
    "atanh": lambda: RNG.uniform(-0.8, 0.8, (3, 2)),
    **dict.fromkeys(("log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal"), lambda: positive(3, 2)),
    **dict.fromkeys(
        ("abs", "asinh", "atan", "cos", "cosh", "erf", "exp", "expm1", "negative", "positive", "sin", "sinh",
            "square", "tan", "tanh"),
        lambda: apart(3, 2),
    ),
}  # fmt: skip

CASES = {
    **{name: (getattr(us, name), make()) for name, make in UNARY.items()},
    **{name: (getattr(us, name), apart(3, 4), apart(4) + 0.04) for name in ("add", "subtract", "multiply",
        "maximum", "minimum")},
    "divide": (us.divide, normal(3, 4), positive(3, 1)),
    "atan2": (us.atan2, positive(3, 4), positive(4)),
    "logaddexp": (us.logaddexp, normal(3, 4), normal(4)),
    "remainder": (us.remainder, apart(3, 4), positive(4)),
    "pow": (us.pow, positive(3, 4), normal(4)),
    "pow number": (lambda x: us.pow(x, 3.0), normal(3)),
    "pow of a number": (lambda x: us.pow(2.0, x), normal(3)),
    "clip": (lambda x, low, high: us.clip(x, low, high), apart(3, 4), np.full(4, -0.5), np.asarray(0.6)),
    "where": (lambda x, y: us.where(apart_condition, x, y), normal(3, 4), normal(4)),
    "where number": (lambda x: us.where(apart_condition, x, 1.5), normal(3, 4)),
    "astype": (lambda x: us.astype(x, us.float64), normal(3)),
    "matmul": (us.matmul, normal(3, 4), normal(4, 2)),
    "matmul batches": (us.matmul, normal(5, 1, 3, 4), normal(2, 4, 2)),
    "matmul vectors": (us.matmul, normal(4), normal(4)),
    "matmul vector": (us.matmul, normal(2, 3, 4), normal(4)),
    "matrix_transpose": (us.matrix_transpose, normal(2, 3, 4)),
    "tensordot": (lambda x, y: us.tensordot(x, y, axes=((0, 2), (1, 0))), normal(2, 3, 4), normal(4, 2, 5)),
    "tensordot n": (lambda x, y: us.tensordot(x, y, axes=1), normal(2, 3), normal(3, 5)),
    "vecdot": (lambda x, y: us.vecdot(x, y, axis=-2), normal(2, 3, 4), normal(3, 4)),
    "broadcast_to": (lambda x: us.broadcast_to(x, (5, 3, 4)), normal(3, 1)),
    "broadcast_arrays": (lambda x, y: us.broadcast_arrays(x, y), normal(3, 1), normal(4)),
    "concat": (lambda x, y: us.concat([x, y, x], axis=1), normal(3, 2), normal(3, 4)),
    "concat flat": (lambda x, y: us.concat([x, y], axis=None), normal(3, 2), normal(4)),
    "stack": (lambda x, y: us.stack([x, y], axis=-1), normal(3, 2), normal(3, 2)),
    "unstack": (lambda x: us.unstack(x, axis=1), normal(3, 2)),
    "expand_dims": (lambda x: us.expand_dims(x, axis=1), normal(3, 2)),
    "squeeze": (lambda x: us.squeeze(x, axis=1), normal(3, 1, 2)),
    "flip": (lambda x: us.flip(x, axis=(0, -1)), normal(3, 2, 2)),
    "moveaxis": (lambda x: us.moveaxis(x, (0, 1), (-1, 0)), normal(3, 2, 2)),
    "permute_dims": (lambda x: us.permute_dims(x, (2, 0, 1)), normal(3, 2, 4)),
    "repeat": (lambda x: us.repeat(x, us.asarray([1, 2, 0]), axis=0), normal(3, 2)),
    "repeat number": (lambda x: us.repeat(x, 2), normal(3, 2)),
    "reshape": (lambda x: us.reshape(x, (2, -1)), normal(3, 4)),
    "roll": (lambda x: us.roll(x, (1, -2), axis=(0, 1)), normal(3, 4)),
    "roll flat": (lambda x: us.roll(x, 2), normal(3, 4)),
    "tile": (lambda x: us.tile(x, (2, 1, 3)), normal(3, 2)),
    "tril": (lambda x: us.tril(x, k=1), normal(3, 4)),
    "triu": (lambda x: us.triu(x, k=-1), normal(2, 3, 4)),
    "take": (lambda x: us.take(x, us.asarray([2, 0, 2, -1]), axis=1), normal(2, 3, 2)),
    "take_along_axis": (lambda x: us.take_along_axis(x, us.asarray([[1, 1], [0, -1], [1, 0]]), axis=1), normal(3, 2)),
    "take_along_axis broadcast": (lambda x: us.take_along_axis(x, us.asarray([[[1, 1]]]), axis=1), normal(3, 2, 2)),
    "index": (lambda x: x[1:, None, ::2], normal(3, 4)),
    "index by arrays": (lambda x: x[np.asarray([0, 2, 0]), 1:], normal(3, 4)),
    "index twice": (lambda x: x[0] * x[:2, 0:1] + x[-1], normal(3, 4)),
    "cumulative_sum": (lambda x: us.cumulative_sum(x, axis=-1, include_initial=True), normal(3, 4)),
    "cumulative_sum first": (lambda x: us.cumulative_sum(x, axis=0), normal(3, 4)),
    "sum": (lambda x: us.sum(x, axis=(0, -1)), normal(3, 4, 2)),
    "sum all": (us.sum, normal(3, 4)),
    "mean": (lambda x: us.mean(x, axis=1, keepdims=True), normal(3, 4)),
    "mean all": (us.mean, normal(3, 4)),
    "max": (lambda x: us.max(x, axis=(0, 1)), apart(3, 4, 2)),
    "min": (lambda x: us.min(x, keepdims=True), apart(3, 4)),
    "prod": (lambda x: us.prod(x, axis=1), positive(3, 4)),
    "prod with zero": (lambda x: us.prod(x, axis=(0, 2)), normal(3, 2, 2) * (np.arange(12) != 5).reshape(3, 2, 2)),
    "std": (lambda x: us.std(x, axis=1, correction=1), normal(3, 4)),
    "var": (lambda x: us.var(x, axis=(0, 2), correction=0.5), normal(3, 2, 4)),
    "var all": (us.var, normal(3, 4)),
    "sort": (lambda x: us.sort(x, axis=0, descending=True), apart(3, 4)),
    "methods": (lambda x: x.mean(axis=0) * x.max(axis=0) + x.sum(0) + x.std(0) - x.T[0, :3].min(), apart(3, 3)),
    "numpy's own": (lambda x: np.exp(x) * np.maximum(x, 0.1) + np.matmul(x, x), apart(3, 3)),
    "elu": (lambda x: us.nn.elu(x, alpha=0.7), apart(3, 4)),
    "gelu": (us.nn.gelu, normal(3, 4)),
    "gelu at zero": (us.nn.gelu, np.asarray([0.0, -0.0, 1.0])),
    "gelu tanh": (lambda x: us.nn.gelu(x, approximate=True), normal(3, 4)),
    "leaky_relu": (lambda x: us.nn.leaky_relu(x, negative_slope=0.2), apart(3, 4)),
    "relu": (us.nn.relu, apart(3, 4)),
    "sigmoid": (us.nn.sigmoid, normal(3, 4)),
    "silu": (us.nn.silu, normal(3, 4)),
    "softplus": (us.nn.softplus, apart(3, 4)),
    "softmax": (lambda x: us.nn.softmax(x, axis=0), normal(3, 4)),
    "log_softmax": (us.nn.log_softmax, normal(3, 4)),
    "logsumexp": (lambda x: us.nn.logsumexp(x, axis=(0, 2)), normal(3, 4, 2)),
    "logsumexp all": (us.nn.logsumexp, normal(3, 4)),
    "linear": (us.nn.linear, normal(2, 3, 4), normal(5, 4), normal(5)),
    "linear without bias": (us.nn.linear, normal(3, 4), normal(5, 4)),
    "linear of a vector": (us.nn.linear, normal(4), normal(5, 4), normal(5)),
    "conv2d": (us.nn.conv2d, IMAGE, KERNEL, normal(6)),
    "conv2d options": (
        lambda x, w, b: us.nn.conv2d(x, w, b, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2), IMAGE,
            GROUPED, normal(6),
    ),
    "conv2d same": (lambda x, w: us.nn.conv2d(x, w, stride=2, padding="same"), IMAGE, KERNEL),
    "conv2d channels first": (lambda x, w: us.nn.conv2d(x, w, data_format="NCHW"), normal(2, 4, 5, 5), KERNEL),
    "conv2d depthwise": (lambda x, w: us.nn.conv2d(x, w, groups=4), IMAGE, normal(4, 1, 3, 3)),
    "conv2d of one pixel": (us.nn.conv2d, IMAGE, normal(3, 4, 1, 1), normal(3)),
    "conv1d": (lambda x, w, b: us.nn.conv1d(x, w, b, stride=2, padding=1), normal(2, 7, 4), normal(6, 4, 3), normal(6)),
    "conv1d channels first": (lambda x, w: us.nn.conv1d(x, w, data_format="NCL", padding="same"), normal(2, 4, 7),
        normal(6, 4, 3)),
    "max_pool2d": (lambda x: us.nn.max_pool2d(x, 2), apart(2, 5, 4, 3)),
    "max_pool2d options": (lambda x: us.nn.max_pool2d(x, (3, 2), stride=(1, 2), padding=(1, 0),
        data_format="NCHW"), apart(2, 3, 5, 4)),
    "avg_pool2d": (lambda x: us.nn.avg_pool2d(x, (2, 3), stride=1, padding=1), normal(2, 4, 5, 3)),
    "layer_norm": (lambda x, w, b: us.nn.layer_norm(x, w, b, ndim=2), normal(3, 4, 2), normal(4, 2), normal(4, 2)),
    "layer_norm plain": (us.nn.layer_norm, normal(3, 4)),
    "rms_norm": (us.nn.rms_norm, normal(3, 4), normal(4)),
    "group_norm": (lambda x, w, b: us.nn.group_norm(x, 2, w, b), normal(2, 3, 3, 4), normal(4), normal(4)),
    "group_norm channels first": (
        lambda x, w, b: us.nn.group_norm(x, 2, w, b, data_format="NCHW"), normal(2, 4, 3, 3), normal(4), normal(4),
    ),
    "attention": (us.nn.scaled_dot_product_attention, normal(2, 4, 3), normal(2, 3, 3), normal(2, 3, 5)),
    "attention causal": (
        lambda q, k, v: us.nn.scaled_dot_product_attention(q, k, v, causal=True, scale=0.3), normal(2, 3, 3),
            normal(3, 3), normal(2, 3, 5),
    ),
    "attention masked": (
        lambda q, k, v: us.nn.scaled_dot_product_attention(q, k, v, mask=us.asarray(MASK)), normal(2, 4, 3),
            normal(2, 3, 3), normal(2, 3, 5),
    ),
    "attention of nothing": (
        lambda q, k, v: us.nn.scaled_dot_product_attention(q, k, v, mask=us.asarray(MASK & [[True], [False], [True],
            [False]])), normal(2, 4, 3), normal(2, 3, 3), normal(2, 3, 5),
    ),
    "attention biased": (
        lambda q, k, v, m: us.nn.scaled_dot_product_attention(q, k, v, mask=m), normal(2, 4, 3), normal(2, 3, 3),
            normal(2, 3, 5), normal(4, 3),
    ),
    "embedding": (lambda w: us.nn.embedding(w, us.asarray([[2, 0], [2, 4]])), normal(5, 3)),
    "cross entropy": (lambda x: us.nn.softmax_cross_entropy_with_integer_labels(x, us.asarray(LABELS)), normal(3, 5)),
    "dropout": (lambda x: us.nn.dropout(x, 0.5, us.random.Key(1)), normal(3, 5)),
    "scan": (lambda x: us.scan(lambda c, v: (us.sin(c) + v, c * v), x[0], x), normal(4, 3)),
    "recompute": (us.recompute(lambda x, y: (us.sin(x) * y, us.sum(x))), normal(3, 4), normal(4)),
}  # fmt: skip
apart_condition = np.asarray([[True, False, True, False]])

# The second derivative of a kink or a choice is zero where it exists; the differences agree there too.
CASES_BY_NAME = [pytest.param(*case, id=name) for name, case in CASES.items() for case in [(case[0], case[1:])]]


def weighted(fn):
    """fn as a scalar: its results multiplied with fixed numbers and summed."""

    def scalar(*args):
        leaves = us.tree.leaves(fn(*args))
        total = 0.0
        for k, leaf in enumerate(leaves):
            weights = np.cos(np.arange(leaf.size, dtype="float64") + k).reshape(leaf.shape).astype(us.dtype_of(leaf))
            total = total + us.sum(leaf * weights)
        return total

    return scalar


def differences(fn, args, i, step=1e-6):
    """∂fn/∂args[i] by central differences."""
    result = np.zeros(args[i].shape)
    for place in np.ndindex(*args[i].shape):
        ends = []
        for sign in (1, -1):
            moved = [a.copy() for a in args]
            moved[i][place] += sign * step
            ends.append(float(fn(*moved)))
        result[place] = (ends[0] - ends[1]) / (2 * step)
    return result


@pytest.mark.parametrize(("fn", "args"), CASES_BY_NAME)
def test_first_order(fn, args):
    scalar = weighted(fn)
    before = [a.copy() for a in args]
    value, gradients = us.value_and_grad(scalar, argnums=tuple(range(len(args))))(*args)
    np.testing.assert_allclose(value, scalar(*args), rtol=1e-12)
    for i, g in enumerate(gradients):
        assert g.shape == args[i].shape
        np.testing.assert_allclose(g, differences(scalar, args, i), rtol=1e-6, atol=1e-7)
    for a, b in zip(args, before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("fn", "args"), CASES_BY_NAME)
def test_second_order(fn, args):
    """The derivative of a weighted sum of all gradients, in every argument."""
    scalar = weighted(fn)
    everything = tuple(range(len(args)))
    slope = weighted(us.grad(lambda *a: us.sin(scalar(*a)), argnums=everything))
    for i, g in enumerate(us.grad(slope, argnums=everything)(*args)):
        np.testing.assert_allclose(g, differences(slope, args, i), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("fn", "args"), CASES_BY_NAME)
def test_float32_stays(fn, args, request):
    small = [a.astype("float32") for a in args]
    expected = us.grad(weighted(fn), argnums=tuple(range(len(args))))(*args)
    if "astype" in request.node.name:
        fn = us.exp
        expected = us.grad(weighted(fn))(*args)
        expected = expected if isinstance(expected, tuple) else (expected,)
    results = us.tree.leaves(fn(*small))
    value, gradients = us.value_and_grad(weighted(fn), argnums=tuple(range(len(args))))(*small)
    assert {str(us.dtype_of(r)) for r in results} == {"float32"}
    assert us.dtype_of(value) == "float32"
    for g, e in zip(gradients, expected, strict=True):
        assert g.dtype == "float32"
        np.testing.assert_allclose(g, e, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(("fn", "args"), CASES_BY_NAME)
def test_pullback_is_linear_in_the_cotangent(fn, args):
    """A traced cotangent: the derivative of the pullback in it is the function's own derivative."""
    value, pullback = us.vjp(fn, *args)
    leaves, structure = us.tree.flatten(value)
    cotangents = [np.sin(1.0 + np.arange(leaf.size)).reshape(leaf.shape) for leaf in leaves]

    def energy(cotangents):
        return weighted(lambda: pullback(us.tree.unflatten(structure, list(cotangents))))()

    g = us.grad(energy)(cotangents)
    for i in range(len(cotangents)):
        np.testing.assert_allclose(g[i], differences(lambda *c: energy(list(c)), cotangents, i), rtol=1e-6, atol=1e-7)

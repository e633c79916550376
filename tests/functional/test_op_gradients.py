"""Gradients of the array functions in float64, against finite differences of NumPy's: one row per operation."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from checks import native, numeric_gradient, program
from test_elementwise import BINARY, UNARY

import unisync as us

STEPS = ["ceil", "floor", "round", "trunc", "sign"]  # flat: their gradient is zero
ELEMENTWISE = [n for n, row in UNARY.items() if "f" in row[3] and not n.startswith("is")]
PAIRS = ["add", "atan2", "divide", "logaddexp", "maximum", "minimum", "multiply", "pow", "subtract"]
X = np.asarray([[0.3, -1.2, 0.9], [1.7, 0.45, -0.6]])
Y = np.asarray([[0.8, 1.3, 2.1]])
ROWS = {  # name: functions of a module (us or np) and x; the same text computes the oracle
    "astype": lambda m, x: m.astype(x, "float64"),
    "broadcast_arrays": lambda m, x: m.broadcast_arrays(x, m.reshape(x, (2, 1, 3)))[1],
    "broadcast_to": lambda m, x: m.broadcast_to(x, (2, 2, 3)),
    "clip": lambda m, x: m.clip(x, -0.7, 1.0),
    "concat": lambda m, x: m.concat([x, x * 2], axis=1),
    "cumulative_sum": lambda m, x: m.cumulative_sum(x, axis=1),
    "expand_dims": lambda m, x: m.expand_dims(x, axis=1),
    "flip": lambda m, x: m.flip(x, axis=1),
    "matmul": lambda m, x: m.matmul(x, m.matrix_transpose(x)),
    "matrix_transpose": lambda m, x: m.matrix_transpose(x),
    "max": lambda m, x: m.max(x, axis=1),
    "mean": lambda m, x: m.mean(x, axis=(0, 1), keepdims=True),
    "min": lambda m, x: m.min(x, axis=0),
    "moveaxis": lambda m, x: m.moveaxis(x, 0, 1),
    "permute_dims": lambda m, x: m.permute_dims(x, (1, 0)),
    "prod": lambda m, x: m.prod(x, axis=1),
    "repeat": lambda m, x: m.repeat(x, 2, axis=0),
    "reshape": lambda m, x: m.reshape(x, (3, 2)),
    "roll": lambda m, x: m.roll(x, 1, axis=1),
    "sort": lambda m, x: m.sort(x, axis=1),
    "squeeze": lambda m, x: m.squeeze(m.reshape(x, (2, 1, 3)), axis=1),
    "stack": lambda m, x: m.stack([x, x * x]),
    "std": lambda m, x: m.std(x, axis=1),
    "sum": lambda m, x: m.sum(x, axis=0) + m.sum(x),
    "take": lambda m, x: m.take(x, m.asarray([1, 1, 0]), axis=1),
    "take_along_axis": lambda m, x: m.take_along_axis(x, m.asarray([[0, 0, 2], [1, 1, 1]]), axis=1),
    "tensordot": lambda m, x: m.tensordot(x, x, axes=((1,), (1,))),
    "tile": lambda m, x: m.tile(x, (2, 1)),
    "tril": lambda m, x: m.tril(x),
    "triu": lambda m, x: m.triu(x),
    "unstack": lambda m, x: m.unstack(x, axis=1)[0] * 3,
    "var": lambda m, x: m.var(x, axis=0, correction=1),
    "vecdot": lambda m, x: m.vecdot(x, x * 2),
    "where": lambda m, x: m.where(x > 0, x * 2, x * x),
    "getitem": lambda m, x: x[1] * x[0, 1] + x[..., 2:],
    "operators": lambda m, x: (2 - x) / (x * x + 1) + x**2 @ m.ones((3, 1), dtype="float64") - -x,
}


def weights(shape) -> np.ndarray:
    return np.linspace(0.5, 1.5, int(np.prod(shape))).reshape(shape)


def check(of_us, of_numpy, x: np.ndarray) -> None:
    """us.grad of a weighted sum against the finite differences of NumPy's."""

    def loss(x):
        y = of_us(x)
        return us.sum(y * native(weights(tuple(y.shape))))

    def host(x):
        y = np.asarray(of_numpy(x))
        return np.sum(y * weights(y.shape))

    got = program(us.grad(loss))(native(x))
    assert us.dtype_of(got) == "float64"
    np.testing.assert_allclose(us.to_numpy(got), numeric_gradient(host, x), rtol=2e-6, atol=2e-8)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_unary(backend, name):
    oracle, low, high, _ = UNARY[name]
    x = np.linspace(low, high, 7)[1:-1] + 0.013
    check(getattr(us, name), oracle, x)
    if name in STEPS:
        gradient = program(us.grad(lambda x: us.sum(getattr(us, name)(x))))(native(x))
        np.testing.assert_array_equal(us.to_numpy(gradient), 0)


@pytest.mark.parametrize("name", PAIRS)
def test_binary(backend, name):
    op, oracle = getattr(us, name), BINARY[name][0]
    x = np.abs(X) + 0.1
    check(lambda x: op(x, native(Y)), lambda x: oracle(x, Y), x)
    check(lambda y: op(native(x), y), lambda y: oracle(x, y), Y)  # broadcast: the gradient sums
    check(lambda x: op(x, 1.25), lambda x: oracle(x, 1.25), x)
    check(lambda x: op(1.25, x), lambda x: oracle(1.25, x), x)


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_division_with_remainder(backend, name):
    check(lambda x: getattr(us, name)(x, 0.7), lambda x: getattr(np, name)(x, 0.7), X)


@pytest.mark.parametrize("name", ROWS)
def test_operation(backend, name):
    check(functools.partial(ROWS[name], us), functools.partial(ROWS[name], np), X)


LISTS = {  # name: (the lists and numbers from x, the oracle)
    "multi_add": (lambda x: ([x], [x + 1]), lambda x: x + (x + 1)),
    "multi_divide": (lambda x: ([x], [x + 1]), lambda x: x / (x + 1)),
    "multi_multiply": (lambda x: ([x], [x + 1]), lambda x: x * (x + 1)),
    "multi_norm": (lambda x: ([x],), lambda x: np.sqrt(np.sum(x * x))),
    "multi_scale": (lambda x: ([x], 2.0), lambda x: 2 * x),
    "multi_sqrt": (lambda x: ([x],), np.sqrt),
}


@pytest.mark.parametrize("name", LISTS)
def test_list_operation(backend, name):
    arguments, oracle = LISTS[name]
    check(lambda x: getattr(us, name)(*arguments(x))[0], oracle, np.abs(X) + 0.1)

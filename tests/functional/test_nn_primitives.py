"""The nn primitives: values against torch.nn.functional, gradients against finite differences and each other."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from checks import assert_same, native, numeric_gradient, program
from nn_cases import Case, cases

import unisync as us

torch = pytest.importorskip("torch", reason="torch.nn.functional is the outside oracle")
CASES = cases()
every_case = pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case}" for i, case in enumerate(CASES)])


def cast(array: np.ndarray, dtype: str) -> np.ndarray:
    return array.astype(dtype) if array.dtype == "float64" else array


def value_of_torch(case: Case, dtype: str) -> np.ndarray:
    """torch's value of a case."""
    with torch.no_grad():
        return case.torch(*[torch.from_numpy(cast(a, dtype)) for a in case.arrays]).numpy()


@every_case
def test_value_in_single_precision(backend, case):
    got = program(_with_mask_of(case, "float32").call)(*native([cast(a, "float32") for a in case.arrays]))
    assert_same(got, value_of_torch(case, "float32"), dtype="float32", scale=2)


def _with_mask_of(case: Case, dtype: str) -> Case:
    """The case with its additive mask, if it has one, in the arrays' dtype."""
    mask = case.kwargs.get("mask")
    return case if mask is None else replace(case, kwargs={**case.kwargs, "mask": cast(mask, dtype)})


def weighted(case: Case, *arrays):
    """A number that depends on every element of the case's value in a different way; and the value."""
    y = case.call(*arrays)
    shape = tuple(y.shape)
    return us.sum(y * native(np.linspace(0.5, 1.5, int(np.prod(shape))).reshape(shape))), y


def split(case: Case) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The arrays to differentiate, and the rest."""
    count = len(case.arrays) if case.differentiable is None else case.differentiable
    return list(case.arrays[:count]), list(case.arrays[count:])


@functools.cache
def reference(index: int) -> list[np.ndarray]:
    """The finite differences of a case in float64, through torch's own function."""
    case = CASES[index]
    inner, constants = split(case)

    def value(i: int, x: np.ndarray) -> float:
        arrays = [*inner[:i], x, *inner[i + 1 :], *constants]
        with torch.no_grad():
            y = case.torch(*[torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]).numpy()
        return float(np.sum(y * np.linspace(0.5, 1.5, y.size).reshape(y.shape)))

    return [numeric_gradient(functools.partial(value, i), np.ascontiguousarray(x)) for i, x in enumerate(inner)]


@functools.cache
def analytic(index: int) -> list[np.ndarray]:
    """torch's own gradients of a case in float64."""
    case = CASES[index]
    inner, constants = split(case)
    tensors = [torch.from_numpy(np.ascontiguousarray(x)).requires_grad_() for x in inner]
    y = case.torch(*tensors, *[torch.from_numpy(c) for c in constants])
    loss = (y * torch.linspace(0.5, 1.5, y.numel(), dtype=torch.float64).reshape(y.shape)).sum()
    return [g.numpy() for g in torch.autograd.grad(loss, tensors)]


@every_case
def test_value_and_gradient(backend, case):
    index = CASES.index(case)
    inner, constants = split(case)
    host = native(constants)
    differentiated = us.grad(lambda arrays: weighted(case, *arrays, *host), has_aux=True)
    gradients, value = program(differentiated)(native(inner))
    assert_same(value, value_of_torch(case, "float64"), scale=1000)
    for got, numeric, exact in zip(gradients, reference(index), analytic(index), strict=True):
        np.testing.assert_allclose(us.to_numpy(got), numeric, rtol=1e-6, atol=1e-7)
        assert_same(got, exact, scale=1000)


FIRST_OF_ITS_NAME = list({case.name: case for case in reversed(CASES)}.values())


@pytest.mark.parametrize("case", FIRST_OF_ITS_NAME, ids=[case.name for case in FIRST_OF_ITS_NAME])
def test_compiled_as_eager(backend, case):
    arrays = native(list(case.arrays))
    assert_same(us.jit(lambda *xs: case.call(*xs))(*arrays), us.to_numpy(case.call(*arrays)), scale=1000)


def test_ties_of_max_pool(backend):
    x = us.ones((1, 4, 4, 1), dtype="float64")
    gradient = us.grad(lambda x: us.sum(us.nn.max_pool2d(x, 2)))(x)
    first = np.zeros((1, 4, 4, 1))
    first[0, ::2, ::2, 0] = 1  # the first of the equal ones, as in torch
    np.testing.assert_array_equal(us.to_numpy(gradient), first)


def test_relu_is_flat_at_zero(backend):
    np.testing.assert_array_equal(us.to_numpy(us.grad(lambda x: us.sum(us.nn.relu(x)))(us.zeros(2))), [0, 0])


@pytest.mark.parametrize("dtype", [None, "float64", "int32", "bool"])
def test_one_hot(backend, dtype):
    x = np.asarray([[1, 0], [2, 5]])
    wanted = (x[..., None] == np.arange(3)).astype(dtype or "float32")  # all zero for a class out of range
    assert_same(us.nn.one_hot(native(x), 3, dtype=dtype), wanted)
    assert_same(us.nn.one_hot(native(np.asarray(1, dtype="int32")), 2), np.asarray([0, 1], "float32"))


def test_extremes_do_not_overflow(backend):
    x = np.asarray([[1e4, -1e4, 0.0]], dtype="float32")
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for name in ("sigmoid", "softplus", "softmax", "log_softmax", "logsumexp", "silu", "gelu", "elu", "tanh"):
            both = us.value_and_grad(lambda x, name=name: us.sum(getattr(us.nn, name)(x)))
            y, g = program(both)(native(x))
            assert np.isfinite(us.to_numpy(y)), name
            assert np.all(np.isfinite(us.to_numpy(g))), name


def test_masked_row(backend):
    x = us.ones((1, 2, 3))
    mask = us.asarray([[True, False], [True, True]])
    got = us.nn.scaled_dot_product_attention(x, x, us.asarray([[[1.0], [3.0]]]), mask=mask)
    assert_same(got, np.asarray([[[1.0], [2.0]]], "float32"))


def test_causal_and_mask_together(backend):
    x = us.ones((1, 2, 3))
    with pytest.raises(ValueError, match="Try: "):
        us.nn.scaled_dot_product_attention(x, x, x, mask=us.asarray([[True, True], [True, True]]), causal=True)


def test_dropout(backend):
    key, x = us.random.Key(1), us.ones(1000)
    y = us.to_numpy(us.nn.dropout(x, 0.25, key))
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 150 < np.sum(y == 0) < 350
    np.testing.assert_array_equal(y, us.to_numpy(us.nn.dropout(x, 0.25, key)))
    assert us.nn.dropout(x, 0.0, key) is x
    assert not np.any(us.to_numpy(us.nn.dropout(x, 1.0, key)))
    gradient = us.grad(lambda x: us.sum(us.nn.dropout(x, 0.25, key)))(x)
    np.testing.assert_array_equal(us.to_numpy(gradient), y)

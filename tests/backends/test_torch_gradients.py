"""Gradients on torch beyond what every backend promises: leaves, layouts, threads, native graphs around."""

from __future__ import annotations

import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import unisync as us  # noqa: E402
from unisync.backends.torch import gradients  # noqa: E402
from unisync.errors import TraceError  # noqa: E402


@pytest.fixture(autouse=True)
def on_torch():
    with us.backend("torch"):
        yield


def test_parameters_of_the_user_stay_as_they_are():
    p = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    value, g = us.value_and_grad(lambda p: us.sum(p * p))(p)
    assert type(g) is torch.Tensor
    assert g.tolist() == [2, 4]
    assert not value.requires_grad
    assert not g.requires_grad
    assert p.grad is None
    assert p.requires_grad


def test_a_parameter_in_a_closure():
    p = torch.nn.Parameter(torch.tensor(3.0))
    (value, aux), g = us.value_and_grad(lambda x: (x * p, {"p": p * 2}), has_aux=True)(torch.tensor(2.0))
    assert (value.item(), g.item()) == (6, 3)
    assert not aux["p"].requires_grad
    assert p.grad is None


def test_nested_in_three_ways():
    x = torch.tensor(2.0)
    cube = lambda x: x**3  # noqa: E731
    assert us.grad(us.grad(us.grad(cube)))(x).item() == 6
    # the inner argument is a view of the outer one, and the closure sees the outer one itself
    assert us.grad(lambda x: x * us.grad(lambda y: y * y * x)(x))(x).item() == 3 * 2 * 4
    # an inner argument that is no function of the outer one
    assert us.grad(lambda x: us.grad(lambda y: y * y * x)(torch.tensor(5.0)))(x).item() == 10


def test_inner_value_and_aux_reach_the_outer_gradient():
    def outer(x):
        (value, aux), g = us.value_and_grad(lambda y: (y * y, y * 7), has_aux=True)(x)
        return value + aux + g

    assert us.grad(outer)(torch.tensor(3.0)).item() == 6 + 7 + 2


def test_pullback_of_a_pullback():
    value, pullback = us.vjp(lambda x: x**2, torch.tensor([3.0]))
    assert not value.requires_grad
    (first,), (second,) = pullback(torch.ones(1)), pullback(torch.ones(1) * 2)
    assert (first.item(), second.item()) == (6, 12)
    assert us.grad(lambda c: us.sum(pullback(c)[0]))(torch.ones(1)).tolist() == [6]


def test_gradients_work_where_torch_records_nothing():
    with torch.no_grad():
        assert us.grad(lambda x: us.sum(x * x))(torch.tensor([2.0])).tolist() == [4]
        assert not torch.is_grad_enabled()


def test_depth_is_left_after_an_error():
    def fails(x):
        raise KeyError

    with pytest.raises(KeyError):
        us.grad(fails)(torch.tensor(1.0))
    value, _ = us.value_and_grad(lambda x: x * 1)(torch.tensor(1.0))
    assert not value.requires_grad
    assert us.to_numpy(torch.ones(1, requires_grad=True)) == 1


def test_threads_have_their_own_depth():
    entered, leave, result = threading.Event(), threading.Event(), []

    def slow(x):
        entered.set()
        assert leave.wait(10)
        return x * x

    thread = threading.Thread(target=lambda: result.append(us.grad(slow)(torch.tensor(3.0))))
    thread.start()
    assert entered.wait(10)
    value, g = us.value_and_grad(lambda x: x * x)(torch.tensor(5.0))
    leave.set()
    thread.join()
    assert not value.requires_grad
    assert (g.item(), result[0].item()) == (10, 6)


def test_a_traced_array_has_no_numpy_form():
    with pytest.raises(TraceError, match="has_aux"):
        us.grad(lambda x: us.sum(x) * float(us.to_numpy(us.sum(x))))(torch.ones(2))
    assert us.grad(lambda x: us.sum(x) * float(us.to_numpy(us.stop_gradient(us.sum(x)))))(torch.ones(2)).tolist() == [
        2,
        2,
    ]


@pytest.mark.parametrize("shape", [(6, 3, 3, 3), (6, 1, 5, 5), (4, 3, 1, 1)])
def test_gradient_has_the_strides_of_its_parameter(shape):
    w = torch.randn(shape)
    x = torch.randn(2, 8, 8, shape[1])
    assert us.grad(lambda w: us.sum(us.nn.conv2d(x, w) ** 2))(w).stride() == w.stride()
    last = w.contiguous(memory_format=torch.channels_last)
    g = us.grad(lambda w: us.sum(us.nn.conv2d(x, w) ** 2))(last)
    assert g.stride() == last.stride()
    (pulled,) = us.vjp(lambda w: us.nn.conv2d(x, w), w)[1](torch.ones_like(us.nn.conv2d(x, w)))
    assert pulled.stride() == w.stride()


def test_the_gradient_of_a_sum_may_be_written_to():
    g = us.grad(us.sum)(torch.ones(2, 3))
    g[0, 0] = 5
    assert g.tolist() == [[5, 1, 1], [1, 1, 1]]


def test_the_structure_may_change_between_calls():
    f = us.grad(lambda p: us.sum(p["a"] if isinstance(p["a"], torch.Tensor) else p["a"]["b"]))
    assert f({"a": torch.ones(1)})["a"].tolist() == [1]
    assert f({"a": {"b": torch.ones(1)}})["a"]["b"].tolist() == [1]
    assert f({"a": torch.ones(1), "c": torch.ones(1)})["c"].tolist() == [0]
    assert f({"a": np.ones(1, dtype=np.float32), "c": torch.ones(1)})["a"].tolist() == [1]


def test_attention_twice_differentiated():
    q = torch.randn(1, 2, 4, 8, dtype=torch.float64)

    def loss(q):
        return us.sum(us.nn.scaled_dot_product_attention(q, q, q, causal=True) ** 2)

    hessian_row = us.grad(lambda q: us.grad(loss)(q)[0, 0, 1, 2])(q)
    step = torch.zeros_like(q)
    step[0, 0, 3, 1] = 1e-6
    numeric = (us.grad(loss)(q + step)[0, 0, 1, 2] - us.grad(loss)(q - step)[0, 0, 1, 2]) / 2e-6
    np.testing.assert_allclose(hessian_row[0, 0, 3, 1].item(), numeric.item(), rtol=1e-6, atol=1e-8)


def test_recompute_runs_again_and_keeps_less():
    runs = []

    def block(x):
        runs.append(1)
        for _ in range(5):
            x = us.tanh(x)
        return x

    def kept(f) -> int:
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            us.grad(lambda x: us.sum(f(x)))(torch.ones(100))
        return sum(sizes)

    assert torch.equal(
        us.grad(lambda x: us.sum(us.recompute(block)(x)))(torch.ones(3)),
        us.grad(lambda x: us.sum(block(x)))(torch.ones(3)),
    )
    assert len(runs) == 3
    assert kept(block) >= 500


def test_jit_is_the_identity_unless_asked():
    from unisync.backends import torch as m

    f = lambda x: x  # noqa: E731
    assert m.jit(f) is f


def test_without_the_engine_that_torch_does_not_promise(monkeypatch):
    """Where torch's engine is not as it is known, torch.autograd.grad does the same."""

    def loss(p):
        return torch.sum(torch.sin(p["a"]) * 3.0), p["a"] + 1.0

    params = {"a": torch.arange(4.0), "unused": torch.ones(2)}
    (value, aux), gradient = us.value_and_grad(loss, has_aux=True)(params)
    monkeypatch.setattr(gradients, "_engine", lambda: None)
    (value2, aux2), gradient2 = us.value_and_grad(loss, has_aux=True)(params)
    assert torch.equal(value, value2)
    assert torch.equal(aux, aux2)
    assert not aux.requires_grad
    assert all(torch.equal(gradient[name], gradient2[name]) for name in params)

"""What grad, vjp, stop_gradient and recompute mean, the same on every backend."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from checks import assert_same, native, numbers

import unisync as us
from unisync.errors import ArgumentTypeError, ShapeError

EAGER = ("numpy", "torch")
"""The backends that run Python code each time; the others trace it."""


class Pair(NamedTuple):
    """A named tuple, as a tree."""

    first: object
    second: object


def close(got, wanted) -> None:
    np.testing.assert_allclose(us.to_numpy(got), wanted, rtol=1e-5, atol=1e-6)


def cube(x):
    return us.sum(x * x * x)


# grad and value_and_grad


def test_value_and_grad(backend):
    value, gradient = us.value_and_grad(cube)(us.asarray([1.0, 2.0]))
    assert_same(value, np.asarray(9, "float32"))
    assert_same(gradient, np.asarray([3, 12], "float32"))


def test_results_are_plain(backend):
    x = us.asarray([1.0, 2.0])
    value, gradient = us.value_and_grad(cube)(x)
    assert type(value) in {type(us.sum(x)), type(x)}
    assert type(gradient) is type(x)
    assert not getattr(value, "requires_grad", False)
    assert not getattr(gradient, "requires_grad", False)
    assert not getattr(x, "requires_grad", False)
    us.to_numpy(value), us.to_numpy(gradient)


def test_trees_and_argnums(backend):
    def f(params, x, pair):
        return us.sum(params["w"] * x) + us.sum(params["deep"]["b"][0]) * 2 + us.sum(pair.first * pair.second)

    params = {"w": us.asarray([1.0, 2.0]), "deep": {"b": [us.asarray([3.0])]}}
    x, pair = us.asarray([5.0, 6.0]), Pair(us.asarray([2.0]), us.asarray([3.0]))
    assert numbers_equal(us.grad(f)(params, x, pair), {"w": [5, 6], "deep": {"b": [[2]]}})
    got = us.grad(f, argnums=(0, 2))(params, x, pair)
    assert isinstance(got, tuple)
    assert isinstance(got[1], Pair)
    assert numbers_equal(got, ({"w": [5, 6], "deep": {"b": [[2]]}}, Pair([3], [2])))
    assert numbers_equal(us.grad(f, argnums=1)(params, x, pair), [1, 2])
    assert numbers_equal(us.grad(f, argnums=(1,))(params, x, pair), ([1, 2],))
    assert numbers_equal(us.grad(f, argnums=-1)(params, x, pair), Pair([3], [2]))


def numbers_equal(got, wanted) -> bool:
    lists = us.tree.map(lambda x: us.to_numpy(x).tolist(), got)
    return lists == wanted and type(lists) is type(wanted)


def test_keyword_arguments_are_constants(backend):
    f = us.grad(lambda x, *, scale, name: us.sum(x * scale) if name == "used" else us.sum(x))
    close(f(us.asarray([1.0, 2.0]), scale=us.asarray([3.0, 4.0]), name="used"), [3, 4])


def test_aux(backend):
    def f(x):
        return cube(x), {"twice": x * 2, "count": us.asarray(3), "note": None}

    (value, aux), gradient = us.value_and_grad(f, has_aux=True)(us.asarray([1.0, 2.0]))
    close(value, 9)
    close(gradient, [3, 12])
    assert_same(aux["twice"], np.asarray([2, 4], "float32"))
    assert us.dtype_of(aux["count"]) == "int64"
    assert aux["note"] is None
    assert not getattr(aux["twice"], "requires_grad", False)
    gradient, aux = us.grad(f, has_aux=True)(us.asarray([1.0, 2.0]))
    close(gradient, [3, 12])
    close(aux["twice"], [2, 4])


def test_aux_is_not_differentiated(backend):
    outer = us.grad(lambda x: us.value_and_grad(lambda y: (us.sum(y * y), us.sum(y) * 100), has_aux=True)(x)[0][0])
    close(outer(us.asarray([3.0])), [6])


def test_unused_gives_zeros(backend):
    params = {"used": us.asarray([1.0]), "unused": us.ones((2, 2), dtype="float64")}
    got = us.grad(lambda p: us.sum(p["used"] * 2))(params)
    assert_same(got["unused"], np.zeros((2, 2)))
    close(got["used"], [2])
    assert_same(us.grad(lambda x: us.sum(us.ones(2)))(us.asarray([1.0])), np.zeros(1, "float32"))


def test_constant_value(backend):
    value, gradient = us.value_and_grad(lambda x: us.asarray(5.0))(us.asarray([1.0]))
    close(value, 5)
    close(gradient, [0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradient_has_the_dtype_of_its_array(backend, dtype):
    x = us.ones(2, dtype=dtype)
    assert us.dtype_of(us.grad(cube)(x)) == dtype
    mixed = us.grad(lambda x: us.sum(us.multiply(x, us.asarray([2.0, 3.0], dtype="float64"))))(x)
    assert us.dtype_of(mixed) == dtype
    close(mixed, [2, 3])


def test_integer_arguments_beside(backend):
    f = us.grad(lambda x, i: us.sum(us.take(x, i)))
    close(f(us.asarray([1.0, 2.0, 3.0]), us.asarray([0, 0, 2])), [2, 0, 1])


def test_integer_leaf(backend):
    with pytest.raises(ArgumentTypeError, match=r"int64.*deep/b/0|deep/b/0.*int64"):
        us.grad(lambda p: us.sum(p["w"]))({"w": us.ones(2), "deep": {"b": [us.asarray([1, 2])]}})
    with pytest.raises(ArgumentTypeError, match="int64"):
        us.grad(lambda x: us.sum(x))(us.asarray([1, 2]))


@pytest.mark.parametrize("wrong", [lambda x: x, lambda x: us.reshape(us.sum(x), (1,))])
def test_value_that_is_not_a_scalar(backend, wrong):
    with pytest.raises(ShapeError, match=r"\(\)|scalar"):
        us.value_and_grad(wrong)(us.asarray([1.0]))


def test_value_that_is_not_floating(backend):
    with pytest.raises((ArgumentTypeError, ShapeError)):
        us.grad(lambda x: us.sum(us.astype(x, "int32")))(us.asarray([1.0]))


def test_nested(backend):
    first = us.grad(cube)
    second = us.grad(lambda x: us.sum(first(x)))
    third = us.grad(lambda x: us.sum(second(x)))
    x = us.asarray([1.0, 2.0])
    close(first(x), [3, 12])
    close(second(x), [6, 12])
    close(third(x), [6, 6])


def test_nested_over_another_argument(backend):
    f = us.grad(lambda x: us.sum(us.grad(lambda y: us.sum(x * y * y))(us.asarray([3.0]))))
    close(f(us.asarray([2.0])), [6])  # d/dx of 2·x·y at y = 3


def test_closure_over_the_outer_value(backend):
    def outer(x):
        inner = us.grad(lambda y: us.sum(us.exp(x * y)))
        return us.sum(inner(us.asarray([0.5])) * x)

    close(us.grad(outer)(us.asarray([1.0])), np.exp(0.5) * (2 + 0.5))  # of x² exp(x / 2) at 1


def test_perturbations_do_not_mix(backend):
    f = us.grad(lambda x: us.sum(x * us.grad(lambda y: us.sum(x + y))(us.asarray([1.0]))))
    close(f(us.asarray([4.0])), [1])  # 2 if the levels were confused


def test_an_exception_leaves_no_trace(backend):
    def bad(x):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        us.grad(bad)(us.ones(2))
    close(us.grad(us.grad(lambda x: x**3))(us.asarray(2.0)), 12)


def test_gradient_step_loop(backend):
    x = us.asarray([4.0])
    for _ in range(60):
        x = x - us.grad(lambda x: us.sum((x - 1.5) ** 2))(x) * 0.1
    close(x, [1.5])


# vjp


def test_vjp(backend):
    def f(x, p):
        return {"product": x * p["w"], "sum": us.sum(x)}

    x, p = us.asarray([1.0, 2.0]), {"w": us.asarray([3.0, 4.0])}
    value, pullback = us.vjp(f, x, p)
    close(value["product"], [3, 8])
    for scale in (1.0, 10.0):  # twice
        gx, gp = pullback({"product": us.asarray([scale, scale]), "sum": us.asarray(1.0)})
        close(gx, [3 * scale + 1, 4 * scale + 1])
        close(gp["w"], [scale, 2 * scale])


def test_vjp_of_what_is_unused(backend):
    _, pullback = us.vjp(lambda x, y: x * 2, us.asarray([1.0]), us.asarray([5.0, 6.0]))
    gx, gy = pullback(us.asarray([1.0]))
    close(gx, [2])
    assert_same(gy, np.zeros(2, "float32"))


def test_vjp_inside_grad(backend):
    def f(x):
        value, pullback = us.vjp(lambda y: y * y * y, x)
        (cotangent,) = pullback(us.ones(2))
        return us.sum(value) + us.sum(cotangent)

    close(us.grad(f)(us.asarray([1.0, 2.0])), [3 + 6, 12 + 12])


def test_grad_through_the_cotangent(backend):
    def f(c):
        _, pullback = us.vjp(lambda x: x * x, us.asarray([3.0]))
        return us.sum(pullback(c)[0])

    close(us.grad(f)(us.asarray([1.0])), [6])


# stop_gradient


def test_stop_gradient(backend):
    close(us.grad(lambda x: us.sum(x * us.stop_gradient(x)))(us.asarray([3.0])), [3])
    close(us.grad(lambda x: us.sum(us.stop_gradient({"a": [x]})["a"][0] * 2 + x))(us.asarray([3.0])), [1])
    x = us.asarray([1.0])
    close(us.stop_gradient(x), [1])
    assert us.stop_gradient({"a": x, "b": None})["b"] is None
    gradient = us.grad(lambda x: us.sum(us.stop_gradient(x)))(us.asarray([3.0]))
    assert_same(gradient, np.zeros(1, "float32"))


# recompute


def test_recompute_gives_the_same_gradient(backend):
    def block(p, x):
        return us.tanh(us.matmul(x, p["w"])) * p["b"]

    p = {"w": us.asarray([[0.1, 0.2], [0.3, 0.4]]), "b": us.asarray([1.0, -1.0])}
    x = us.asarray([[1.0, 2.0]])
    plain = us.grad(lambda p: us.sum(block(p, x)))(p)
    again = us.grad(lambda p: us.sum(us.recompute(block)(p, x)))(p)
    for name in p:
        close(again[name], us.to_numpy(plain[name]))
    close(us.recompute(block)(p, x), us.to_numpy(block(p, x)))


def test_recompute_runs_again(backend):
    calls = []

    def block(x):
        calls.append(1)
        return us.exp(us.exp(x))

    close(us.grad(lambda x: us.sum(us.recompute(block)(x)))(us.asarray([0.0])), np.exp(1))
    if backend in EAGER:
        assert len(calls) == 2
    calls.clear()
    us.recompute(block)(us.asarray([0.0]))
    assert len(calls) == 1 or backend not in EAGER


def test_recompute_over_a_closure(backend):
    def loss(x):
        return us.sum(us.recompute(lambda y: us.exp(y * x))(x))

    close(us.grad(loss)(us.asarray([1.0])), 2 * np.exp(1))


def test_recompute_nests_and_differentiates_twice(backend):
    f = us.recompute(lambda x: us.recompute(us.exp)(x) * x)
    close(us.grad(lambda x: us.sum(f(x)))(us.asarray([1.0])), 2 * np.exp(1))
    twice = us.grad(lambda x: us.sum(us.grad(lambda y: us.sum(f(y)))(x)))
    close(twice(us.asarray([1.0])), 3 * np.exp(1))


def test_recompute_with_other_arguments(backend):
    def f(x, indices, name, scale):
        assert name == "take"
        return {"y": us.take(x, indices) * scale, "n": indices}

    def loss(x):
        out = us.recompute(f)(x, us.asarray([0, 0]), "take", scale=2.0)
        return us.sum(out["y"])

    close(us.grad(loss)(us.asarray([1.0, 2.0])), [4, 0])


# Where the arrays belong


def test_host_arrays_beside_arrays(backend):
    host = np.asarray([1.0, 2.0], dtype="float32")
    x = us.asarray([3.0, 4.0])
    gradient = us.grad(lambda x, y: us.sum(x * us.asarray(y, like=x)))(x, host)
    assert backend == us.namespace(gradient).NAME
    close(gradient, [1, 2])


def test_arrays_decide_and_not_the_current_backend(backend):
    x = us.asarray([1.0, 2.0])
    with us.backend("numpy"):
        for got in (
            us.grad(cube)(x),
            us.jit(cube)(x),
            us.vjp(cube, x)[0],
            us.stop_gradient(x),
            us.recompute(us.exp)(x),
        ):
            assert backend == us.namespace(got).NAME
        assert backend == us.namespace(us.scan(lambda c, x: (c + x, c), x[0], x)[1]).NAME


def test_docs_and_names_are_kept(backend):
    def named(x):
        """Said."""
        return cube(x)

    for transformed in (us.grad(named), us.value_and_grad(named), us.jit(named), us.recompute(named)):
        assert transformed.__name__ == "named"
        assert transformed.__doc__ == "Said."


def test_tree_of_results_is_native(backend):
    tree = us.jit(lambda t: us.tree.map(lambda x: x * 2, t))(native({"a": np.ones(2), "b": [np.zeros(1)]}))
    assert numbers(tree)["a"].tolist() == [2, 2]

"""What jit and scan mean, the same on every backend."""

from __future__ import annotations

import numpy as np
import pytest
from checks import assert_same

import unisync as us
from unisync.errors import ArgumentError

EAGER = ("numpy", "torch")
"""The backends that run Python code each time; the others trace it."""


def close(got, wanted) -> None:
    np.testing.assert_allclose(us.to_numpy(got), wanted, rtol=1e-5, atol=1e-6)


def cube(x):
    return us.sum(x * x * x)


# jit


def test_jit_same_result(backend):
    def f(tree, x):
        return {"sum": us.sum(tree["a"]) + x, "pair": (tree["b"][0] * 2, None)}

    tree = {"a": us.asarray([1.0, 2.0]), "b": [us.asarray([3])]}
    plain, compiled = f(tree, us.asarray(1.0)), us.jit(f)(tree, us.asarray(1.0))
    assert compiled["pair"][1] is None
    for p, c in zip(us.tree.leaves(plain), us.tree.leaves(compiled), strict=True):
        assert us.dtype_of(p) == us.dtype_of(c)
        assert_same(c, us.to_numpy(p))
    us.tree.map(lambda *_: None, plain, compiled)  # of one structure


def test_jit_does_not_trace_again(backend):
    traces = []

    def f(p, x):
        traces.append(1)
        return us.sum(p["w"] * x)

    compiled = us.jit(f)
    for i in range(4):
        close(compiled({"w": us.asarray([1.0, float(i)])}, us.asarray([1.0, 2.0])), 1 + 2 * i)
    if backend not in EAGER:
        before = len(traces)
        assert before <= 2
        compiled({"w": us.asarray([5.0, 6.0])}, us.asarray([3.0, 4.0]))
        assert len(traces) == before
        compiled({"w": us.ones(3)}, us.ones(3))  # another shape
        assert len(traces) > before


def test_jit_constants(backend):
    f = us.jit(lambda x, how, none, scale=None: us.sum(x) if how == "sum" and none is None else us.max(x) * 0)
    x = us.asarray([1.0, 2.0])
    close(f(x, "sum", None), 3)
    close(f(x, "max", None), 0)
    close(f(x, "sum", None, scale="other"), 3)


def test_jit_python_numbers(backend):
    f = us.jit(lambda x, n: x * n)
    x = us.asarray([1.0, 2.0])
    for n in (2, 3, 2.5):
        close(f(x, n), [n, 2 * n])


def test_jit_key(backend):
    f = us.jit(lambda key, x: us.random.uniform(key, (3,), like=x))
    x, key = us.ones(1), us.random.Key(3)
    one, two, three = (us.to_numpy(f(k, x)) for k in (key, key, key.fold_in(1)))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, three)
    np.testing.assert_array_equal(one, us.to_numpy(us.random.uniform(key, (3,))))


def test_jit_committed_keys_do_not_trace_again(backend):
    traces = []

    def f(key, x):
        traces.append(1)
        return x * us.random.uniform(key, ())

    compiled = us.jit(f)
    seen = {float(compiled(us.random.Key(0).fold_in(i).commit(), us.asarray(1.0))) for i in range(5)}
    assert len(seen) == 5
    assert backend in EAGER or len(traces) <= 2


def test_jit_host_arrays_are_inputs(backend):
    f = us.jit(lambda x, y: us.sum(x * us.asarray(y, like=x)))
    for i in range(3):
        close(f(us.asarray([1.0, 2.0]), np.asarray([1.0, i], dtype="float32")), 1 + 2 * i)


def test_jit_of_a_gradient_and_gradient_of_a_jit(backend):
    x = us.asarray([1.0, 2.0])
    close(us.jit(us.grad(cube))(x), [3, 12])
    close(us.grad(us.jit(cube))(x), [3, 12])
    close(us.jit(us.grad(lambda x: us.sum(us.grad(cube)(x))))(x), [6, 12])
    close(us.jit(us.jit(cube))(x), 9)


def test_jit_donates(backend):
    step = us.jit(lambda p, x: {"w": p["w"] - x}, donate_argnums=(0,))
    p = {"w": us.ones(1000)}
    for _ in range(3):
        p = step(p, us.asarray(0.25))
    close(p["w"], np.full(1000, 0.25))


def test_jit_without_arrays(backend):
    close(us.jit(lambda: us.ones(2) * 2)(), [2, 2])


def test_jit_passes_errors_on(backend):
    def bad(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        us.jit(bad)(us.ones(2))


def test_jit_method_and_closure(backend):
    scale = us.asarray([2.0])

    class Model:
        def forward(self, x):
            return x * scale

    close(us.jit(Model().forward)(us.asarray([3.0])), [6])


# scan


def test_scan(backend):
    def f(carry, x):
        total = carry["total"] + x[0] * x[1]
        return {"total": total, "count": carry["count"] + 1}, (total, x[0])

    xs = (us.asarray([1.0, 2.0, 3.0]), us.asarray([10.0, 100.0, 1000.0]))
    carry, (totals, firsts) = us.scan(f, {"total": us.asarray(0.0), "count": us.asarray(0)}, xs)
    close(carry["total"], 3210)
    assert int(carry["count"]) == 3
    assert_same(totals, np.asarray([10, 210, 3210], "float32"))
    close(firsts, [1, 2, 3])


def test_scan_reverse(backend):
    carry, ys = us.scan(lambda c, x: (c * 2 + x, c), us.asarray(0.0), us.asarray([1.0, 2.0, 3.0]), reverse=True)
    close(carry, (3 * 2 + 2) * 2 + 1)
    close(ys, [8, 3, 0])


def test_scan_without_xs(backend):
    carry, ys = us.scan(lambda c, x: (c * 2, c if x is None else c * 0), us.asarray(1.0), None, length=4)
    close(carry, 16)
    close(ys, [1, 2, 4, 8])


def test_scan_without_ys(backend):
    carry, ys = us.scan(lambda c, x: (c + x, None), us.asarray([0.0, 0.0]), us.asarray([[1.0, 2.0], [3.0, 4.0]]))
    close(carry, [4, 6])
    assert ys is None


def test_scan_lengths(backend):
    def step(c, x):
        return c + x, c

    with pytest.raises(ArgumentError, match="length"):
        us.scan(step, us.asarray(0.0), None)
    with pytest.raises(ArgumentError, match="3"):
        us.scan(step, us.asarray(0.0), us.ones(3), length=4)
    with pytest.raises(ArgumentError, match="3"):
        us.scan(lambda c, x: (c + x[0], c), us.asarray(0.0), (us.ones(3), us.ones(2)))
    close(us.scan(step, us.asarray(0.0), us.ones(3), 3)[0], 3)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradient_through_scan(backend, compiled):
    def loss(w, xs):
        def step(h, x):
            h = us.tanh(h * w + x)
            return h, h

        last, hs = us.scan(step, us.zeros(2, like=xs), xs)
        return us.sum(last) + us.sum(hs * hs)

    def loop(w, xs):
        h, hs = us.zeros(2), []
        for x in us.unstack(xs):
            h = us.tanh(h * w + x)
            hs.append(h)
        return us.sum(h) + us.sum(us.stack(hs) * us.stack(hs))

    w, xs = us.asarray([0.5, -0.3]), us.asarray([[0.1, 0.2], [0.3, -0.4], [0.5, 0.6]])
    f = us.grad(loss, argnums=(0, 1))
    got, wanted = (us.jit(f) if compiled else f)(w, xs), us.grad(loop, argnums=(0, 1))(w, xs)
    close(got[0], us.to_numpy(wanted[0]))
    close(got[1], us.to_numpy(wanted[1]))


def test_scan_of_a_gradient(backend):
    def step(x, _):
        return x - us.grad(lambda x: us.sum((x - 2) ** 2))(x) * 0.25, None

    close(us.scan(step, us.asarray([0.0]), None, length=20)[0], [2])


def test_second_derivative_through_scan(backend):
    def f(x):
        return us.scan(lambda c, _: (c * x, None), us.asarray(1.0), None, length=3)[0]

    close(us.grad(us.grad(f))(us.asarray(2.0)), 12)

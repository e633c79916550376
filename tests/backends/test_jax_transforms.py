"""The jax backend's gradients, compilation, loops and random draws."""

import itertools
import warnings
from collections import namedtuple

import numpy as np
import pytest

import unisync as us
from unisync._key import Key
from unisync.errors import ArgumentError, ArgumentTypeError, ShapeError

jax = pytest.importorskip("jax")
jnp = jax.numpy

Pair = namedtuple("Pair", "left right")


@pytest.fixture(autouse=True)
def on_jax():
    with us.backend("jax"):
        yield


def equal(x, wanted):
    np.testing.assert_allclose(us.to_numpy(x), wanted, rtol=1e-6)


# Gradients


def test_every_tracer_dispatches():
    f = us.namespace(us.ones(1))
    seen = set()

    def watched(x):
        assert us.namespace(x) is f
        seen.add(type(x).__name__)
        return us.sum(us.exp(x))

    x = us.ones(3)
    us.jit(watched)(x)
    us.grad(watched)(x)
    jax.vmap(watched)(us.ones((3, 1)))
    us.jit(us.grad(watched))(x)
    jax.jvp(watched, (x,), (x,))
    assert len(seen) >= 3, seen


def test_value_and_grad_of_trees_and_positions():
    def f(p, x, q):
        return us.sum(p["w"] * x) + us.sum(q.left * 2.0)

    p, x, q = {"w": us.ones(2), "none": None}, us.asarray([1.0, 2.0]), Pair(us.ones(2), [us.ones(1)])
    value, (gp, gq) = us.value_and_grad(f, (0, 2))(p, x, q)
    equal(value, 7.0)
    equal(gp["w"], [1.0, 2.0])
    equal(gq.left, [2.0, 2.0])
    equal(gq.right[0], [0.0])  # the value does not depend on it
    assert gp["none"] is None


def test_aux_and_keywords_and_constants():
    def f(x, *, mode):
        return us.sum(x), {"mode": mode, "twice": x * 2, "count": 1}

    (value, aux), gradient = us.value_and_grad(f, has_aux=True)(us.ones(2), mode="fast")
    assert aux["mode"] == "fast"
    equal(aux["twice"], [2, 2])
    equal(gradient, [1, 1])
    equal(value, 2)


def test_a_python_float_is_differentiated_as_float32():
    gradient = us.grad(lambda x: x * x)(3.0)
    equal(gradient, 6.0)
    assert us.dtype_of(gradient) == "float32"


def test_gradients_keep_the_dtype_of_the_leaf():
    p = {"a": us.ones(2, dtype="bfloat16"), "b": us.ones(2, dtype="float64")}
    gradient = us.grad(lambda p: us.sum(us.multiply(p["a"], p["b"])))(p)
    assert [us.dtype_of(g) for g in gradient.values()] == ["bfloat16", "float64"]


REFUSED = {
    "int leaf": (lambda: us.grad(lambda p: us.sum(p["w"]["n"]))({"w": {"n": us.arange(2)}}), ArgumentTypeError, "w/n"),
    "key": (lambda: us.grad(lambda p: us.sum(p[0]))([us.ones(1), Key(0)]), ArgumentTypeError, "uint32"),
    "word": (lambda: us.grad(lambda p: us.sum(p["x"]))({"x": us.ones(1), "s": "word"}), ArgumentTypeError, "str"),
    "complex": (lambda: us.grad(lambda x: us.sum(us.abs(x)))(us.asarray([1j])), ArgumentTypeError, "complex64"),
    "vector value": (lambda: us.grad(lambda x: x * 2)(us.ones(2)), ShapeError, r"\(2,\)"),
    "int value": (lambda: us.grad(lambda x: us.argmax(x))(us.ones(2)), ArgumentTypeError, "int64"),
    "tree value": (lambda: us.grad(lambda x: {"x": us.sum(x)})(us.ones(2)), ArgumentTypeError, "dict"),
    "no aux": (lambda: us.grad(us.sum, has_aux=True)(us.ones(2)), ArgumentTypeError, "has_aux"),
    "vjp of ints": (lambda: us.vjp(lambda x: x, us.arange(2)), ArgumentTypeError, "int64"),
    "cotangent shape": (lambda: us.vjp(lambda x: x, us.ones(2))[1](us.ones(3)), ShapeError, r"\(3,\)"),
    "cotangent tree": (lambda: us.vjp(lambda x: (x, x), us.ones(2))[1](us.ones(2)), ArgumentError, "structure"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_differentiated(case):
    call, error, text = REFUSED[case]
    with pytest.raises(error, match=text):
        call()


def test_vjp_of_trees_with_integer_results_more_than_once():
    value, pullback = us.vjp(lambda p: {"y": p["x"] * 2, "n": us.argmax(p["x"])}, {"x": us.ones(2)})
    for scale in (1.0, 3.0):
        (gradient,) = pullback({"y": us.asarray([1.0, 10.0]) * scale, "n": us.asarray(0)})
        equal(gradient["x"], [2 * scale, 20 * scale])
    assert us.dtype_of(value["n"]) == "int64"


def test_gradients_nest_and_close_over_traced_values():
    def outer(x):
        inner = us.grad(lambda y: us.sum(x * y**3))(x)
        return us.sum(inner)

    equal(us.grad(outer)(us.asarray([2.0])), [36.0])
    equal(us.jit(us.grad(outer))(us.asarray([2.0])), [36.0])


def test_stop_gradient_of_a_tree():
    tree = {"x": us.ones(2), "key": Key(0), "n": 3, "s": "word"}
    stopped = us.stop_gradient(tree)
    assert stopped["key"] == Key(0)
    assert (stopped["n"], stopped["s"]) == (3, "word")
    equal(us.grad(lambda x: us.sum(x * us.stop_gradient({"x": x})["x"]))(us.asarray([3.0])), [3.0])


FIRST_MAXIMA = {
    (2, 2, 0): [(0, 0), (0, 2), (2, 0), (2, 2)],
    (3, 1, 0): [(0, 0), (0, 1), (1, 0), (1, 1)],
    (2, 2, 1): [(0, 0), (0, 1), (0, 3), (1, 0), (1, 1), (1, 3), (3, 0), (3, 1), (3, 3)],
}


@pytest.mark.parametrize("case", FIRST_MAXIMA)
def test_max_pool_gradient_goes_to_the_first_of_equals(case):
    window, stride, padding = case
    x = us.zeros((1, 4, 4, 1))
    gradient = us.grad(lambda x: us.sum(us.nn.max_pool2d(x, window, stride=stride, padding=padding)))(x)
    wanted = np.zeros((4, 4))
    for place in FIRST_MAXIMA[case]:
        wanted[place] += 1
    equal(gradient[0, :, :, 0], wanted)


def test_nan_goes_through_relu_and_max_pool():
    x = np.zeros((1, 4, 4, 1), dtype="float32")
    x[0, 1, 2, 0] = np.nan
    pooled = us.to_numpy(us.nn.max_pool2d(us.nn.relu(us.asarray(x)), 2))
    np.testing.assert_array_equal(np.isnan(pooled[0, :, :, 0]), [[False, True], [False, False]])


def test_gradients_at_kinks():
    zero = us.asarray([0.0])
    equal(us.grad(lambda x: us.sum(us.nn.relu(x)))(zero), [0.0])
    equal(us.grad(lambda x: us.sum(us.nn.leaky_relu(x, negative_slope=0.25)))(zero), [0.25])


CONVOLUTIONS = list(
    itertools.product(("NHWC", "NCHW"), (1, 2), (0, 1, "same", (2, 0)), (1, 2), ((3, 4, 1), (12, 5, 1), (4, 6, 2)))
)


@pytest.mark.parametrize("case", CONVOLUTIONS[::11])
def test_convolution_in_patches_is_xlas_own(case, rng):
    data_format, stride, padding, dilation, (channels, out, groups) = case
    x = us.asarray(rng.normal(size=(2, 9, 8, channels) if data_format == "NHWC" else (2, channels, 9, 8)))
    w = us.asarray(rng.normal(size=(out, channels // groups, 3, 2)))
    pads = "SAME" if padding == "same" else [(p, p) for p in ((padding, padding) if padding in (0, 1) else padding)]
    ours = us.nn.conv2d(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups, data_format=data_format)
    theirs = jax.lax.conv_general_dilated(
        x, w, (stride,) * 2, pads, rhs_dilation=(dilation,) * 2, feature_group_count=groups,
        dimension_numbers=(data_format, "OIHW", data_format),
    )  # fmt: skip
    np.testing.assert_allclose(us.to_numpy(ours), us.to_numpy(theirs), rtol=1e-9, atol=1e-9)


def test_large_convolutions_are_xlas_own():
    def primitives(n, k):
        shapes = [jax.ShapeDtypeStruct(s, "float32") for s in ((n, 16, 16, 64), (8, 64, k, k))]
        return str(jax.make_jaxpr(us.nn.conv2d)(*shapes))

    assert "conv_general_dilated" in primitives(64, 3)
    assert "conv_general_dilated" not in primitives(1, 3)
    assert "conv_general_dilated" not in primitives(1024, 1)  # no patches: a matrix product


def test_attention_to_nothing_is_zero():
    q = us.ones((1, 2, 4))
    mask = us.asarray([[[True, False], [False, False]]])
    y, gradient = us.value_and_grad(
        lambda q: us.sum(us.nn.scaled_dot_product_attention(q, us.ones((1, 2, 4)), us.ones((1, 2, 4)), mask=mask))
    )(q)
    equal(y, 4.0)
    assert np.isfinite(us.to_numpy(gradient)).all()


# Compilation


def counted(fn):
    def traced(*args, **kwargs):
        traced.count += 1
        return fn(*args, **kwargs)

    traced.count = 0
    return traced


def test_jit_traces_once_for_one_signature():
    f = counted(lambda p, state, x: ({"w": p["w"] - state["rate"] * x}, {"rate": state["rate"], "n": state["n"] + 1}))
    step = us.jit(f, donate_argnums=(0, 1))
    p, state = {"w": us.ones(3)}, {"rate": 0.5, "n": 0}
    for _ in range(4):
        p, state = step(p, state, us.ones(3))
    equal(p["w"], -np.ones(3))
    assert int(state["n"]) == 4
    assert f.count == 1  # the numbers became arrays, which are as weak


def test_donated_arrays_are_given_up():
    x = us.ones(16)
    us.jit(lambda x: x + 1, donate_argnums=(0,))(x)
    assert x.is_deleted()


def test_donated_host_arrays_stay_as_they_are():
    raw = np.ones(64 + 16, dtype="float32")
    start = (-raw.ctypes.data % 64) // 4
    host = raw[start : start + 64]  # aligned, so that jax could write into it
    add = us.jit(lambda x: x + 1, donate_argnums=(0,))
    equal(add(us.from_dlpack(host)), np.full(64, 2.0))
    np.testing.assert_array_equal(host, np.ones(64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        equal(add(host), np.full(64, 2.0))
    np.testing.assert_array_equal(host, np.ones(64))


def test_constants_among_the_arguments():
    f = counted(lambda x, name, options, act=None, train=False: act(x) * (2 if train else 1) * len(name) + options["k"])
    step = us.jit(f)
    x = us.asarray([-1.0, 2.0])
    options = {"k": 1.0, "note": None, "kind": us.float32}
    for _ in range(3):
        equal(step(x, "ab", options, act=us.nn.relu, train=True), [1.0, 9.0])
    assert f.count == 1
    equal(step(x, "ab", options, act=us.nn.relu, train=False), [1.0, 5.0])
    equal(step(x, "abc", options, act=us.abs, train=False), [4.0, 7.0])
    assert f.count == 3


def test_constants_beside_donated_arguments():
    step = us.jit(lambda name, p, n: {"w": p["w"] * n}, donate_argnums=(1,))
    p = {"w": us.ones(4)}
    equal(step("name", p, 3)["w"], np.full(4, 3.0))
    assert p["w"].is_deleted()


def test_a_constant_that_cannot_be_hashed_is_an_error():
    class Unhashable:
        __hash__ = None

    with pytest.raises(ArgumentTypeError, match="hashable"):
        us.jit(lambda x, o: x)(us.ones(1), Unhashable())


def test_flags_may_be_branched_on():
    f = us.jit(lambda x, train: x * 2 if train else x)
    equal(f(us.ones(1), True), [2.0])
    equal(f(us.ones(1), False), [1.0])


def test_errors_of_the_function_come_through():
    def f(x):
        raise TypeError("its own")

    with pytest.raises(TypeError, match="its own") as caught:
        us.jit(f)(us.ones(1))
    assert caught.value.__cause__ is None


def test_scan_carries_trees_and_checks_them():
    def f(carry, x):
        total, n = carry["total"] + x["a"], carry["n"] + 1
        return {"total": total, "n": n}, total

    xs = {"a": us.asarray([1.0, 2.0, 3.0])}
    carry, ys = us.scan(f, {"total": us.asarray(0.0), "n": 0}, xs)
    equal(carry["total"], 6.0)
    assert int(carry["n"]) == 3
    equal(ys, [1, 3, 6])
    equal(us.scan(f, {"total": us.asarray(0.0), "n": 0}, xs, reverse=True)[1], [6, 5, 3])
    equal(us.grad(lambda a: us.sum(us.scan(f, {"total": us.asarray(0.0), "n": 0}, {"a": a})[1]))(xs["a"]), [3, 2, 1])
    equal(us.scan(lambda c, _: (c * 2, None), us.asarray(1.0), None, 5)[0], 32)
    with pytest.raises(ArgumentError, match="length"):
        us.scan(f, us.asarray(0.0), None)
    with pytest.raises(ArgumentError, match="length=4"):
        us.scan(f, us.asarray(0.0), xs, 4)
    with pytest.raises(ArgumentTypeError, match="carry"):
        us.scan(lambda c, x: (us.astype(c, "float64"), x), us.asarray(0.0), xs)
    with pytest.raises(ArgumentTypeError, match="carry"):
        us.scan(lambda c, x: ((c, c), x), us.asarray(0.0), xs)


def test_recompute_runs_forward_twice_and_takes_constants():
    f = us.recompute(lambda p, power, name: us.sum(us.sin(p["x"]) ** power) if name == "sin" else None)
    plain = us.grad(lambda p: us.sum(us.sin(p["x"]) ** 2))
    p = {"x": us.asarray([0.5, 1.0])}
    gradient = us.grad(lambda p: f(p, 2, "sin"))
    equal(gradient(p)["x"], us.to_numpy(plain(p)["x"]))
    count = lambda g: str(jax.make_jaxpr(g)(p)).count("sin ")  # noqa: E731
    assert count(gradient) > count(plain)


# Random


def test_keys_in_compiled_functions_draw_as_outside():
    def draw(key):
        return {
            "uniform": us.random.uniform(key, (5,), low=-1.0, high=2.0),
            "normal": us.random.normal(key.fold_in(1), (5,), std=2.0),
            "bernoulli": us.random.bernoulli(key.fold_in(2), 0.5, (5,)),
            "float64": us.random.uniform(key, (2,), dtype=us.float64),
        }

    f = counted(draw)
    compiled = us.jit(f)
    for key in (Key(0), Key(1), Key(2).commit()):
        eager, traced = draw(key), compiled(key)
        for name in eager:
            np.testing.assert_allclose(us.to_numpy(eager[name]), us.to_numpy(traced[name]), rtol=1e-6)
    assert f.count == 1
    assert us.dtype_of(eager["uniform"]) == "float32"
    assert us.dtype_of(eager["float64"]) == "float64"
    assert len({float(draw(Key(i))["uniform"][0]) for i in range(8)}) == 8


def test_a_key_goes_through_a_compiled_function():
    key = us.jit(lambda key, x: key)(Key(3), us.ones(1))
    assert key == Key(3)


def test_draws_ignore_the_default_generator():
    wanted = us.to_numpy(us.random.normal(Key(0), (3,)))
    with jax.default_prng_impl("rbg"):
        np.testing.assert_array_equal(us.to_numpy(us.random.normal(Key(0), (3,))), wanted)


def test_draws_have_the_moments_and_the_range():
    x = us.to_numpy(us.random.uniform(Key(0), (20000,), low=2.0, high=3.0))
    assert x.min() >= 2.0
    assert x.max() < 3.0
    assert abs(x.mean() - 2.5) < 0.01
    n = us.to_numpy(us.random.normal(Key(1), (20000,), mean=1.0, std=3.0))
    assert abs(n.mean() - 1.0) < 0.1
    assert abs(n.std() - 3.0) < 0.1
    assert abs(us.to_numpy(us.random.bernoulli(Key(2), 0.3, (20000,))).mean() - 0.3) < 0.02
    assert us.to_numpy(us.random.bernoulli(Key(2), 1.0, (100,))).all()

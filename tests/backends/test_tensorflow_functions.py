"""TensorFlow's compiled functions: when they compile anew, what they return, and by which way they are called."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import pytest

import unisync as us
from unisync.errors import ArgumentTypeError

tf = pytest.importorskip("tensorflow")


@pytest.fixture(autouse=True)
def _backend():
    with us.backend("tensorflow"):
        yield


@pytest.fixture
def fast():
    us.namespace()
    from unisync.backends.tensorflow import _fast

    return _fast


def close(got, wanted, **tolerance):
    np.testing.assert_allclose(us.to_numpy(got), wanted, **({"rtol": 1e-6} | tolerance))


# Compilation


def counted(fn):
    """fn compiled, and the list that grows each time its Python code runs."""
    runs: list[int] = []

    def body(*args: Any, **kwargs: Any) -> Any:
        runs.append(1)
        return fn(*args, **kwargs)

    return us.jit(body), runs


def test_compiles_once_per_shape_dtype_and_structure():
    f, runs = counted(lambda t: us.tree.map(lambda x: x + x, t))
    for _ in range(3):
        f({"a": us.ones(2), "b": [us.ones(3)]})
    assert len(runs) == 1
    f({"a": us.ones(3), "b": [us.ones(3)]})
    f({"a": us.ones(2, dtype="int32"), "b": [us.ones(3)]})
    f({"a": us.ones(2), "b": (us.ones(3),)})
    assert len(runs) == 4
    f({"a": np.ones(2, "float32"), "b": [tf.Variable(tf.ones(3))]})  # arrays of other kinds are inputs too
    assert len(runs) == 4


def test_numbers_are_inputs_where_they_can_be():
    f, runs = counted(lambda x, count, rate: (us.multiply(x, rate), count + 1))
    x, count = us.ones(2), 0
    for step in range(4):
        y, count = f(x, count, 0.5 + step)
        close(y, np.full(2, 0.5 + step))
    assert int(count) == 4
    assert len(runs) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_number_inputs_take_the_dtype_of_the_array(dtype):
    y = us.jit(lambda x, a, b: us.add(us.multiply(x, a), b))(us.ones(2, dtype=dtype), 0.1, 2)
    assert us.dtype_of(y) == dtype
    close(y, us.to_numpy(us.add(us.multiply(us.ones(2, dtype=dtype), 0.1), 2)), rtol=0)


def test_numbers_that_python_needs_become_constants():
    f, runs = counted(lambda x, n: us.stack([x] * n) if n < 3 else x * n)
    for n in (1, 2, 3, 2):
        assert f(us.ones(2), n).shape == ((n, 2) if n < 3 else (2,))
    assert len(runs) == 4  # one attempt with an input, then once per number


def test_an_error_of_the_function_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError):
        us.jit(lambda x, n: 1 / 0)(us.ones(2), 3)


def test_flags_words_and_functions_are_constants():
    f, runs = counted(lambda x, flag, word, fn: fn(x) if flag and word == "go" else x)
    close(f(us.ones(1), True, "go", us.negative), [-1])
    close(f(us.ones(1), False, "go", us.negative), [1])
    close(f(us.ones(1), True, "go", us.square), [1])
    close(f(us.ones(1), True, "go", us.negative), [-1])
    assert len(runs) == 3
    with pytest.raises(ArgumentTypeError, match="hashed"):
        f(us.ones(1), True, {"go"}, us.negative)


class Pair(NamedTuple):
    left: Any
    right: Any


def test_results_keep_their_structure():
    def f(x, key):
        return Pair({"b": x, "a": [None, "word"]}, (key, 2, 1.5, True, np.ones(2)))

    out = us.jit(f)(us.ones(2), us.random.Key(1))
    assert isinstance(out, Pair)
    assert out.left["a"] == [None, "word"]
    key, two, half, truth, array = out.right
    assert us.random.Key(1) == key
    assert [us.dtype_of(x) for x in (two, half, truth, array)] == ["int64", "float32", "bool", "float64"]
    assert us.jit(lambda x: {})(us.ones(1)) == {}


def test_keys_are_inputs():
    f, runs = counted(lambda key, x: us.nn.dropout(x, 0.5, key))
    x, keys = us.ones(100), [us.random.Key(i) for i in range(3)]
    for key in keys:
        close(f(key, x), us.to_numpy(us.nn.dropout(x, 0.5, key)))  # the same numbers as in eager code
    assert len(runs) == 1


def test_closures_and_variables():
    large, small, v = us.ones(1000), us.ones(2), tf.Variable([1.0, 2.0])
    f = us.jit(lambda x: us.sum(large) + us.sum(small) * x + v)
    close(f(us.asarray(1.0)), [1003, 1004])
    v.assign([2.0, 3.0])
    close(f(us.asarray(1.0)), [1004, 1005])
    g = us.jit(lambda x: v.assign_add(x))
    close(g(us.ones(2)), [3, 4])
    close(v, [3, 4])


def test_inside_a_tf_function():
    inner = us.jit(lambda t: t["a"] * 2)
    outer = tf.function(lambda x: inner({"a": x}) + 1, input_signature=[tf.TensorSpec((None,))])
    close(outer(us.ones(3)), [3, 3, 3])


def test_gradients_through_a_compiled_function():
    w = us.asarray([3.0, 4.0])
    f = us.jit(lambda x: us.sum(us.sin(x) * x))
    x = us.asarray([1.0, 2.0])
    close(us.grad(f)(x), np.sin([1, 2]) + np.cos([1, 2]) * [1, 2])
    close(us.grad(lambda x: us.sum(us.grad(f)(x)))(x), 2 * np.cos([1, 2]) - np.sin([1, 2]) * [1, 2])
    with tf.GradientTape() as tape:
        tape.watch(w)
        y = f(w)
    close(tape.gradient(y, w), np.sin([3, 4]) + np.cos([3, 4]) * [3, 4], rtol=1e-5)


def test_threads_compile_once():
    f, runs = counted(lambda x: x * 2)
    threads = [threading.Thread(target=f, args=(us.ones(2),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs) == 1


# The short ways into the runtime


def concrete(fn, *specs):
    return tf.function(fn, autograph=False).get_concrete_function(*specs)


def test_the_short_ways_exist(fast):
    """Where this fails, a call costs several times as much: find what the release calls them now."""
    function = concrete(lambda x: [x + 1], tf.TensorSpec((2,)))
    assert callable(function._inference_function.call_flat)
    assert fast.EagerTensor._shape_tuple is fast.shape_of
    assert fast.EagerTensor._datatype_enum is fast.dtype_of
    assert fast.taped.__module__.startswith("tensorflow")
    assert not fast.taped()
    with tf.GradientTape():
        assert fast.taped()


@pytest.mark.parametrize("way", ["inline", "call_flat", "public", "taped"])
def test_each_way_gives_the_same(fast, monkeypatch, way):
    large, v = tf.random.stateless_normal((1000,), (0, 1)), tf.Variable(2.0)
    calls = []

    class Public:
        """A concrete function without the private part."""

        def __init__(self, function):
            self.captured_inputs, self.outputs, self.graph = function.captured_inputs, function.outputs, function.graph
            self.name = function.name

    function = concrete(lambda x, y: [x * y + v, tf.reduce_sum(large) * y], tf.TensorSpec((2,)), tf.TensorSpec(()))
    inline = tf.raw_ops.StatefulPartitionedCall
    monkeypatch.setattr(tf.raw_ops, "StatefulPartitionedCall", lambda **kw: calls.append("op") or inline(**kw))
    if way != "inline":
        monkeypatch.setattr(fast, "INLINE_NODES", 0)
    if way == "taped":
        monkeypatch.setattr(fast, "taped", lambda: True)
    run = fast.runner(Public(function) if way == "public" else function)
    one, two = run([tf.constant([1.0, 2.0]), tf.constant(3.0)])
    close(one, [5, 8])
    close(two, 3 * np.sum(large.numpy()), rtol=1e-5)
    assert calls == (["op"] if way in ("inline", "public") else [])


# Gradients


def test_a_tensor_closed_over_is_not_the_argument():
    x = us.asarray([2.0])
    close(us.grad(lambda y: us.sum(y * x))(x), [2])
    close(us.jit(us.grad(lambda y: us.sum(y * x)))(x), [2])


@pytest.mark.parametrize("wrap", [lambda f: f, us.jit], ids=["eager", "compiled"])
def test_gradients_of_rows_are_dense(wrap):
    weight, rows = us.ones((4, 2)), us.asarray([[1, 1], [3, 0]])
    g = wrap(us.grad(lambda w: us.sum(us.nn.embedding(w, rows))))(weight)
    assert isinstance(g, tf.Tensor)
    close(g, [[1, 1], [2, 2], [0, 0], [1, 1]])


@pytest.mark.parametrize("wrap", [lambda f: f, us.jit], ids=["eager", "compiled"])
def test_recompute_reaches_what_is_closed_over(wrap):
    def loss(w, x, change):
        small = us.sum(w)  # computed outside, used inside
        return us.sum(change(lambda x: us.sin(x * w) * small)(x) ** 2)

    w, x = us.asarray([3.0, 4.0]), us.asarray([1.0, 2.0])
    plain, again = (
        wrap(us.value_and_grad(lambda w, x, c=change: loss(w, x, c), (0, 1)))(w, x)
        for change in (lambda f: f, us.recompute)
    )
    for one, other in zip(us.tree.leaves(plain), us.tree.leaves(again), strict=True):
        close(one, us.to_numpy(other))


def test_recompute_computes_again_after_the_cotangent_is_known():
    function = concrete(
        lambda x: us.grad(lambda x: us.sum(us.square(us.recompute(lambda y: us.exp(us.sin(y)))(x))))(x),
        tf.TensorSpec((2,)),
    )
    operations = [op for op in function.graph.get_operations() if op.type == "Sin"]
    assert len(operations) == 2
    assert operations[1].inputs[0].op.type == "AddV2"  # x + a zero that depends on the cotangent


def test_recompute_with_a_variable():
    v = tf.Variable([2.0])
    with tf.GradientTape() as tape:
        y = us.recompute(lambda x: x * v * v)(us.ones(1))
    close(tape.gradient(y, v), [4])


# Recurrences


@pytest.mark.parametrize("length", [5, 40])  # unrolled, and a loop
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(length, reverse):
    xs = np.linspace(-1, 1, 2 * length).reshape(length, 2)

    def loss(w, xs):
        (carry, count), ys = us.scan(
            lambda c, x: ((us.tanh(c[0] * w + x["x"]), c[1] + 1), (c[0], c[1])),
            (us.zeros(2, dtype="float64"), 0), {"x": xs}, reverse=reverse,
        )  # fmt: skip
        return us.sum(ys[0] ** 2) + us.sum(carry), (count, ys)

    w = us.asarray(np.array([0.5, -0.5]))
    eager = us.value_and_grad(loss, (0, 1), has_aux=True)(w, us.asarray(xs))
    compiled = us.jit(us.value_and_grad(loss, (0, 1), has_aux=True))(w, us.asarray(xs))
    for one, other in zip(us.tree.leaves(eager), us.tree.leaves(compiled), strict=True):
        close(one, us.to_numpy(other), rtol=1e-10)
    assert int(eager[0][1][0]) == length


def test_scan_over_an_unknown_length():
    f = tf.function(
        lambda xs: us.scan(lambda c, x: (c + x, c), us.asarray(0.0), xs),
        input_signature=[tf.TensorSpec((None,))],
        autograph=False,
    )
    for n in (1, 4):
        last, before = f(us.ones(n))
        close(last, n)
        close(before, np.arange(n))

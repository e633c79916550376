"""Which backend a call goes to: by the arrays' types, by `like=`, by the current backend, and by nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from under_test import BACKENDS

import unisync as us
from unisync import _dispatch
from unisync.errors import MixedBackendsError, NotAnArrayError, UnknownNameError

ROOT = Path(__file__).parent.parent

PAIRS = [(a, b) for a in BACKENDS for b in BACKENDS if a != b]


def made_by(name: str, *values, dtype=None):
    """An array of a backend for each value."""
    with us.backend(name):
        arrays = [us.asarray(v, dtype=dtype) for v in values]
    return arrays if len(arrays) > 1 else arrays[0]


def name_of(x) -> str:
    return us.namespace(x).NAME


@pytest.fixture
def restored():
    """Undoes `set_backend` after the test."""
    before = _dispatch._chosen
    yield
    _dispatch._chosen = before


# The current backend


@pytest.mark.parametrize("name", BACKENDS)
def test_set_backend(name, restored):
    us.set_backend(name)
    assert us.current_backend() == name
    assert name_of(us.zeros(2)) == name
    assert name_of(us.asarray(1.0)) == name


@pytest.mark.parametrize("name", BACKENDS)
def test_set_backend_holds_in_every_thread(name, restored):
    us.set_backend(name)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(us.current_backend()))
    thread.start()
    thread.join()
    assert seen == [name]


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_with_backend_nests(outer, inner):
    before = us.current_backend()
    with us.backend(outer) as m:
        assert m is us.namespace()
        with us.backend(inner):
            assert us.current_backend() == inner
            assert name_of(us.ones(1)) == inner
        assert us.current_backend() == outer
    assert us.current_backend() == before


def test_with_backend_ends_on_an_exception():
    before = us.current_backend()
    for name in BACKENDS:
        with pytest.raises(ZeroDivisionError), us.backend(name):
            1 / 0  # noqa: B018
        assert us.current_backend() == before


def test_with_backend_is_of_its_thread():
    barrier, seen = threading.Barrier(len(BACKENDS)), {}

    def work(name):
        with us.backend(name):
            barrier.wait(timeout=30)
            seen[name] = us.current_backend()
            barrier.wait(timeout=30)

    threads = [threading.Thread(target=work, args=(name,)) for name in BACKENDS]
    before = us.current_backend()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert seen == {name: name for name in BACKENDS}
    assert us.current_backend() == before


@pytest.mark.parametrize("call", [us.set_backend, lambda name: us.backend(name).__enter__()])
@pytest.mark.parametrize(("word", "near"), [("pytorch", "torch"), ("jaks", "jax"), ("tensorflw", "tensorflow")])
def test_unknown_backend_names_the_nearest(call, word, near):
    with pytest.raises(UnknownNameError, match=f"got '{word}'. Try: '{near}'"):
        call(word)
    with pytest.raises(ValueError, match="`backend` must be one of"):
        call(word)


def _in_a_fresh_process(code: str, **environment: str) -> subprocess.CompletedProcess:
    env = {k: v for k, v in os.environ.items() if k != "UNISYNC_BACKEND"} | environment
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=env, timeout=100)


def test_environment_chooses_the_backend():
    code = "import unisync as us; print(us.current_backend(), us.namespace(us.zeros(1)).NAME)"
    name = BACKENDS[1] if len(BACKENDS) > 1 else BACKENDS[0]
    assert _in_a_fresh_process(code, UNISYNC_BACKEND=name).stdout.split() == [name, name]
    assert _in_a_fresh_process(code).stdout.split() == ["numpy", "numpy"]
    assert _in_a_fresh_process(code, UNISYNC_BACKEND="").stdout.split() == ["numpy", "numpy"]


def test_an_argument_wins_over_the_environment():
    code = "import unisync as us; us.set_backend('numpy'); print(us.current_backend())"
    assert _in_a_fresh_process(code, UNISYNC_BACKEND="torch").stdout.split() == ["numpy"]


def test_unknown_backend_in_the_environment():
    done = _in_a_fresh_process("import unisync as us; us.zeros(1)", UNISYNC_BACKEND="nunpy")
    assert done.returncode == 1
    assert "Try: 'numpy'" in done.stderr


# Arrays


@pytest.mark.parametrize("other", BACKENDS)
def test_functions_follow_their_arrays(backend, other):
    x = us.asarray([[1.0, 2.0], [3.0, 4.0]])
    with us.backend(other):
        results = [
            us.exp(x), us.add(x, 1), us.sum(x, axis=0), us.concat([x, x]), us.where(us.greater(x, 2.0), x, 0.0),
            us.matmul(x, x), us.nn.relu(x), us.zeros_like(x), us.nn.linear(x, x), us.grad(us.sum)(x),
        ]  # fmt: skip
    assert {name_of(r) for r in results} == {backend}


@pytest.mark.parametrize("other", BACKENDS)
def test_like(backend, other):
    like = us.ones(3, dtype="float64")
    with us.backend(other):
        key = us.random.Key(0)
        made = [
            us.zeros(2, like=like), us.full(2, 7, like=like), us.arange(3, like=like), us.eye(2, like=like),
            us.linspace(0.0, 1.0, 3, like=like), us.asarray([1.0], like=like), us.asarray(np.ones(2), like=like),
            us.empty(2, like=like), us.ones(2, like=like), us.random.uniform(key, (2,), like=like),
            us.random.normal(key, (2,), like=like), us.random.bernoulli(key, 0.5, (2,), like=like),
            us.from_dlpack(np.ones(2), like=like),
        ]  # fmt: skip
    assert {name_of(r) for r in made} == {backend}
    assert us.dtype_of(made[0]) == "float32"  # like= settles backend and device, not the dtype


def test_like_of_a_number_is_the_current_backend(backend):
    assert name_of(us.zeros(2, like=1.0)) == backend


def test_namespace(backend):
    x = us.ones(2)
    m = us.namespace(x)
    assert backend == m.NAME
    assert m is us.namespace() is us.namespace(2.0) is us.namespace(1, x, 2.0)
    assert us.to_numpy(m.exp(m.zeros(2))) == pytest.approx([1, 1])


@pytest.mark.parametrize(
    "call",
    [
        us.add, us.greater, us.matmul, us.atan2, us.logaddexp,
        lambda a, b: us.tensordot(a, b, axes=1), us.vecdot,
        lambda a, b: us.where(us.greater(a, 0), a, b),
        lambda a, b: us.where(us.greater(b, 0), a, a),
        lambda a, b: us.concat([a, b]), lambda a, b: us.stack([a, b]),
        lambda a, b: us.broadcast_arrays(a, b),
        lambda a, b: us.searchsorted(a, b), lambda a, b: us.nn.linear(us.ones((2, 2), like=a), us.ones((2, 2), like=b)),
        lambda a, b: us.nn.embedding(us.ones((3, 2), like=a), us.asarray([1], like=b)),
        us.namespace,
    ],
)  # fmt: skip
@pytest.mark.parametrize(("one", "two"), PAIRS[:4])
def test_mixed_backends(call, one, two):
    a, b = made_by(one, [1.0, 2.0]), made_by(two, [1.0, 2.0])
    with pytest.raises(MixedBackendsError, match=f"{one}.*{two}|{two}.*{one}") as caught:
        call(a, b)
    assert "us.convert" in str(caught.value)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("thing", [[1.0, 2.0], (1, 2), "text", None, object(), {"a": 1}])
@pytest.mark.parametrize("call", [us.exp, us.sum, lambda x: us.add(x, x), lambda x: us.add(1.0, x), us.nn.relu])
def test_what_is_no_array(thing, call):
    with pytest.raises(NotAnArrayError, match=f"got {type(thing).__name__}. Try: us.asarray"):
        call(thing)


def test_is_array(backend):
    assert us.is_array(us.ones(2))
    assert us.is_array(us.asarray(1.0))
    assert us.is_array(np.float32(1))
    assert not any(us.is_array(x) for x in (1, 2.0, True, 1j, [1.0], None, "x", us.random.Key(0), us.float32))


def test_unknown_types_are_not_remembered():
    class Mine:
        pass

    with pytest.raises(NotAnArrayError):
        us.exp(Mine())
    assert Mine not in _dispatch.of


# Python numbers


@pytest.mark.parametrize(
    ("call", "wanted", "dtype"),
    [
        (lambda: us.exp(0.0), 1.0, "float32"),
        (lambda: us.abs(-2), 2, "int64"),
        (lambda: us.add(1, 2), 3, "int64"),
        (lambda: us.add(1, 2.5), 3.5, "float32"),
        (lambda: us.divide(1, 2), 0.5, "float32"),
        (lambda: us.sum(2.0), 2.0, "float32"),
        (lambda: us.sum(2.0, keepdims=True), 2.0, "float32"),
        (lambda: us.mean(2.0, axis=None), 2.0, "float32"),
        (lambda: us.any(True, axis=None), True, "bool"),
        (lambda: us.logical_not(False), True, "bool"),
        (lambda: us.maximum(1.0, 2.0), 2.0, "float32"),
        (lambda: us.less(1, 2), True, "bool"),
        (lambda: us.where(us.asarray(True), 1.0, 2.0), 1.0, "float32"),
        (lambda: us.astype(2.5, "int32"), 2, "int32"),
        (lambda: us.stack([us.asarray(1.0), us.asarray(2.0)]), [1.0, 2.0], "float32"),
        (lambda: us.asarray(2j), 2j, "complex64"),
    ],
)
def test_numbers_go_to_the_current_backend(backend, call, wanted, dtype):
    got = call()
    assert name_of(got) == backend
    assert us.dtype_of(got) == dtype
    np.testing.assert_allclose(us.to_numpy(got), wanted)


@pytest.mark.parametrize("other", BACKENDS)
@pytest.mark.parametrize(
    ("call", "wanted", "dtype"),
    [
        (lambda x, i: us.subtract(x, 1), [0.0, 1.0], "float64"),
        (lambda x, i: us.subtract(1, x), [0.0, -1.0], "float64"),
        (lambda x, i: us.subtract(1.5, i), [0.5, -0.5], "float32"),
        (lambda x, i: us.subtract(i, 1.5), [-0.5, 0.5], "float32"),
        (lambda x, i: us.multiply(i, 2), [2, 4], "int8"),
        (lambda x, i: us.multiply(2, i), [2, 4], "int8"),
        (lambda x, i: us.multiply(True, i), [1, 2], "int8"),
        (lambda x, i: us.maximum(x, 2), [2.0, 2.0], "float64"),
        (lambda x, i: us.maximum(2, x), [2.0, 2.0], "float64"),
        (lambda x, i: us.pow(2.0, x), [2.0, 4.0], "float64"),
        (lambda x, i: us.pow(x, 2), [1.0, 4.0], "float64"),
        (lambda x, i: us.greater(x, 1), [False, True], "bool"),
        (lambda x, i: us.greater(2, x), [True, False], "bool"),
        (lambda x, i: us.where(us.greater(x, 1), x, 0), [0.0, 2.0], "float64"),
        (lambda x, i: us.where(us.greater(x, 1), 0, i), [1, 0], "int8"),
        (lambda x, i: us.where(us.greater(x, 1), 0.5, i), [1.0, 0.5], "float32"),
        (lambda x, i: us.clip(x, 1.5, None), [1.5, 2.0], "float64"),
        (lambda x, i: us.clip(x, None, 1.5), [1.0, 1.5], "float64"),
        (lambda x, i: us.atan2(x, 1.0), [np.pi / 4, np.arctan2(2, 1)], "float64"),
    ],
)
def test_numbers_join_arrays(backend, other, call, wanted, dtype):
    x, i = us.asarray([1.0, 2.0], dtype="float64"), us.asarray([1, 2], dtype="int8")
    with us.backend(other):
        got = call(x, i)
    assert name_of(got) == backend
    assert us.dtype_of(got) == dtype
    np.testing.assert_allclose(us.to_numpy(got), wanted)


# Arrays of other types: subclasses, tracers, symbolic and fake tensors


def test_subclass_of_ndarray():
    class Mine(np.ndarray):
        pass

    x = np.ones(2).view(Mine)
    np.testing.assert_allclose(us.exp(x), np.exp([1, 1]))
    assert name_of(x) == "numpy"


def test_torch_parameter_and_subclasses():
    torch = _framework("torch")

    class Mine(torch.Tensor):
        pass

    for x in (torch.nn.Parameter(torch.ones(2)), torch.ones(2).as_subclass(Mine), torch.nn.Buffer(torch.ones(2))):
        assert name_of(x) == "torch"
        assert us.to_numpy(us.exp(x)) == pytest.approx(np.exp([1, 1]))
        assert us.to_numpy(us.add(1.0, x)) == pytest.approx([2, 2])


def test_torch_fake_tensor():
    _framework("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    with us.backend("torch"), FakeTensorMode():
        x = us.ones((2, 3))
        y = us.matmul(x, us.matrix_transpose(x))
    assert type(x).__name__ == "FakeTensor"
    assert name_of(x) == "torch"
    assert tuple(y.shape) == (2, 2)


def test_torch_compile_whole_graph():
    torch = _framework("torch")
    x = torch.ones(3)
    compiled = torch.compile(lambda x, p: us.add(us.exp(x), us.sum(p)), fullgraph=True, backend="eager")
    assert us.to_numpy(compiled(x, torch.nn.Parameter(x))) == pytest.approx(np.exp([1, 1, 1]) + 3)


def test_torch_functional_tensors():
    torch = _framework("torch")
    seen = []

    def f(x):
        seen.append(name_of(x))
        return us.sum(us.exp(x))

    torch.func.grad(f)(torch.ones(2))
    torch.func.vmap(f)(torch.ones((3, 2)))
    assert set(seen) == {"torch"}


def test_jax_tracers():
    jax = _framework("jax")
    jnp = jax.numpy
    seen = []

    def f(x):
        seen.append((type(x), name_of(x), us.is_array(x)))
        return us.sum(us.multiply(2.0, us.exp(x)))

    x = jnp.ones(2)
    jax.jit(f)(x)
    jax.grad(f)(x)
    jax.vmap(f)(jnp.ones((3, 2)))
    jax.jit(jax.vmap(jax.grad(f)))(jnp.ones((3, 2)))
    jax.eval_shape(f, x)
    assert len({kind for kind, _, _ in seen}) >= 2
    assert {(name, known) for _, name, known in seen} == {("jax", True)}


def test_tensorflow_variables_and_symbolic_tensors():
    tf = _framework("tensorflow")
    seen = []

    @tf.function
    def f(x, v):
        seen.extend((type(x).__name__, name_of(x)) for x in (x, v))
        return us.add(us.exp(x), us.multiply(v, 2.0))

    variable = tf.Variable([1.0, 2.0])
    assert us.to_numpy(us.exp(variable)) == pytest.approx(np.exp([1, 2]))
    assert us.to_numpy(us.add(1.0, variable)) == pytest.approx([2, 3])
    assert us.to_numpy(f(tf.constant([0.0, 0.0]), variable)) == pytest.approx([3, 5])
    assert seen == [("SymbolicTensor", "tensorflow"), ("ResourceVariable", "tensorflow")]


def test_tensorflow_gradient_tape():
    tf = _framework("tensorflow")
    x = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = us.sum(us.square(x))
    assert us.to_numpy(tape.gradient(y, x)) == pytest.approx([2, 4])


def test_autograd_boxes():
    if "numpy" not in BACKENDS:
        pytest.skip("numpy is not under test")
    import autograd

    seen = []

    def f(x):
        seen.append((type(x).__name__, name_of(x)))
        return us.sum(us.multiply(2.0, us.exp(x)))

    np.testing.assert_allclose(autograd.grad(f)(np.zeros(2)), [2, 2])
    assert seen == [("ArrayBox", "numpy")]


@pytest.mark.parametrize("name", [b for b in BACKENDS if b != "numpy"])
def test_a_foreign_array_loads_its_backend(name):
    make = {
        "torch": "import torch; x = torch.ones(2)",
        "jax": "import jax.numpy as jnp; x = jnp.ones(2)",
        "tensorflow": "import tensorflow as tf; x = tf.ones(2)",
    }[name]
    code = (
        f"import unisync as us; from unisync import _dispatch; {make}\n"
        f"before = _dispatch.loaded({name!r}); y = us.exp(x)\n"
        f"print(before, _dispatch.loaded({name!r}), us.namespace(y).NAME, us.current_backend())"
    )
    done = _in_a_fresh_process(code)
    assert done.stdout.split() == ["False", "True", name, "numpy"], done.stderr


def _framework(name: str):
    if name not in BACKENDS:
        pytest.skip(f"{name} is not under test")
    _dispatch.load(name)
    return sys.modules[name]


@pytest.mark.parametrize("turned", [False, True])
def test_the_numpy_array_is_what_to_convert(backend, turned):
    if backend == "numpy":
        pytest.skip("one backend")
    pair = [np.ones(2, np.float32), us.ones(2)]
    with pytest.raises(us.errors.MixedBackendsError, match=rf'us.convert\(x, "{backend}"\) for the NumPy array'):
        us.add(*(reversed(pair) if turned else pair))

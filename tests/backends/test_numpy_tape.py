"""The tape of the NumPy backend: levels of derivatives in threads, what is freed, and autograd beside it."""

from __future__ import annotations

import gc
import threading
import weakref

import autograd
import autograd.extend
import autograd.numpy as anp
import autograd.tracer
import numpy as np
import pytest

import unisync as us
from unisync.backends.numpy import _tape
from unisync.errors import TraceError


@pytest.fixture(autouse=True)
def _numpy():
    with us.backend("numpy"):
        yield


class OneCounter:
    """autograd's own trace stack (autograd/tracer.py): one counter for all threads."""

    def __init__(self):
        self.top = -1

    def new_trace(self):
        return self

    def __enter__(self):
        self.top += 1
        return self.top

    def __exit__(self, *error):
        self.top -= 1


def second_derivative_while_another_thread_leaves(grad):
    """d/dx x · d/dy (x² y) at x = 3, which is 27; another thread's trace ends between the two levels."""
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def other(x):
        entered.set()
        assert leave.wait(10)
        return x * 2.0

    def run_other():
        grad(other)(1.0)
        left.set()

    thread = threading.Thread(target=run_other)
    thread.start()
    assert entered.wait(10)

    def outer(x):
        leave.set()
        assert left.wait(10)
        return x * grad(lambda y: x * x * y)(2.0)

    result = grad(outer)(3.0)
    thread.join(10)
    return float(result)


@pytest.mark.parametrize("grad", [autograd.grad, us.grad], ids=["autograd", "unisync"])
def test_levels_of_derivatives_in_threads(grad):
    assert second_derivative_while_another_thread_leaves(grad) == 27.0


def test_one_counter_for_all_threads_would_be_wrong(monkeypatch):
    """The control of the test before: with autograd's own counter the two levels get one number."""
    monkeypatch.setattr(autograd.tracer, "trace_stack", OneCounter())
    assert second_derivative_while_another_thread_leaves(autograd.grad) != 27.0


def test_many_threads():
    def hessian_vector(x, v):
        return us.grad(lambda x: us.sum(us.grad(lambda x: us.sum(us.sin(x) * x))(x) * v))(x)

    def expected(x, v):
        return (2 * np.cos(x) - x * np.sin(x)) * v

    wrong, start = [], threading.Barrier(8)

    def work(seed):
        rng = np.random.default_rng(seed)
        start.wait()
        for _ in range(60):
            x, v = rng.standard_normal((2, 5))
            if not np.allclose(hessian_vector(x, v), expected(x, v)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_autograd_inside_and_outside():
    """A user's own autograd code nests with ours both ways."""
    ours = us.grad(lambda x: us.sum(autograd.grad(lambda y: anp.sum(y**3))(x)))
    theirs = autograd.grad(lambda x: anp.sum(us.grad(lambda y: us.sum(y**3))(x)))
    np.testing.assert_allclose(ours(np.asarray([1.0, 2.0])), [6.0, 12.0])
    np.testing.assert_allclose(theirs(np.asarray([1.0, 2.0])), [6.0, 12.0])


def test_traced_arrays_dispatch_and_have_no_numbers():
    def look(x):
        assert us.is_array(x)
        assert us.namespace(x).NAME == "numpy"
        assert us.device(x) == "cpu"
        assert us.dtype_of(x) == "float32"
        for read in (us.to_numpy, lambda x: us.from_dlpack(x)):
            with pytest.raises(TraceError, match="traced"):
                read(x)
        return us.sum(x)

    us.grad(look)(us.ones(3))


def test_the_tape_is_freed():
    """What the forward pass kept goes with the gradient's caller, without the garbage collector."""
    kept = []

    def f(x):
        y = us.exp(x)
        kept.append(weakref.ref(_tape.getval(y)))
        return us.sum(y * y)

    gc.disable()
    try:
        us.value_and_grad(f)(us.ones(1000))
        assert kept[0]() is None
    finally:
        gc.enable()


def test_recompute_keeps_no_activations():
    """Between the passes the inner arrays are gone; the backward pass makes them again."""
    alive: list[int] = []
    inner: list[weakref.ref] = []

    def layer(x, w):
        y = us.tanh(us.matmul(x, w))
        inner.append(weakref.ref(_tape.getval(y)))
        return us.tanh(us.matmul(y, w))

    def model(recompute):
        def loss(w, x):
            inner.clear()
            for _ in range(3):
                x = (us.recompute(layer) if recompute else layer)(x, w)
            alive.append(sum(ref() is not None for ref in inner))
            return us.sum(x)

        return us.grad(loss)

    w, x = np.random.default_rng(0).standard_normal((2, 8, 8)) / 3
    plain, recomputed = model(False)(w, x), model(True)(w, x)
    np.testing.assert_allclose(recomputed, plain, rtol=1e-12)
    assert alive == [3, 0]


def test_recompute_returns_what_it_was_given():
    """An output that is an input, a constant, or of no array goes through."""

    def f(x, name):
        return {"same": x, "constant": us.ones(2), "name": name, "sin": us.sin(x), "again": us.sin(x)}

    def loss(x):
        out = us.recompute(f)(x, "a")
        assert out["name"] == "a"
        assert not _tape.is_traced(out["constant"])
        return us.sum(out["same"] * out["sin"] + out["again"])

    x = np.asarray([0.5, 1.0])
    np.testing.assert_allclose(us.grad(loss)(x), np.sin(x) + x * np.cos(x) + np.cos(x))


def test_gradients_do_not_share_memory_that_is_written_to():
    """A gradient is the caller's: no view of an argument, writable, and the same on a second pull."""
    x = np.ones(3, dtype="float32")
    _, pullback = us.vjp(lambda a, b: a + b, x, x)
    cotangent = np.ones(3, dtype="float32")
    first = pullback(cotangent)
    second = pullback(cotangent)
    np.testing.assert_array_equal(first[0], second[0])
    g = us.grad(us.sum)(x)
    g += 1.0
    np.testing.assert_array_equal(x, 1.0)


def test_accumulation_does_not_write_into_cotangents():
    """One cotangent that reaches several places is added to without being changed."""
    x = np.asarray([1.0, 2.0])

    def f(x):
        y = x + x
        z = y + x
        return us.sum(z * y + y)

    np.testing.assert_allclose(us.grad(f)(x), 12 * x + 2)


@pytest.mark.parametrize(
    "index", [0, slice(1, 3), (slice(None), 0), (0, 0), None, Ellipsis, [0, 0, 1], (slice(None), [1, 1])]
)
def test_index_gradients(index):
    x = np.arange(6.0).reshape(3, 2)
    expected = np.zeros_like(x)
    np.add.at(expected, index if not isinstance(index, list) else np.asarray(index), np.cos(x[index]))
    np.testing.assert_allclose(us.grad(lambda x: us.sum(us.sin(x[index])))(x), expected)


def test_mask_gradient():
    x = np.arange(6.0).reshape(3, 2)
    np.testing.assert_allclose(us.grad(lambda x: us.sum(x[x > 2] ** 2))(x), np.where(x > 2, 2 * x, 0))


def test_an_operation_without_a_derivative_says_so():
    with pytest.raises(NotImplementedError, match="derivative of nancumsum is not known on NumPy"):
        us.grad(lambda x: us.sum(anp.nancumsum(x)))(np.ones(3))


def test_complex_intermediates():
    """A real array's gradient stays real through complex numbers."""

    def f(x):
        z = x * np.exp(1j * np.asarray([0.3, 0.7]))
        return us.sum(anp.real(z * anp.conj(z)))

    x = np.asarray([1.0, 2.0])
    g = us.grad(f)(x)
    assert g.dtype == "float64"
    np.testing.assert_allclose(g, 2 * x)


def test_float64_factors_do_not_leak():
    """A cotangent is cast where it arrives, scalars included: no float64 array comes up on the way."""
    seen = []

    @autograd.extend.primitive
    def watch(x):
        return x

    autograd.extend.defvjp(watch, lambda ans, x: lambda g: seen.append(g.dtype) or g)
    x = np.ones(3, dtype="float32")
    g = us.grad(lambda x: watch(us.sum(watch(x) * 2.0)) * np.float64(3.0))(x)
    assert g.dtype == "float32"
    assert seen == [np.float32, np.float32]


def test_bfloat16():
    pytest.importorskip("ml_dtypes")
    x = us.asarray([1.0, 2.0, 3.0], dtype="bfloat16")
    value, g = us.value_and_grad(lambda x: us.mean(us.nn.relu(x) * x))(x)
    assert us.dtype_of(value) == us.dtype_of(g) == "bfloat16"
    np.testing.assert_allclose(us.to_numpy(g), [2 / 3, 4 / 3, 2.0], rtol=1e-2)

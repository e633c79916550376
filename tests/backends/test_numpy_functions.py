"""What is NumPy's own in the NumPy backend: erf, fast paths for large arrays, devices, and the cost of promotion."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.special

import unisync as us
from unisync.backends.numpy import _operations
from unisync.errors import ArgumentError, ArgumentTypeError, ShapeError


@pytest.fixture(autouse=True)
def _numpy():
    with us.backend("numpy"):
        yield


@pytest.mark.parametrize(("dtype", "absolute", "units"), [("float32", 2e-7, 2), ("float64", 4e-16, 8)])
def test_erf(dtype, absolute, units):
    x = np.concatenate([np.linspace(-7, 7, 100_001), np.logspace(-30, 0, 1000), [0.0]]).astype(dtype)
    exact = scipy.special.erf(x.astype("float64"))
    got = us.erf(x)
    assert got.dtype == dtype
    error = np.abs(got - exact)
    assert error.max() < absolute
    assert (error / np.spacing(np.abs(exact).astype(dtype))).max() < units


def test_erf_of_special_numbers():
    x = np.asarray([np.inf, -np.inf, np.nan, 0.0, 1e-300, 30.0])
    np.testing.assert_allclose(us.erf(x), scipy.special.erf(x), rtol=4e-16)
    np.testing.assert_array_equal(us.erf(x.astype("float16")), scipy.special.erf(x).astype("float16"))
    assert us.erf(np.ones((2, 3, 4))[:, ::2].T).shape == (4, 2, 2)
    assert us.erf(np.float32(0.5)).shape == ()
    assert us.erf(np.ones((0, 3))).shape == (0, 3)
    assert us.dtype_of(us.erf(np.asarray([1, 2]))) == "float32"


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("size", [3, 5000])
def test_where_with_zero_is_exact(dtype, size):
    """Large arrays go by their bits: also NaN and infinities are dropped, and no −0 appears."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(size).astype(dtype)
    x[:3] = np.nan, -np.inf, -1.0
    condition = rng.random(size) > 0.5
    condition[:3] = False
    got = us.where(condition, x, 0.0)
    np.testing.assert_array_equal(got, np.where(condition, x, x.dtype.type(0)))
    assert got.dtype == dtype
    assert not np.signbit(got[:3]).any()
    np.testing.assert_array_equal(us.where(condition[:, None], x[:, None] * np.ones(2, dtype), 0.0)[:, 0], got)


def test_sums_of_repeated_positions():
    rng = np.random.default_rng(1)
    g, positions = rng.standard_normal((4, 50, 3)), rng.integers(-7, 7, 50)
    expected = np.zeros((4, 7, 3))
    np.add.at(expected, (slice(None), positions), g)
    np.testing.assert_allclose(_operations.put_add(g, positions, 1, (4, 7, 3)), expected)


TOLERANCES = [("float16", 4e-3, 1e-7), ("float32", 1e-6, 1e-37), ("float64", 1e-14, 0.0)]


@pytest.mark.parametrize(("dtype", "rtol", "atol"), TOLERANCES)
def test_sigmoid_over_the_whole_range(dtype, rtol, atol):
    x = np.asarray([-np.inf, -1e4, -50, -5, 0, 5, 50, 1e4, np.inf, np.nan], dtype=dtype)
    np.testing.assert_allclose(us.nn.sigmoid(x), scipy.special.expit(x.astype("float64")), rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu", "softplus", "sigmoid", "elu", "relu", "leaky_relu"])
def test_activations_and_their_gradients_far_out(name):
    """No overflow, which NumPy would warn of, and no NaN, for any finite number."""
    x = np.asarray([-1e30, -200.0, -20.0, 0.0, 20.0, 200.0, 1e30], dtype="float32")
    f = functools.partial(us.nn.gelu, approximate=True) if name == "gelu_tanh" else getattr(us.nn, name)
    value, g = us.value_and_grad(lambda x: us.sum(f(x) * 1e-30))(x)
    assert np.isfinite(value)
    assert np.isfinite(g).all()


def test_cross_entropy_of_extreme_logits():
    logits = np.asarray([[1e4, -1e4, 0.0], [0.0, 0.0, 0.0]], dtype="float32")
    losses, g = us.value_and_grad(
        lambda x: us.sum(us.nn.softmax_cross_entropy_with_integer_labels(x, np.asarray([1, 0])))
    )(logits)
    np.testing.assert_allclose(losses, 2e4 + np.log(3), rtol=1e-6)
    np.testing.assert_allclose(g, [[1, -1, 0], [-2 / 3, 1 / 3, 1 / 3]], rtol=1e-6)


def test_logsumexp_of_nothing_but_minus_infinity():
    x = np.full((2, 3), -np.inf)
    np.testing.assert_array_equal(us.nn.logsumexp(x, axis=1), [-np.inf, -np.inf])


def test_devices():
    assert us.device(us.ones(2, device="cpu")) == "cpu"
    x = us.ones(2)
    assert us.to_device(x, "cpu") is x
    for call in (
        lambda: us.ones(2, device="cuda"),
        lambda: us.to_device(x, "tpu:0"),
        lambda: us.asarray(1, device="gpu"),
    ):
        with pytest.raises(ArgumentError, match=r"`device` must be 'cpu' on NumPy"):
            call()


def test_what_is_no_array_of_numbers():
    for wrong in ("text", [object()], [["a"]], {"a": 1}):
        with pytest.raises(ArgumentTypeError, match="must hold numbers"):
            us.asarray(wrong)


def test_views_and_copies():
    x = np.ones(3, dtype="float32")
    assert us.asarray(x) is x
    assert us.asarray(x, copy=True) is not x
    assert np.shares_memory(us.from_dlpack(x), x)
    assert np.shares_memory(us.reshape(x, (3, 1), copy=False), x)
    assert not np.shares_memory(us.reshape(x, (3, 1), copy=True), x)
    with pytest.raises(ArgumentError, match=r"`copy` must not be False"):
        us.reshape(np.ones((2, 3)).T, (6,), copy=False)
    with pytest.raises(ValueError, match="copy"):
        us.asarray(x, dtype="float64", copy=False)


KERNEL = (4, 3, 3, 3)
WRONG = [
    (lambda: conv((1, 2, 2, 3)), ShapeError, "at least as large as the window"),
    (lambda: conv((1, 4, 4, 2)), ShapeError, "`weight` must have shape"),
    (lambda: conv((4, 4, 3)), ShapeError, "must have 4 axes"),
    (lambda: conv((1, 4, 4, 3), padding="full"), ArgumentError, "`padding`"),
    (lambda: conv((1, 4, 4, 3), stride=0), ArgumentError, "`stride`"),
    (lambda: conv((1, 4, 4, 3), data_format="HWC"), ArgumentError, "`data_format`"),
    (lambda: us.nn.max_pool2d(us.ones((4, 4, 3)), 2), ShapeError, "4 axes"),
    (lambda: us.nn.group_norm(us.ones((1, 4, 6)), 4), ShapeError, "`groups` must divide"),
    (lambda: attention(mask=us.ones((2, 2)), causal=True), ArgumentError, "`mask` must be None"),
]


def conv(shape, **options):
    return us.nn.conv2d(us.ones(shape), us.ones(KERNEL), **options)


def attention(**options):
    return us.nn.scaled_dot_product_attention(*[us.ones((2, 3))] * 3, **options)


@pytest.mark.parametrize(("call", "error", "match"), WRONG)
def test_wrong_arguments(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_ties_in_max_pooling_go_to_the_first():
    g = us.grad(lambda x: us.sum(us.nn.max_pool2d(x, 2, stride=1) * 2.0))(us.ones((1, 3, 3, 1)))
    np.testing.assert_array_equal(g[0, :, :, 0], [[2, 2, 0], [2, 2, 0], [0, 0, 0]])


def test_slopes_at_the_kink():
    for f in (us.nn.relu, lambda x: us.nn.leaky_relu(x, negative_slope=0.0)):
        np.testing.assert_array_equal(us.grad(lambda x, f=f: us.sum(f(x)))(np.asarray([0.0, -0.0])), [0.0, 0.0])
    np.testing.assert_array_equal(us.grad(lambda x: us.sum(us.maximum(x, 0.0)))(np.zeros(2)), [0.5, 0.5])

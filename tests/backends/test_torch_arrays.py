"""What torch does otherwise than the array API standard, put right: one row per wart, against NumPy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import unisync as us  # noqa: E402
from unisync.errors import ArgumentError, ArgumentTypeError, ShapeError, TraceError, UnknownNameError  # noqa: E402


@pytest.fixture(autouse=True)
def on_torch():
    with us.backend("torch"):
        yield


def t(values, dtype) -> torch.Tensor:
    return torch.from_numpy(np.asarray(values)).to(getattr(torch, dtype))


# Promotion


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (t([1.5], "float32"), t(2.0, "float64"), "float64"),  # torch alone: float32
        (t(1.5, "float64"), t([2.0], "float32"), "float64"),
        (t([1], "int32"), t(2, "int64"), "int64"),
        (t([1], "int8"), t([2], "uint8"), "int16"),
        (t([1], "int64"), t([2.0], "float32"), "float32"),
        (t([1], "uint16"), t([2], "int8"), "int32"),  # torch alone: an error
        (t([1], "uint32"), t([2], "uint16"), "uint32"),
        (t([1.0], "bfloat16"), t([2.0], "float16"), "float32"),
    ],
)
@pytest.mark.parametrize("name", ["add", "maximum", "where"])
def test_arrays_promote_by_the_standard(a, b, wanted, name):
    got = us.where(torch.tensor([True]), a, b) if name == "where" else getattr(us, name)(a, b)
    assert us.dtype_of(got) == wanted
    assert got.item() == {"add": a.item() + b.item(), "maximum": b.item(), "where": a.item()}[name]


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "minimum", "pow", "atan2", "equal", "less"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_number_takes_the_dtype_of_the_array(name, dtype):
    x = t([1.0, 2.5], dtype)
    got, mirrored = getattr(us, name)(x, 2), getattr(us, name)(2.0, x)
    wanted = "bool" if name in ("equal", "less") else dtype
    assert us.dtype_of(got) == us.dtype_of(mirrored) == wanted
    np.testing.assert_allclose(
        us.to_numpy(got), getattr(np, {"atan2": "arctan2"}.get(name, name))([1.0, 2.5], 2), rtol=1e-2
    )


def test_a_number_of_a_higher_kind():
    assert us.dtype_of(us.multiply(t([1], "int64"), 2.5)) == "float32"
    assert us.dtype_of(us.maximum(t([1], "int64"), 2.5)) == "float32"
    assert us.dtype_of(us.add(t([1.0], "float64"), 1j)) == "complex128"


# Unsigned integers, for which the CPU has few kernels

BINARY = ["add", "subtract", "multiply", "floor_divide", "remainder", "maximum", "minimum", "bitwise_and", "less",
          "greater_equal", "bitwise_right_shift", "bitwise_left_shift", "logical_and", "not_equal"]  # fmt: skip


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
@pytest.mark.parametrize("name", BINARY)
def test_unsigned_arithmetic_wraps(dtype, name):
    a = np.asarray([7, 250, np.iinfo(dtype).max], dtype=dtype)
    b = np.asarray([9, 3, 2], dtype=dtype)
    oracle = {"bitwise_left_shift": np.left_shift, "bitwise_right_shift": np.right_shift}.get(name) or getattr(np, name)
    got, wanted = getattr(us, name)(t(a, dtype), t(b, dtype)), oracle(a, b)
    assert us.dtype_of(got) == wanted.dtype.name
    np.testing.assert_array_equal(got.numpy(), wanted)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "bitwise_xor"])
def test_uint64_wraps(name):
    a, b = np.asarray([2**64 - 1, 5], dtype="uint64"), np.asarray([7, 9], dtype="uint64")
    np.testing.assert_array_equal(getattr(us, name)(t(a, "uint64"), t(b, "uint64")).numpy(), getattr(np, name)(a, b))


def test_uint64_that_int64_cannot_do_is_refused():
    with pytest.raises(NotImplementedError):
        us.less(t([1], "uint64"), t([2], "uint64"))


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_unsigned_reductions(dtype):
    a = np.asarray([[3, np.iinfo(dtype).max], [7, 0]], dtype=dtype)
    x = t(a, dtype)
    for name in ("max", "min", "argmax", "argmin", "count_nonzero", "sum", "prod"):
        got = getattr(us, name)(x, axis=1)
        np.testing.assert_array_equal(got.numpy(), getattr(np, name)(a, axis=1))
    assert us.dtype_of(us.max(x)) == dtype
    assert [p.tolist() for p in us.nonzero(x)] == [p.tolist() for p in np.nonzero(a)]
    np.testing.assert_array_equal(us.searchsorted(us.sort(x[0]), x[1]).numpy(), np.searchsorted(np.sort(a[0]), a[1]))


@pytest.mark.parametrize("name", ["negative", "square", "bitwise_invert", "abs", "logical_not", "sign"])
def test_unsigned_unary(name):
    a = np.asarray([3, 0, 4_000_000_000], dtype="uint32")
    oracle = {"bitwise_invert": np.invert}.get(name) or getattr(np, name)
    np.testing.assert_array_equal(getattr(us, name)(t(a, "uint32")).numpy(), oracle(a))


# Reductions


@pytest.mark.parametrize(
    ("name", "dtype", "wanted"),
    [
        ("sum", "int8", "int64"),
        ("sum", "uint8", "uint64"),
        ("sum", "bool", "int64"),
        ("sum", "float32", "float32"),
        ("prod", "uint8", "uint64"),
        ("prod", "int32", "int64"),
        ("cumulative_sum", "int16", "int64"),
        ("cumulative_sum", "uint8", "uint64"),
        ("mean", "int64", "float32"),
        ("var", "int64", "float32"),
        ("std", "float64", "float64"),
        ("argmax", "bool", "int64"),
        ("any", "uint8", "bool"),
        ("all", "uint8", "bool"),
        ("max", "bool", "bool"),
    ],
)
def test_dtype_of_a_reduction(name, dtype, wanted):
    a = np.asarray([0, 1, 1]).astype(dtype)
    got = getattr(us, name)(t(a, dtype))
    assert us.dtype_of(got) == wanted
    oracle = getattr(np, {"cumulative_sum": "cumsum"}.get(name, name))
    np.testing.assert_allclose(got.numpy(), oracle(a), rtol=1e-6)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var", "std", "all", "any", "count_nonzero"])
@pytest.mark.parametrize("axis", [(), (0, 2), (-1,), None, 1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_axes(name, axis, keepdims, rng):
    a = rng.normal(size=(2, 3, 4))
    a = a > 0 if name in ("all", "any") else a
    got = getattr(us, name)(torch.from_numpy(a), axis=axis, keepdims=keepdims)
    wanted = np.asarray(getattr(np, name)(a, axis=axis, keepdims=keepdims))
    assert tuple(got.shape) == wanted.shape
    np.testing.assert_allclose(got.numpy(), wanted)


def test_correction(rng):
    a = rng.normal(size=(3, 5))
    np.testing.assert_allclose(us.var(torch.from_numpy(a), axis=1, correction=1.5).numpy(), a.var(axis=1) * 5 / 3.5)


def test_sign_of_nan_is_nan():
    assert us.sign(t([np.nan, -2.0, 0.0], "float32")).tolist()[1:] == [-1, 0]
    assert torch.isnan(us.sign(t([np.nan], "float32"))).all()
    np.testing.assert_allclose(us.sign(t([3 + 4j], "complex64")).numpy(), [0.6 + 0.8j], rtol=1e-6)


# Positions and shapes


def test_positions_from_the_end(rng):
    a = rng.normal(size=(4, 5)).astype("float32")
    x = torch.from_numpy(a)
    for dtype in ("int64", "int32", "int8", "uint8"):
        i = np.asarray([1, 0]) if dtype == "uint8" else np.asarray([-1, 2, 0])
        np.testing.assert_array_equal(us.take(x, t(i, dtype), axis=1).numpy(), a[:, i])
    i = np.asarray([[-1, 0], [1, -2], [0, 0], [3, 4]])
    np.testing.assert_array_equal(us.take_along_axis(x, torch.from_numpy(i)).numpy(), np.take_along_axis(a, i, axis=1))
    with pytest.raises(IndexError):
        us.take(x, torch.tensor([4]), axis=0)


def test_squeeze_of_a_longer_axis():
    with pytest.raises(ShapeError, match="length 1"):
        us.squeeze(torch.ones(1, 2), axis=1)


def test_reshape_without_a_copy():
    x = torch.ones(2, 3)
    assert us.reshape(x, (6,), copy=False).data_ptr() == x.data_ptr()
    assert us.reshape(x, (6,), copy=True).data_ptr() != x.data_ptr()
    with pytest.raises(ArgumentError, match="copy"):
        us.reshape(x.T, (6,), copy=False)


def test_clip_by_a_number_and_an_array():
    got = us.clip(torch.tensor([-1.0, 0.5, 9.0]), 0.0, torch.tensor([1.0, 1.0, 2.0]))
    assert got.tolist() == [0.0, 0.5, 2.0]
    assert us.dtype_of(us.clip(torch.tensor([1, 5]), 0, 2.0)) == "int64"


# Creation


def test_defaults_do_not_follow_torch():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        made = [us.zeros(2), us.ones(2), us.empty(2), us.full(2, 1.0), us.eye(2), us.linspace(0, 1, 3), us.arange(1.0),
                us.asarray(1.5), us.asarray([1.5, 2]), us.random.uniform(us.random.Key(0), (2,))]  # fmt: skip
    finally:
        torch.set_default_dtype(before)
    assert {us.dtype_of(x) for x in made} == {us.float32}


def test_ranges():
    assert us.arange(3, 0).shape == (0,)
    assert us.arange(3, 0, -1).tolist() == [3, 2, 1]
    np.testing.assert_array_equal(us.eye(3, 4, k=-1).numpy(), np.eye(3, 4, k=-1))
    np.testing.assert_allclose(us.linspace(0, 1, 4, endpoint=False).numpy(), [0, 0.25, 0.5, 0.75])


def test_asarray_shares_what_may_be_written():
    a = np.ones(3, dtype=np.float32)
    us.asarray(a)[0] = 5
    assert a[0] == 5
    a.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, y = us.asarray(a), us.from_dlpack(a)
    x[0] = y[0] = 7
    assert a[0] == 5
    with pytest.raises(ArgumentError, match="read-only"):
        us.asarray(a, copy=False)


def test_asarray_of_numpy_that_torch_cannot_share():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert us.asarray(np.arange(3)[::-1]).tolist() == [2, 1, 0]
    assert us.asarray(np.arange(3, dtype=">i4")).tolist() == [0, 1, 2]
    assert us.asarray(np.float64(1.5)).dtype is torch.float64
    x = us.asarray(np.asarray([1.5, 2.0], dtype=ml_dtypes.bfloat16))
    assert x.dtype is torch.bfloat16
    assert x.tolist() == [1.5, 2.0]
    for bad in (np.asarray(["a"]), ["a", "b"], [[1], [2, 3]], object()):
        with pytest.raises(ArgumentTypeError, match="numbers"):
            us.asarray(bad)


def test_asarray_of_sequences_of_arrays_keeps_the_graph():
    x = torch.tensor(2.0, requires_grad=True)
    (g,) = torch.autograd.grad(us.asarray([x * 3, x]).sum(), x)
    assert g.item() == 4


def test_asarray_changes_dtype_and_copies():
    x = torch.ones(2)
    assert us.asarray(x) is x
    assert us.asarray(x, copy=True).data_ptr() != x.data_ptr()
    assert us.asarray(x, dtype="float64").dtype is torch.float64
    assert us.astype(x, "float32").data_ptr() != x.data_ptr()
    assert us.astype(x, "float32", copy=False) is x
    with pytest.raises(ArgumentError, match="copy"):
        us.asarray(x, dtype="int64", copy=False)


# Conversion


def test_to_numpy():
    assert us.to_numpy(t([1.5], "bfloat16")).dtype == np.float32
    assert us.to_numpy(torch.nn.Parameter(torch.ones(2))).tolist() == [1, 1]
    assert us.to_numpy(torch.tensor([1j]).conj()).tolist() == [-1j]
    x = torch.ones(2)
    assert np.shares_memory(us.to_numpy(x), x.numpy())


def test_dlpack_shares_memory():
    x = torch.arange(4.0)
    y = us.from_dlpack(x)
    y[0] = 9
    assert x[0] == 9


def test_subclasses_and_fake_tensors_dispatch():
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Mine(torch.Tensor):
        pass

    assert us.namespace(torch.nn.Parameter(torch.ones(1))).NAME == "torch"
    assert us.namespace(torch.ones(1).as_subclass(Mine)).NAME == "torch"
    with FakeTensorMode() as mode:
        x = mode.from_tensor(torch.ones(4, 8, 8, 1))
        y = us.nn.max_pool2d(us.nn.relu(us.nn.conv2d(x, torch.empty(3, 1, 5, 5))), 2)
        assert us.add(y, us.zeros((), dtype="float64")).dtype is torch.float64
        assert tuple(y.shape) == (4, 2, 2, 3)
        value, gradient = us.value_and_grad(lambda w: us.mean(us.nn.conv2d(x, w)))(torch.empty(3, 1, 5, 5))
        assert tuple(value.shape) == ()
        assert tuple(gradient.shape) == (3, 1, 5, 5)
        with pytest.raises(TraceError, match="concrete"):
            us.to_numpy(y)


# nn


def test_one_hot_out_of_range_is_zero():
    assert us.nn.one_hot(torch.tensor([1, 5, -1]), 2).tolist() == [[0, 1], [0, 0], [0, 0]]


def test_softplus_in_double_precision():
    x = torch.tensor([25.0, 39.0, 41.0, 800.0], dtype=torch.float64)
    np.testing.assert_allclose(us.nn.softplus(x).numpy(), np.logaddexp(x.numpy(), 0), rtol=1e-15)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_same_padding(size, stride):
    x = torch.randn(2, 7, 8, 3)
    y = us.nn.conv2d(x, torch.randn(4, 3, size, size), stride=stride, padding="same")
    assert tuple(y.shape) == (2, -(-7 // stride), -(-8 // stride), 4)
    ones = us.nn.conv1d(torch.ones(1, 4, 1), torch.ones(1, 1, 2), padding="same")
    assert ones.flatten().tolist() == [2, 2, 2, 1]  # the extra zero stands at the end


def test_unknown_words_of_convolutions():
    x, w = torch.ones(1, 4, 4, 1), torch.ones(1, 1, 2, 2)
    with pytest.raises(UnknownNameError, match="NHWC"):
        us.nn.conv2d(x, w, data_format="NWHC")
    with pytest.raises(UnknownNameError, match="same"):
        us.nn.conv2d(x, w, padding="some")


def test_images_stay_channels_last_in_memory():
    x = torch.randn(2, 8, 8, 3)
    y = us.nn.max_pool2d(us.nn.relu(us.nn.conv2d(x, torch.randn(4, 3, 3, 3))), 2)
    assert y.is_contiguous()


def test_cross_entropy_checks_labels_on_the_cpu():
    with pytest.raises(IndexError):
        us.nn.softmax_cross_entropy_with_integer_labels(torch.zeros(1, 2), torch.tensor([2]))


# Random numbers


def test_draws_are_reproducible_and_leave_torchs_generator_alone():
    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    key = us.random.Key(7)
    draws = [us.random.uniform(key, (5,)), us.random.normal(key, (5,)), us.random.bernoulli(key, 0.5, (50,))]
    again = [us.random.uniform(key, (5,)), us.random.normal(key, (5,)), us.random.bernoulli(key, 0.5, (50,))]
    assert all(torch.equal(a, b) for a, b in zip(draws, again, strict=True))
    assert not torch.equal(draws[0], us.random.uniform(key.fold_in(1), (5,)))
    assert torch.equal(state, torch.random.get_rng_state())
    assert us.dtype_of(us.random.normal(key, (2,), dtype="float64")) == "float64"

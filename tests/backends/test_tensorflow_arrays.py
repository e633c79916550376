"""TensorFlow's arrays against NumPy where TensorFlow differs: missing kernels, dtypes, negative positions, memory."""

from __future__ import annotations

import numpy as np
import pytest

import unisync as us
from unisync import _dispatch
from unisync.errors import ArgumentError, ShapeError, TraceError

tf = pytest.importorskip("tensorflow")

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SIGNED, UNSIGNED = INTEGERS[:4], INTEGERS[4:]
FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEXES = ("complex64", "complex128")
EVERY = ("bool", *INTEGERS, *FLOATS, *COMPLEXES)


@pytest.fixture(autouse=True)
def _backend():
    with us.backend("tensorflow"):
        yield


def host(x):
    return np.asarray(us.to_numpy(x))


def made(values, dtype):
    return us.asarray(np.asarray(values), dtype=dtype)


# Every dtype


MOVES = {
    "tile": (lambda m, x: m.tile(x, (2, 3)), lambda x: np.tile(x, (2, 3))),
    "repeat": (lambda m, x: m.repeat(x, 2, axis=1), lambda x: np.repeat(x, 2, axis=1)),
    "roll": (lambda m, x: m.roll(x, (1, -1), axis=(0, 1)), lambda x: np.roll(x, (1, -1), axis=(0, 1))),
    "flip": (lambda m, x: m.flip(x), lambda x: np.flip(x)),
    "tril": (lambda m, x: m.tril(x, k=-1), lambda x: np.tril(x, -1)),
    "triu": (lambda m, x: m.triu(x, k=1), lambda x: np.triu(x, 1)),
    "concat": (lambda m, x: m.concat([x, x], axis=-1), lambda x: np.concatenate([x, x], -1)),
    "take": (lambda m, x: m.take(x, us.asarray([-1, 0]), axis=1), lambda x: np.take(x, [-1, 0], axis=1)),
    "where": (lambda m, x: m.where(x == x, x, x), lambda x: x),
    "broadcast_to": (lambda m, x: m.broadcast_to(x, (2, 2, 3)), lambda x: np.broadcast_to(x, (2, 2, 3))),
    "nonzero": (lambda m, x: m.nonzero(x)[0], lambda x: np.nonzero(x)[0]),
    "count_nonzero": (lambda m, x: m.count_nonzero(x, axis=0), lambda x: np.count_nonzero(x, axis=0)),
    "any": (lambda m, x: m.any(x, axis=1), lambda x: np.any(x, axis=1)),
    "equal": (lambda m, x: m.equal(x, x), lambda x: np.equal(x, x)),
    "isfinite": (lambda m, x: m.isfinite(x), lambda x: np.ones(x.shape, bool)),
}


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("name", MOVES)
def test_moves_of_every_dtype(name, dtype):
    ours, theirs = MOVES[name]
    x = np.array([[0, 1, 2], [3, 0, 5]]).astype("float32" if dtype == "bfloat16" else dtype)
    got = ours(us.namespace(us.ones(1)), made(x, dtype))
    np.testing.assert_array_equal(host(got), theirs(x))
    assert us.dtype_of(got) in (dtype, "int64", "bool")


NUMBERS_OF = {
    "sum": (lambda x: us.sum(x, axis=0), lambda x: np.sum(x, axis=0), INTEGERS),
    "prod": (lambda x: us.prod(x), lambda x: np.prod(x), INTEGERS),
    "cumulative_sum": (lambda x: us.cumulative_sum(x, axis=1), lambda x: np.cumsum(x, axis=1), INTEGERS),
    "abs": (us.abs, np.abs, INTEGERS),
    "negative": (us.negative, lambda x: np.negative(x), INTEGERS),
    "sign": (us.sign, np.sign, INTEGERS),
    "square": (us.square, np.square, INTEGERS),
    "floor": (us.floor, lambda x: x, INTEGERS),
    "round": (us.round, lambda x: x, INTEGERS),
    "trunc": (us.trunc, lambda x: x, INTEGERS),
    "pow": (lambda x: us.pow(x, 3), lambda x: x**3, INTEGERS),
    "invert": (us.bitwise_invert, np.invert, INTEGERS),
    "shift": (lambda x: us.bitwise_left_shift(x, 2), lambda x: x << 2, INTEGERS),
    "matmul": (lambda x: us.matmul(x, us.matrix_transpose(x)), lambda x: x @ x.T, INTEGERS),
    "tensordot": (lambda x: us.tensordot(x, x, axes=2), lambda x: np.tensordot(x, x, 2), INTEGERS),
    "vecdot": (lambda x: us.vecdot(x, x), lambda x: np.sum(x * x, -1, dtype=x.dtype), INTEGERS),
    "sort": (lambda x: us.sort(x, descending=True), lambda x: np.sort(x)[..., ::-1], INTEGERS),
    "argsort": (lambda x: us.argsort(x), lambda x: np.argsort(x, kind="stable"), ("bool", *INTEGERS)),
    "argmax": (lambda x: us.argmax(x), lambda x: np.argmax(x), ("bool", *INTEGERS)),
    "max": (lambda x: us.max(x, axis=1, keepdims=True), lambda x: np.max(x, axis=1, keepdims=True), INTEGERS),
    "searchsorted": (
        lambda x: us.searchsorted(us.sort(us.reshape(x, (-1,))), x, side="right"),
        lambda x: np.searchsorted(np.sort(x, None), x, side="right"),
        INTEGERS,
    ),
}


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name, (_, _, dtypes) in NUMBERS_OF.items() for dtype in dtypes]
)
def test_integers(name, dtype):
    ours, theirs, _ = NUMBERS_OF[name]
    x = np.array([[1, 3, 3], [2, 0, 1]], dtype)
    if dtype in SIGNED:
        x = x - np.array(2, dtype)
    wanted = np.asarray(theirs(x))
    got = ours(us.asarray(x))
    np.testing.assert_array_equal(host(got), wanted)
    assert us.dtype_of(got) == str(wanted.dtype)


@pytest.mark.parametrize("dtype", ["int8", "int64", "float16", "float32", "float64"])
def test_division_follows_the_sign_of_the_divisor(dtype):
    x, y = np.array([7, -7, 7, -7], dtype), np.array([3, 3, -3, -3], dtype)
    np.testing.assert_array_equal(host(us.floor_divide(us.asarray(x), us.asarray(y))), x // y)
    np.testing.assert_array_equal(host(us.remainder(us.asarray(x), us.asarray(y))), x % y)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding(dtype):
    x = made([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1.7, -1.7], dtype)
    np.testing.assert_array_equal(host(us.round(x)), [-2, -2, 0, 0, 2, 2, 2, -2])
    np.testing.assert_array_equal(host(us.trunc(x)), [-2, -1, 0, 0, 1, 2, 1, -1])


@pytest.mark.parametrize("extreme", ["int8", "uint64"])
def test_sort_of_extremes(extreme):
    info = np.iinfo(extreme)
    x = np.array([info.max, info.min, 3, info.max - 1], extreme)
    np.testing.assert_array_equal(host(us.sort(us.asarray(x))), np.sort(x))
    np.testing.assert_array_equal(host(us.argsort(us.asarray(x))), np.argsort(x))


def test_booleans():
    x, y = us.asarray([True, True, False]), us.asarray([True, False, False])
    np.testing.assert_array_equal(host(us.bitwise_and(x, y)), [True, False, False])
    np.testing.assert_array_equal(host(us.bitwise_xor(x, y)), [False, True, False])
    np.testing.assert_array_equal(host(us.bitwise_invert(x)), [False, False, True])
    np.testing.assert_array_equal(host(us.sort(x)), [False, True, True])
    assert us.dtype_of(us.sum(x)) == "int64"


@pytest.mark.parametrize(
    ("x", "number", "dtype"),
    [
        ("int32", 2.5, "float32"), ("int8", 2, "int8"), ("uint8", True, "uint8"), ("bool", 2, "int64"),
        ("float16", 2.5, "float16"), ("bfloat16", 2, "bfloat16"), ("float64", 2.5, "float64"),
        ("float64", 2j, "complex128"), ("int32", 2j, "complex64"),
    ],
)  # fmt: skip
def test_numbers_take_the_dtype_of_the_array(x, number, dtype):
    array = us.ones(2, dtype=x)
    for got in (us.multiply(array, number), us.multiply(number, array), us.where(us.asarray(True), array, number)):
        assert us.dtype_of(got) == dtype
    np.testing.assert_array_equal(host(us.multiply(array, number)), np.full(2, number))


def test_logaddexp_of_infinities():
    x, y = np.array([-np.inf, np.inf, 0.0, 1000.0]), np.array([-np.inf, -np.inf, 0.0, 0.0])
    np.testing.assert_array_equal(host(us.logaddexp(us.asarray(x), us.asarray(y))), np.logaddexp(x, y))
    shares = us.grad(lambda x: us.sum(us.logaddexp(x, us.asarray(y))))(us.asarray(x))
    np.testing.assert_array_equal(host(shares), [0.5, 1.0, 0.5, 1.0])


# Positions


def test_take_along_axis_broadcasts_and_counts_from_the_end():
    x = np.arange(24.0).reshape(2, 3, 4)
    for axis, shape in ((0, (1, 3, 4)), (1, (2, 2, 1)), (2, (1, 1, 2)), (-1, (2, 3, 5))):
        indices = np.random.default_rng(0).integers(-x.shape[axis], x.shape[axis], shape)
        others = [n if a != axis % 3 else shape[a] for a, n in enumerate(x.shape)]
        wanted = np.take_along_axis(x, np.broadcast_to(indices, others), axis)
        got = us.take_along_axis(us.asarray(x), us.asarray(indices), axis=axis)
        np.testing.assert_array_equal(host(got), wanted)


def test_wrong_axes():
    x = us.ones((2, 3))
    with pytest.raises(ShapeError, match="axis"):
        us.flip(x, axis=2)
    with pytest.raises(ArgumentError, match="axis=0"):
        us.take(x, us.asarray([0]))
    with pytest.raises(ArgumentError, match="axis=0"):
        us.cumulative_sum(x)


def test_no_axes_reduce_nothing():
    x = us.asarray([[1.0, 2.0]])
    assert us.sum(x, axis=()).shape == (1, 2)
    assert us.squeeze(us.ones((1, 2)), axis=()).shape == (1, 2)


# Kinds of tensors


def test_kinds_of_arrays_are_found():
    seen = []

    @tf.function
    def trace(x):
        seen.append(type(x))
        return us.exp(x)

    trace(tf.ones(2))
    rows = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([1]), tf.constant([3, 2]))
    for kind in (*seen, type(tf.ones(1)), type(tf.Variable(1.0)), type(rows)):
        assert _dispatch.of[kind].NAME == "tensorflow"
    np.testing.assert_array_equal(host(us.add(rows, 1.0)), [[1, 1], [2, 2], [1, 1]])


def test_variables_are_read():
    v = tf.Variable([1.0, 4.0])
    np.testing.assert_array_equal(host(us.sqrt(v)), [1, 2])
    np.testing.assert_array_equal(host(us.multiply(2.0, v)), [2, 8])
    np.testing.assert_array_equal(host(v), [1, 4])
    np.testing.assert_array_equal(host(us.grad(lambda x: us.sum(x * v))(v)), [1, 4])
    np.testing.assert_array_equal(host(us.jit(lambda x: x + 1)(v)), [2, 5])
    np.testing.assert_array_equal(host(us.positive(v)), [1, 4])


def test_unknown_lengths_while_tracing():
    @tf.function(input_signature=[tf.TensorSpec((None, 3))])
    def f(x):
        assert us.reshape(x, (x.shape[0], 3, 1)).shape.as_list() == [None, 3, 1]
        return (
            us.take_along_axis(x, us.argsort(x), axis=-1),
            us.broadcast_arrays(x, us.ones(3))[1],
            us.tril(x),
            us.var(x, axis=0, correction=1),
            us.full_like(x, 2.0),
            us.roll(x, 1),
            us.searchsorted(x[0], x),
        )

    x = np.sort(np.random.default_rng(0).normal(size=(4, 3)).astype("float32"), -1)
    got = [host(part) for part in f(x)]
    wanted = [x, np.ones((4, 3)), np.tril(x), x.var(0, ddof=1), np.full((4, 3), 2.0), np.roll(x, 1)]
    for one, other in zip(got, [*wanted, np.searchsorted(x[0], x)], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


# Memory


def pointer(x):
    return np.asarray(x).__array_interface__["data"][0]


def test_the_host_sees_the_memory_of_a_tensor():
    x = us.ones(1000)
    assert pointer(us.to_numpy(x)) == pointer(us.to_numpy(x))
    assert not us.to_numpy(x).flags.writeable


def aligned_ones(dtype):
    """1000 ones that TensorFlow need not copy: aligned for its kernels."""
    room = np.empty(20000, np.uint8)
    start = -pointer(room) % 64
    x = room[start : start + 1000 * np.dtype(dtype).itemsize].view(dtype)
    x[:] = 1
    return x


def test_asarray_copies_what_it_could_share():
    x = aligned_ones("float32")
    y, returned = us.asarray(x), us.namespace().jit(lambda x: x)(x)
    x[:] = 2
    assert host(y).max() == host(returned).max() == 1


@pytest.mark.parametrize("dtype", [d for d in EVERY if d != "bfloat16"])
def test_dlpack_shares_memory(dtype):
    x = aligned_ones(dtype)
    assert pointer(us.to_numpy(us.convert(x, "tensorflow"))) == pointer(x)


def test_dlpack_copies_what_cannot_be_shared():
    strided, fixed = np.arange(10.0)[::2], np.ones(3)
    fixed.flags.writeable = False
    np.testing.assert_array_equal(host(us.convert(strided, "tensorflow")), strided)
    np.testing.assert_array_equal(host(us.convert(fixed, "tensorflow")), fixed)


def test_symbols_have_no_numbers():
    with pytest.raises(TraceError, match="compiled function is tracing"):
        us.jit(lambda x: us.asarray(us.to_numpy(x)))(us.ones(2))

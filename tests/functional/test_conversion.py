"""Between backends, from and to NumPy, and between devices: values, dtypes, and when memory is shared."""

from __future__ import annotations

import numpy as np
import pytest
from checks import assert_same
from under_test import BACKENDS

import unisync as us
from unisync.errors import UnisyncError, UnknownNameError

PAIRS = [(a, b) for a in BACKENDS for b in BACKENDS if a != b]


def made_by(name: str, value):
    """An array of a backend."""
    with us.backend(name):
        return us.asarray(value)


def name_of(x) -> str:
    return us.namespace(x).NAME


VALUES = {
    "bool": [True, False, True, True],
    "int8": [-128, 0, 1, 127],
    "uint8": [0, 1, 128, 255],
    "int32": [-(2**31), 0, 1, 2**31 - 1],
    "int64": [-(2**63), 0, 1, 2**63 - 1],
    "float16": [0.0, -0.5, float("inf"), 65504.0],
    "float32": [0.0, -0.5, float("nan"), 1e-38],
    "float64": [0.0, -0.5, float("nan"), 1e-300],
    "complex64": [0, 1 + 2j, -1j, 5],
}


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_convert_keeps_every_value(one, two, dtype):
    value = np.asarray(VALUES[dtype], dtype=dtype)
    for v in (value, value.reshape(2, 2), value[1], value[:0].reshape(0, 3)):
        got = us.convert(made_by(one, v), two)
        assert name_of(got) == two
        assert us.dtype_of(got) == dtype
        assert tuple(got.shape) == v.shape
        np.testing.assert_array_equal(us.to_numpy(got), v)


@pytest.mark.parametrize(("one", "two"), [p for p in PAIRS if "numpy" not in p])
def test_convert_bfloat16(one, two):
    with us.backend(one):
        x = us.asarray([1.0, 1.5, -2.0], dtype="bfloat16")
    got = us.convert(x, two)
    assert us.dtype_of(got) == "bfloat16"
    np.testing.assert_array_equal(us.to_numpy(got), np.asarray([1.0, 1.5, -2.0], dtype="float32"))


@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_convert_what_is_not_contiguous(one, two):
    x = np.arange(12.0, dtype="float32").reshape(3, 4)
    with us.backend(one):
        views = [us.permute_dims(us.asarray(x), (1, 0)), us.flip(us.asarray(x), axis=0), us.asarray(x)[::2, 1:3]]
    for view, wanted in zip(views, (x.T, x[::-1], x[::2, 1:3]), strict=True):
        np.testing.assert_array_equal(us.to_numpy(us.convert(view, two)), wanted)


@pytest.mark.parametrize("name", BACKENDS)
def test_convert_to_the_same_backend_is_nothing(name):
    x = made_by(name, [1.0])
    assert us.convert(x, name) is x


def test_convert_numbers(backend):
    assert name_of(us.convert(1.5, backend)) == backend


def test_from_dlpack(backend):
    x = np.asarray([1.0, 2.0])
    assert_same(us.from_dlpack(x), x)
    assert_same(us.from_dlpack(us.asarray(x)), x)


def test_convert_to_an_unknown_backend():
    with pytest.raises(UnknownNameError, match="Try: 'torch'"):
        us.convert(np.ones(1), "torhc")


def pointer(x) -> int:
    """The address of an array's first element."""
    kind = name_of(x)
    if kind == "torch":
        return x.data_ptr()
    if kind == "jax":
        return x.unsafe_buffer_pointer()
    host = x if kind == "numpy" else np.asarray(memoryview(x))  # TensorFlow's eager tensors speak the buffer protocol
    return host.__array_interface__["data"][0]


@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_convert_shares_memory(one, two):
    aligned = np.empty(4096 + 64, dtype="uint8")  # XLA takes over only memory that is aligned to 64 bytes
    offset = -aligned.__array_interface__["data"][0] % 64
    x = aligned[offset : offset + 4096].view("float32")
    x[:] = np.arange(1024)
    source = x if one == "numpy" else us.add(made_by(one, x), 0.0)
    assert pointer(us.convert(source, two)) == pointer(source)


def test_to_numpy(backend):
    x = us.asarray([[1.0, 2.0]])
    assert isinstance(us.to_numpy(x), np.ndarray)
    assert pointer(x) == us.to_numpy(x).__array_interface__["data"][0]
    assert isinstance(us.to_numpy(us.asarray(1.0)), np.ndarray)
    assert us.to_numpy(us.sum(x)).shape == ()
    np.testing.assert_array_equal(us.to_numpy([1, 2]), [1, 2])
    assert us.to_numpy(2.5) == 2.5


def test_to_numpy_of_a_traced_array(backend):
    def look(x):
        us.to_numpy(x)
        return us.sum(x)

    with pytest.raises(UnisyncError, match=r"Try: |tracing|traced"):
        us.grad(look)(us.ones(2))


# asarray


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, "int64"), (1.5, "float32"), (True, "bool"), (2j, "complex64"), ([1, 2], "int64"), ([1, 2.5], "float32"),
        ([[True], [False]], "bool"), ((1.0, 2.0), "float32"), ([], "float32"), (np.float64(1.5), "float64"),
        (np.ones(2), "float64"), (np.ones(2, dtype="int32"), "int32"), ([np.ones(2), np.ones(2)], "float64"),
        (range(3), "int64"),
    ],
)  # fmt: skip
def test_asarray_dtypes(backend, value, dtype):
    got = us.asarray(value)
    assert name_of(got) == backend
    assert us.dtype_of(got) == dtype
    np.testing.assert_array_equal(us.to_numpy(got), np.asarray(value))
    assert us.dtype_of(us.asarray(value, dtype=us.complex64)) == "complex64"


@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_asarray_moves_host_data_only(one, two):
    x = made_by(one, [1.0, 2.0])
    with us.backend(two):
        assert name_of(us.asarray(x)) == (two if one == "numpy" else one)
        assert name_of(us.asarray(x, like=us.ones(1))) == two


def test_asarray_copy(backend):
    x = us.asarray([1.0, 2.0])
    assert pointer(us.asarray(x)) == pointer(x)
    assert pointer(us.asarray(x, copy=False)) == pointer(x)
    assert pointer(us.asarray(x, copy=True)) != pointer(x)
    host = np.ones(1024, dtype="float32")
    copied = us.asarray(host, copy=True)
    host[:] = 7
    assert us.to_numpy(copied)[0] == 1
    with pytest.raises((ValueError, TypeError)):
        us.asarray(x, dtype="float64", copy=False)


def test_asarray_of_a_ragged_list(backend):
    with pytest.raises((ValueError, TypeError)):
        us.asarray([[1.0], [2.0, 3.0]])


@pytest.mark.parametrize("word", ["float32", us.float32, float])
def test_every_form_of_a_dtype(backend, word):
    x = us.ones(2, dtype=word)
    assert us.dtype_of(x) is us.float32
    assert us.dtype_of(us.zeros(2, dtype=x.dtype)) is us.float32  # the framework's own
    assert us.dtype_of(us.astype(us.ones(2, dtype="int8"), word)) is us.float32


def test_unknown_dtype_names_the_nearest(backend):
    with pytest.raises(UnknownNameError, match="Try: 'float32'"):
        us.zeros(2, dtype="flaot32")


def test_devices(backend):
    x = us.ones(2)
    assert us.to_device(x, us.device(x)) is x
    assert us.device(us.zeros(2, like=x)) == us.device(x)
    assert us.device(us.zeros(2, device=us.device(x))) == us.device(x)
    assert us.block_until_ready({"a": x, "b": [x]})["a"] is x


def test_convert_variables_and_numpy_scalars(backend):
    assert us.to_numpy(us.convert(np.float64(2), backend)) == 2
    assert us.dtype_of(us.convert(np.float64(2), backend)) == "float64"
    tf = pytest.importorskip("tensorflow")
    made = us.convert(tf.Variable([1.0, 2.0]), backend)
    assert backend == us.namespace(made).NAME
    assert us.to_numpy(made).tolist() == [1.0, 2.0]

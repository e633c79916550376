"""Creation, shapes, indexing, matrix products and dtypes against NumPy: one row per case."""

from __future__ import annotations

import numpy as np
import pytest
from checks import assert_same, native, program
from hypothesis import HealthCheck, given, settings, strategies as st

import unisync as us
from unisync.errors import ArgumentTypeError, UnknownNameError

A = np.arange(24, dtype="float32").reshape(2, 3, 4)
B = np.asarray([[3, 1, 2], [9, 7, 8]])
V = np.asarray([5, 6, 7])
EMPTY = np.zeros((0, 3), dtype="float32")
ZERO_D = np.asarray(1.5, dtype="float32")


def row(name, *args, oracle=None, **kwargs):
    """One case: us.<name>(*args, **kwargs) equals np.<name>, or the oracle, of the same arguments."""
    return pytest.param(name, args, kwargs, oracle or getattr(np, name), id=f"{name}-{len(args)}")


MANIPULATION = [
    row("broadcast_arrays", A, V[:1].astype("float32")),
    row("broadcast_arrays", B, ZERO_D),
    row("broadcast_to", V, (2, 3)),
    row("broadcast_to", ZERO_D, (2, 2)),
    row("concat", [A, A], axis=1),
    row("concat", [B, B, B], axis=-1),
    row("concat", (B, V), axis=None),
    row("concat", [EMPTY, EMPTY + 1, np.ones((2, 3), "float32")]),
    row("expand_dims", A, axis=1),
    row("expand_dims", ZERO_D, oracle=lambda x: x[None]),
    row("expand_dims", V, axis=-1),
    row("flip", A),
    row("flip", A, axis=1),
    row("flip", A, axis=(0, -1)),
    row("moveaxis", A, 0, -1),
    row("moveaxis", A, (0, 1), (2, 0)),
    row("permute_dims", A, (2, 0, 1)),
    row("permute_dims", ZERO_D, ()),
    row("repeat", B, 2),
    row("repeat", B, 2, axis=1),
    row("repeat", B, np.asarray([2, 0, 1]), axis=-1),
    row("repeat", V, np.asarray([1, 2, 0])),
    row("reshape", A, (4, -1)),
    row("reshape", A, (24,)),
    row("reshape", EMPTY, (3, 0)),
    row("reshape", ZERO_D, (1, 1)),
    row("reshape", V, (3, 1), copy=True),
    row("roll", B, 1),
    row("roll", B, -4, axis=1),
    row("roll", B, (1, 2), axis=(0, 1)),
    row("squeeze", A[:1, :, :1], axis=(0, 2)),
    row("squeeze", A[:, :1], axis=1),
    row("squeeze", A[..., :1], axis=-1),
    row("stack", [B, B + 1], axis=1),
    row("stack", [V, V], axis=-1),
    row("stack", [ZERO_D, ZERO_D]),
    row("tile", B, (2, 1)),
    row("tile", V, (2, 2)),
    row("tile", A, (2,)),
    row("unstack", B, axis=1),
    row("unstack", A),
]
INDEXING = [
    row("take", V, np.asarray([2, 0, -1, 2])),
    row("take", A, np.asarray([1, 0, 1]), axis=1),
    row("take", A, np.asarray([], dtype="int64"), axis=-1),
    row("take", B, np.asarray([-1], dtype="int32"), axis=0),
    row("take_along_axis", B, np.asarray([[2, 0], [1, -1]]), axis=1),
    row("take_along_axis", B, np.asarray([[1, 0, 1]]), axis=0),
    row("take_along_axis", A, np.zeros((2, 3, 1), "int64")),
    row("take_along_axis", B, np.asarray([[2]]), axis=1, oracle=lambda x, i, axis: x[:, 2:]),
]
LINEAR_ALGEBRA = [
    row("matmul", A, A[0].T),
    row("matmul", A, np.swapaxes(A, 1, 2)),
    row("matmul", B, V),
    row("matmul", V, B.T),
    row("matmul", V, V),
    row("matmul", EMPTY, np.ones((3, 2), "float32")),
    row("matmul", np.ones((2, 0), "float32"), EMPTY),
    row("matmul", A[0].astype("complex64") * 1j, A[0].T.astype("complex64")),
    row("matrix_transpose", A),
    row("tensordot", A, A[0].T, axes=1),
    row("tensordot", A, A, axes=3),
    row("tensordot", B, V, axes=0),
    row("tensordot", A, A, axes=((0, 2), (0, 2))),
    row("tensordot", A, A, axes=([1], [-2])),
    row("tril", A),
    row("tril", B, k=-1),
    row("triu", A, k=1),
    row("triu", B > 2),
    row("vecdot", A, A[0]),
    row("vecdot", A, A, axis=-2),
    row("vecdot", (A[0] * 1j).astype("complex64"), A[0].astype("complex64")),
]
DTYPES = [
    row("astype", A * -1.7, "int32"),
    row("astype", B, "float64"),
    row("astype", A, "bool"),
    row("astype", A > 3, "float32", copy=False),
    row("astype", B, "complex64"),
    row("astype", ZERO_D, "float16"),
    row("astype", B - 5, "uint8"),
]
CREATION = [  # call, shape, dtype, values
    ("arange", (5,), {}, [0, 1, 2, 3, 4], "int64"),
    ("arange", (1, 6, 2), {}, [1, 3, 5], "int64"),
    ("arange", (3, 0, -1), {}, [3, 2, 1], "int64"),
    ("arange", (2.0,), {}, [0, 1], "float32"),
    ("arange", (0, 1, 0.25), {}, [0, 0.25, 0.5, 0.75], "float32"),
    ("arange", (3,), {"dtype": "float64"}, [0, 1, 2], "float64"),
    ("arange", (3, 3), {}, [], "int64"),
    ("eye", (2,), {}, np.eye(2), "float32"),
    ("eye", (2, 3), {"k": 1, "dtype": "int32"}, np.eye(2, 3, k=1), "int32"),
    ("eye", (3, 2), {"k": -1}, np.eye(3, 2, k=-1), "float32"),
    ("full", (2, 7), {}, [7, 7], "int64"),
    ("full", ((2, 1), 0.5), {}, [[0.5], [0.5]], "float32"),
    ("full", ((), True), {}, True, "bool"),
    ("full", (2, 1j), {}, [1j, 1j], "complex64"),
    ("full", (2, 7), {"dtype": "float64"}, [7, 7], "float64"),
    ("full_like", (B, 4), {}, np.full((2, 3), 4), "int64"),
    ("full_like", (B, 0.5), {"dtype": "float32"}, np.full((2, 3), 0.5), "float32"),
    ("linspace", (0.0, 1.0, 5), {}, np.linspace(0, 1, 5), "float32"),
    ("linspace", (0, 1, 4), {"endpoint": False, "dtype": "float64"}, [0, 0.25, 0.5, 0.75], "float64"),
    ("linspace", (2.0, 3.0, 1), {}, [2], "float32"),
    ("linspace", (2.0, 3.0, 0), {}, [], "float32"),
    ("ones", ((2, 3),), {}, np.ones((2, 3)), "float32"),
    ("ones", (2,), {"dtype": "bool"}, [True, True], "bool"),
    ("ones_like", (B,), {}, np.ones((2, 3)), "int64"),
    ("zeros", ((0, 2),), {}, np.zeros((0, 2)), "float32"),
    ("zeros", ((),), {"dtype": int}, 0, "int64"),
    ("zeros", ([2, 1],), {"dtype": "uint8"}, [[0], [0]], "uint8"),
    ("zeros_like", (A,), {"dtype": "int8"}, np.zeros((2, 3, 4)), "int8"),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "oracle"), MANIPULATION + INDEXING + LINEAR_ALGEBRA + DTYPES)
def test_against_numpy(backend, name, args, kwargs, oracle):
    leaves, structure = us.tree.flatten(list(args))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)]

    def call(arrays):
        filled = dict(enumerate(leaves)) | dict(zip(places, arrays, strict=True))
        return getattr(us, name)(*us.tree.unflatten(structure, list(filled.values())), **kwargs)

    run = call if name == "repeat" else program(call)  # repeats given as an array make the shape depend on values
    assert_same(run([native(leaves[i]) for i in places]), oracle(*args, **kwargs))


@pytest.mark.parametrize(("name", "args", "kwargs", "values", "dtype"), CREATION)
def test_creation(backend, name, args, kwargs, values, dtype):
    assert_same(getattr(us, name)(*native(args), **kwargs), np.asarray(values), dtype=dtype)


def test_empty(backend):
    assert tuple(us.empty((2, 3)).shape) == (2, 3)
    assert us.dtype_of(us.empty(2)) == "float32"
    assert us.dtype_of(us.empty_like(us.ones(2, dtype="int8"))) == "int8"
    assert tuple(us.empty_like(us.ones((4, 1)), dtype="float64").shape) == (4, 1)


def test_reshape_without_a_copy(backend):
    x = us.asarray(A)
    assert tuple(us.reshape(x, (6, 4), copy=False).shape) == (6, 4)


def test_squeeze_of_a_longer_axis(backend):
    with pytest.raises(Exception, match=r"."):
        us.squeeze(us.ones((2, 1)), axis=0)


@pytest.mark.parametrize("name", ["concat", "stack"])
def test_join_nothing(backend, name):
    with pytest.raises(Exception, match=r"."):
        getattr(us, name)([])


def test_dtype_functions(backend):
    x = us.ones(2, dtype="float64")
    assert us.dtype_of(x) is us.float64
    assert us.result_type(x, us.ones(2), 1j) == "complex128"
    assert us.result_type(us.int8, 2.0) == "float32"
    assert us.result_type("int8", us.ones(1, dtype="uint8").dtype) == "int16"
    assert us.isdtype(x.dtype, "real floating")
    assert us.isdtype(x.dtype, ("integral", "real floating"))
    assert not us.isdtype(us.int32, us.int64)
    assert us.finfo(x).bits == 64
    assert us.finfo(us.ones(1).dtype).eps == np.finfo("float32").eps
    assert us.iinfo(us.ones(1, dtype="int16")).max == 32767
    assert us.finfo("bfloat16").eps == 0.0078125
    with pytest.raises(ArgumentTypeError, match=r"Try: us.iinfo"):
        us.finfo(us.int8)
    with pytest.raises(ArgumentTypeError, match=r"Try: us.finfo"):
        us.iinfo(us.ones(1))
    with pytest.raises(UnknownNameError, match="`kind` must be one of"):
        us.isdtype(us.int8, "floating")
    with pytest.raises(ArgumentTypeError, match="at least one array or dtype"):
        us.result_type(1, 2.0)


# Properties

shapes = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)
few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(shape=shapes)
@few
def test_reshape_and_back(backend, shape):
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    assert_same(us.reshape(us.reshape(native(x), (x.size,)), shape), x)


@given(axes=st.permutations(range(3)))
@few
def test_permute_and_back(backend, axes):
    back = tuple(int(i) for i in np.argsort(axes))
    assert_same(us.permute_dims(us.permute_dims(native(A), tuple(axes)), back), A)


@given(shift=st.integers(-5, 5))
@few
def test_roll_and_back(backend, shift):
    assert_same(us.roll(us.roll(native(B), shift, axis=1), -shift, axis=1), B)


@given(indices=st.lists(st.integers(-3, 2), min_size=1, max_size=4))
@few
def test_take_by_brute_force(backend, indices):
    host = np.stack([A[:, i] for i in indices], axis=1)
    assert_same(us.take(native(A), native(np.asarray(indices)), axis=1), host)


@given(data=st.data())
@few
def test_take_along_axis_by_brute_force(backend, data):
    indices = np.asarray([[data.draw(st.integers(-3, 2)) for _ in range(2)] for _ in range(2)])
    host = np.asarray([[B[r, i] for i in indices[r]] for r in range(2)])
    assert_same(us.take_along_axis(native(B), native(indices), axis=1), host)


def test_unstack_undoes_stack(backend):
    for axis in (0, 1, -1):
        assert_same(us.stack(us.unstack(native(A), axis=axis), axis=axis), A)

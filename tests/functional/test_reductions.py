"""Reductions, searching and sorting against NumPy: one row per operation."""

from __future__ import annotations

import numpy as np
import pytest
from checks import assert_same, native, program

import unisync as us
from unisync.errors import UnisyncError

REDUCTIONS = {  # name: (oracle, dtypes, extra keyword arguments)
    "all": (np.all, ("bool", "float32", "int32"), {}),
    "any": (np.any, ("bool", "float32", "int32"), {}),
    "count_nonzero": (np.count_nonzero, ("int32", "bool", "float32"), {}),
    "max": (np.max, ("float32", "int32"), {}),
    "mean": (np.mean, ("float32", "float64"), {}),
    "min": (np.min, ("float32", "int32"), {}),
    "prod": (np.prod, ("float32", "int32"), {}),
    "std": (np.std, ("float32", "float64"), {"correction": 1}),
    "sum": (np.sum, ("float32", "int32", "bool", "complex64"), {}),
    "var": (np.var, ("float32", "float64"), {"correction": 1}),
}
AXES = [(None, False), (0, False), (-1, True), ((0, -1), False), ((1, 2), True), ((), False)]


def draw(rng, shape, dtype):
    return np.asarray(rng.integers(-2, 3, shape)).astype(dtype)


def oracle_of(name, x, axis, keepdims, **more):
    oracle = REDUCTIONS[name][0]
    wanted = oracle(x, axis=axis, keepdims=keepdims, **more)
    if axis == () and name == "count_nonzero":
        wanted = (x != 0).astype("int64")
    return np.asarray(wanted)


def check(name, calls):
    """us.<name>(x, axis=..., keepdims=..., **more) for each (x, axis, keepdims, more) against NumPy's."""
    op = getattr(us, name)

    def all_of(arrays):
        return [op(x, axis=a, keepdims=k, **m) for x, (_, a, k, m) in zip(arrays, calls, strict=True)]

    for got, (x, axis, keepdims, more) in zip(program(all_of)([native(c[0]) for c in calls]), calls, strict=True):
        assert_same(got, oracle_of(name, x, axis, keepdims, **more))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(backend, name, rng):
    _, dtypes, more = REDUCTIONS[name]
    first, *others = [draw(rng, (2, 3, 4), dtype) for dtype in dtypes]
    calls = [(first, axis, keepdims, {} if axis == () else more) for axis, keepdims in AXES]
    calls += [(x, axis, keepdims, more) for x in others for axis, keepdims in AXES[:2]]
    check(name, [*calls, (np.asarray(2).astype(dtypes[0]), None, False, {})])


@pytest.mark.parametrize("name", ["sum", "prod", "all", "any", "count_nonzero"])
def test_reduction_of_nothing(backend, name):
    check(name, [(np.ones((0, 3), dtype="float32"), axis, False, {}) for axis in (None, 0, 1)])


@pytest.mark.parametrize("name", ["sum", "prod", "cumulative_sum"])
def test_accumulators(backend, name):
    for dtype, wanted in (("int8", "int64"), ("uint8", "uint64"), ("bool", "int64"), ("float32", "float32"),
                          ("int64", "int64"), ("float64", "float64")):  # fmt: skip
        x = us.ones(3, dtype=dtype)
        assert us.dtype_of(getattr(us, name)(x)) == wanted
    assert us.dtype_of(getattr(us, name)(us.ones(3), dtype="float64")) == "float64"
    assert us.dtype_of(getattr(us, name)(us.ones(3, dtype="int8"), dtype=us.float32)) == "float32"


def test_small_integers_do_not_overflow(backend):
    x = np.full(4, 100, dtype="int8")
    assert_same(us.sum(native(x)), np.asarray(400))


@pytest.mark.parametrize("correction", [0, 1, 0.5])
def test_correction(backend, correction, rng):
    x = rng.normal(size=(3, 4))
    assert_same(us.var(native(x), axis=1, correction=correction), np.var(x, axis=1, correction=correction))
    assert_same(us.std(native(x), correction=correction), np.asarray(np.std(x, correction=correction)))


def test_nan_and_infinity(backend):
    x = np.asarray([[1, np.nan], [np.inf, 2]], dtype="float32")
    for name in ("max", "min", "sum", "mean"):
        assert_same(getattr(us, name)(native(x), axis=1), getattr(np, name)(x, axis=1))


@pytest.mark.parametrize(
    ("shape", "kwargs"),
    [((4,), {}), ((2, 3), {"axis": 0}), ((2, 3), {"axis": -1}), ((2, 3), {"axis": 1, "include_initial": True}),
     ((0,), {}), ((0, 2), {"axis": 0, "include_initial": True})],
)  # fmt: skip
def test_cumulative_sum(backend, shape, kwargs, rng):
    for dtype in ("float32", "int32"):
        x = draw(rng, shape, dtype)
        assert_same(us.cumulative_sum(native(x), **kwargs), np.cumulative_sum(x, **kwargs))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_position_of_extremes(backend, name, rng):
    x = draw(rng, (3, 4, 5), "float32")  # with ties: the first counts
    for dtype in ("float32", "int32"):
        for axis, keepdims in ((None, False), (1, False), (-1, True)):
            wanted = getattr(np, name)(x.astype(dtype), axis=axis, keepdims=keepdims)
            assert_same(getattr(us, name)(native(x.astype(dtype)), axis=axis, keepdims=keepdims), np.asarray(wanted))


@pytest.mark.parametrize("descending", [False, True])
def test_sorting(backend, descending, rng):
    x = draw(rng, (3, 6), "float32")
    for axis in (-1, 0):
        keys = -x if descending else x  # a stable order of equal elements in both directions
        order = np.argsort(keys, axis=axis, stable=True)
        assert_same(us.argsort(native(x), axis=axis, descending=descending), order)
        wanted = np.take_along_axis(x, order, axis=axis)
        assert_same(us.sort(native(x), axis=axis, descending=descending), wanted)
        assert_same(us.sort(native(x), axis=axis, descending=descending, stable=False), wanted)
    whole = np.asarray([3, 0, 255, 7], dtype="uint8")
    assert_same(us.sort(native(whole), descending=descending), np.sort(whole)[:: -1 if descending else 1])
    least = np.asarray([-128, 127, 0, -128], dtype="int8")
    order = [1, 2, 0, 3] if descending else [0, 3, 2, 1]
    assert_same(us.argsort(native(least), descending=descending), np.asarray(order))


@pytest.mark.parametrize("x", [np.asarray([0, 3, 0, 4]), np.asarray([[True, False], [True, True]]), np.zeros((0, 2))])
def test_nonzero(backend, x):
    got = us.nonzero(native(x))
    assert isinstance(got, tuple)
    assert_same(got, np.nonzero(x))


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(backend, side):
    for dtype in ("float32", "int64"):
        x, y = np.asarray([1, 3, 3, 5], dtype=dtype), np.asarray([[3, 0], [6, 5]], dtype=dtype)
        assert_same(us.searchsorted(native(x), native(y), side=side), np.searchsorted(x, y, side=side))
        mixed, sorter = x[[2, 0, 3, 1]], np.asarray([1, 0, 3, 2])
        got = us.searchsorted(native(mixed), native(y), side=side, sorter=native(sorter))
        assert_same(got, np.searchsorted(mixed, y, side=side, sorter=sorter))


def test_where(backend, rng):
    condition = np.asarray([[True], [False]])
    x, y = draw(rng, (2, 3), "float32"), draw(rng, (3,), "float32")
    assert_same(us.where(native(condition), native(x), native(y)), np.where(condition, x, y))
    assert_same(us.where(native(condition), native(x), 0), np.where(condition, x, np.float32(0)))
    assert_same(us.where(native(condition), 2.5, native(x)), np.where(condition, np.float32(2.5), x))
    assert_same(us.where(native(condition[0, 0]), native(x[0, 0]), 1.0), np.asarray(x[0, 0]))


@pytest.mark.parametrize("name", ["sum", "max", "mean", "all", "argmax", "sort", "cumulative_sum", "flip"])
def test_an_axis_that_is_not_there(backend, name):
    with pytest.raises((ValueError, IndexError, TypeError, UnisyncError, *_own_errors())):
        getattr(us, name)(us.ones((2, 3)) > 0 if name == "all" else us.ones((2, 3)), axis=5)


def _own_errors() -> tuple[type[Exception], ...]:
    """The classes that a framework has for bad arguments, which we pass through."""
    names = {"tensorflow": lambda: __import__("tensorflow").errors.OpError}
    make = names.get(us.current_backend())
    return (make(),) if make else ()

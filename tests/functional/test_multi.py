"""The list operations for optimizers, against loops over NumPy arrays: one row per operation."""

from __future__ import annotations

import numpy as np
import pytest
from checks import assert_same, native

import unisync as us

XS = [np.asarray([[1.0, -2.0], [0.5, 4.0]], "float32"), np.asarray([3.0], "float32"), np.asarray(0.25, "float32")]
YS = [x + 1.5 for x in XS]
ZS = [np.abs(x) + 0.5 for x in XS]
DOUBLES = [x.astype("float64") for x in XS]


def row(name, *args, oracle, **kwargs):
    """us.<name>(*args, **kwargs) equals the list of oracle(one of each list)."""
    return pytest.param(name, args, kwargs, oracle, id=name)


ROWS = [
    row("multi_add", XS, YS, oracle=np.add),
    row("multi_add", XS, YS, alpha=-0.5, oracle=lambda x, y: x - 0.5 * y),
    row("multi_add", DOUBLES, DOUBLES, alpha=2, oracle=lambda x, y: x + 2 * y),
    row("multi_addcdiv", XS, YS, ZS, oracle=lambda x, y, z: x + y / z),
    row("multi_addcdiv", XS, YS, ZS, value=-0.1, oracle=lambda x, y, z: x - np.float32(0.1) * y / z),
    row("multi_addcmul", XS, YS, ZS, oracle=lambda x, y, z: x + y * z),
    row("multi_addcmul", XS, YS, ZS, value=0.5, oracle=lambda x, y, z: x + 0.5 * y * z),
    row("multi_divide", XS, ZS, oracle=np.divide),
    row("multi_lerp", XS, YS, weight=0.25, oracle=lambda x, y: x + 0.25 * (y - x)),
    row("multi_lerp", XS, YS, weight=0.75, oracle=lambda x, y: x + 0.75 * (y - x)),
    row("multi_mean_square", ZS, YS, decay=0.75, oracle=lambda x, y: 0.75 * x + 0.25 * y * y),
    row("multi_multiply", XS, YS, oracle=np.multiply),
    row("multi_norm", XS, oracle=lambda x: np.sqrt(np.sum(np.square(x)))),
    row("multi_scale", XS, 0.5, oracle=lambda x: x * np.float32(0.5)),
    row("multi_shift", XS, 0.5, oracle=lambda x: x + np.float32(0.5)),
    row("multi_sign", XS, oracle=np.sign),
    row("multi_sqrt", ZS, oracle=np.sqrt),
    row("multi_sqrt", ZS, shift=0.5, oracle=lambda x: np.sqrt(x) + np.float32(0.5)),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "oracle"), ROWS)
def test_as_a_loop(backend, name, args, kwargs, oracle):
    lists = [a for a in args if isinstance(a, list)]
    wanted = [np.asarray(oracle(*xs)) for xs in zip(*lists, strict=True)]
    arrays = [native(a) for a in args]
    got = getattr(us, name)(*arrays, **kwargs)
    assert isinstance(got, list)
    assert_same(got, wanted)
    for array, before in zip(arrays, args, strict=True):  # arguments are never changed
        if isinstance(before, list):
            assert_same(array, before)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: us.multi_add(native(XS), native(YS), alpha=s),
        lambda s: us.multi_addcdiv(native(XS), native(YS), native(ZS), value=s),
        lambda s: us.multi_addcmul(native(XS), native(YS), native(ZS), value=s),
        lambda s: us.multi_lerp(native(XS), native(YS), weight=s),
        lambda s: us.multi_scale(native(XS), s),
        lambda s: us.multi_shift(native(XS), s),
        lambda s: us.multi_sqrt(native(ZS), shift=s),
    ],
)
def test_scalars_may_be_arrays(backend, call):
    with_array, with_number = call(us.asarray(0.25)), call(0.25)
    for a, n in zip(with_array, with_number, strict=True):
        assert us.dtype_of(a) == "float32"
        assert_same(a, us.to_numpy(n))


@pytest.mark.parametrize(
    ("name", "count", "reused", "kwargs"),
    [
        ("multi_add", 2, 0, {}),
        ("multi_add", 2, 1, {}),
        ("multi_add", 2, 0, {"alpha": -0.5}),
        ("multi_add", 2, 1, {"alpha": -0.5}),
        ("multi_addcdiv", 3, 0, {"value": 0.5}),
        ("multi_addcmul", 3, 0, {"value": 0.5}),
        ("multi_lerp", 2, 0, {"weight": 0.25}),
        ("multi_mean_square", 2, 0, {"decay": 0.75}),
    ],
)
def test_in_memory_nobody_needs(backend, name, count, reused, kwargs):
    """The same results; where arrays can be written to, in that memory; the rest is unchanged."""
    lists = [native([x.copy() for x in values]) for values in (XS, YS, ZS)[:count]]
    wanted = getattr(us, name)(*lists, **kwargs)
    before = [[us.to_numpy(x).copy() for x in xs] for xs in lists]
    got = getattr(us, name)(*lists, **kwargs, reuse=lists[reused])
    assert_same(got, [us.to_numpy(w) for w in wanted])
    assert us.namespace().shares_memory(got, lists[reused]) == (backend in ("numpy", "torch"))
    for i in set(range(count)) - {reused}:
        assert_same(lists[i], before[i])


def test_shares_memory(backend):
    m = us.namespace()
    x = us.asarray(np.arange(6.0, dtype="float32").reshape(2, 3).copy())
    y = us.asarray(np.zeros(3, "float32"))
    assert m.shares_memory([y, x[1]], [x]) == (backend in ("numpy", "torch"))
    assert not m.shares_memory([x + 0.0], [x, y])
    assert not m.shares_memory([], [x])


def test_all_finite(backend):
    def finite(*values):
        result = us.multi_all_finite([us.asarray(v) for v in values])
        assert us.dtype_of(result) == "bool"
        assert tuple(result.shape) == ()
        return bool(result)

    assert finite([1.0, 2.0], 3.0)
    assert not finite([1.0, 2.0], float("nan"))
    assert not finite([1.0, float("-inf")], 3.0)


@pytest.mark.parametrize("shape", [(100, 60), (60, 100), (3, 4, 5, 100), (6000,)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_all_finite_of_large_arrays(backend, shape, dtype):
    largest = np.full(shape, np.finfo(dtype).max, dtype)
    compiled = us.jit(lambda xs: us.multi_all_finite(xs))
    for place, value, wanted in ((0, 1.0, True), (7, np.nan, False), (-1, np.inf, False), (0, -np.inf, False)):
        host = largest.copy()
        host.reshape(-1)[place] = value
        arrays = [us.asarray(host), us.ones(3)]
        assert bool(us.multi_all_finite(arrays)) is bool(compiled(arrays)) is wanted


def test_where(backend):
    for condition, wanted in ((True, XS), (False, YS)):
        assert_same(us.multi_where(us.asarray(condition), native(XS), native(YS)), wanted)


def test_empty_lists(backend):
    assert us.multi_add([], []) == us.multi_scale([], 2.0) == us.multi_norm([]) == us.multi_sqrt([]) == []
    assert us.multi_where(us.asarray(True), [], []) == []
    assert bool(us.multi_all_finite([]))


def test_inside_a_compiled_function(backend):
    step = us.jit(lambda xs, ys, lr: us.multi_add(xs, us.multi_sqrt(ys), alpha=lr))
    wanted = [x - 0.5 * np.sqrt(z) for x, z in zip(XS, ZS, strict=True)]
    assert_same(step(native(XS), native(ZS), us.asarray(-0.5)), wanted)

"""Functions of one or two arrays, element by element, against NumPy: one row per operation."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest
from checks import assert_same, native, program
from hypothesis import given, settings, strategies as st

import unisync as us
from unisync import _dtypes
from unisync._types import DTYPES

GAPS: dict[tuple[str, str], str] = {}
if importlib.util.find_spec("ml_dtypes") is None:
    GAPS["numpy", "bfloat16"] = "NumPy has bfloat16 only with the ml_dtypes package"
"""(backend, dtype) → why the backend lacks it. One that starts to work fails `test_dtype_gaps_are_real`."""

UNARY = {  # name: (oracle, low, high, kinds of dtype: f(loat), i(nteger), b(ool), c(omplex))
    "abs": (np.abs, -3, 3, "fic"),
    "acos": (np.acos, -1, 1, "f"),
    "acosh": (np.acosh, 1, 4, "f"),
    "asin": (np.asin, -1, 1, "f"),
    "asinh": (np.asinh, -3, 3, "f"),
    "atan": (np.atan, -3, 3, "f"),
    "atanh": (np.atanh, -0.9, 0.9, "f"),
    "bitwise_invert": (np.bitwise_invert, -9, 9, "ib"),
    "ceil": (np.ceil, -3, 3, "fi"),
    "cos": (np.cos, -3, 3, "f"),
    "cosh": (np.cosh, -3, 3, "f"),
    "erf": (np.vectorize(math.erf, otypes=["float64"]), -3, 3, "f"),
    "exp": (np.exp, -3, 3, "fc"),
    "expm1": (np.expm1, -3, 3, "f"),
    "floor": (np.floor, -3, 3, "fi"),
    "isfinite": (np.isfinite, -3, 3, "fic"),
    "isinf": (np.isinf, -3, 3, "fi"),
    "isnan": (np.isnan, -3, 3, "fi"),
    "log": (np.log, 0.1, 4, "f"),
    "log10": (np.log10, 0.1, 4, "f"),
    "log1p": (np.log1p, -0.9, 4, "f"),
    "log2": (np.log2, 0.1, 4, "f"),
    "logical_not": (np.logical_not, 0, 1, "b"),
    "negative": (np.negative, -3, 3, "fic"),
    "positive": (np.positive, -3, 3, "fic"),
    "reciprocal": (lambda x: 1 / x, 0.5, 3, "f"),
    "round": (np.round, -3, 3, "fi"),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 3, "f"),
    "sign": (np.sign, -3, 3, "fi"),
    "sin": (np.sin, -3, 3, "f"),
    "sinh": (np.sinh, -3, 3, "f"),
    "sqrt": (np.sqrt, 0, 3, "f"),
    "square": (np.square, -3, 3, "fic"),
    "tan": (np.tan, -1, 1, "f"),
    "tanh": (np.tanh, -3, 3, "f"),
    "trunc": (np.trunc, -3, 3, "fi"),
}
BINARY = {
    "add": (np.add, -3, 3, "fic"),
    "atan2": (np.atan2, -3, 3, "f"),
    "bitwise_and": (np.bitwise_and, -9, 9, "ib"),
    "bitwise_left_shift": (np.bitwise_left_shift, 0, 4, "i"),
    "bitwise_or": (np.bitwise_or, -9, 9, "ib"),
    "bitwise_right_shift": (np.bitwise_right_shift, 0, 4, "i"),
    "bitwise_xor": (np.bitwise_xor, -9, 9, "ib"),
    "divide": (np.divide, 1, 5, "fic"),
    "equal": (np.equal, -2, 2, "fibc"),
    "floor_divide": (np.floor_divide, 1, 5, "fi"),
    "greater": (np.greater, -2, 2, "fi"),
    "greater_equal": (np.greater_equal, -2, 2, "fi"),
    "less": (np.less, -2, 2, "fi"),
    "less_equal": (np.less_equal, -2, 2, "fi"),
    "logaddexp": (np.logaddexp, -3, 3, "f"),
    "logical_and": (np.logical_and, 0, 1, "b"),
    "logical_or": (np.logical_or, 0, 1, "b"),
    "logical_xor": (np.logical_xor, 0, 1, "b"),
    "maximum": (np.maximum, -3, 3, "fi"),
    "minimum": (np.minimum, -3, 3, "fi"),
    "multiply": (np.multiply, -3, 3, "fic"),
    "not_equal": (np.not_equal, -2, 2, "fibc"),
    "pow": (np.pow, 1, 3, "fi"),
    "remainder": (np.remainder, 1, 5, "fi"),
    "subtract": (np.subtract, -3, 3, "fic"),
}
EXACT = frozenset(
    {"ceil", "floor", "round", "trunc", "sign", "isinf", "isnan", "isfinite", "positive", "abs", "negative"}
)
SPECIAL = np.asarray([np.nan, np.inf, -np.inf, -0.0, 0.0, 0.5, -0.5, 1.5, 2.5], dtype="float32")


def draw(rng, low, high, shape, kind):
    """Numbers in [low, high] of the dtype that stands for a kind."""
    if kind == "b":
        return np.asarray(rng.integers(0, 2, shape), dtype="bool")
    if kind == "i":
        return np.asarray(rng.integers(math.ceil(low), math.floor(high), shape, endpoint=True), dtype="int32")
    x = np.asarray(rng.uniform(low, high, shape))
    return (x + 1j * rng.uniform(low, high, shape)).astype("complex64") if kind == "c" else x.astype("float32")


def check(name, calls, dtypes):
    """us.<name> of each tuple of arguments against the table's oracle; `dtypes` where they are not the oracle's."""
    oracle = (UNARY.get(name) or BINARY[name])[0]
    op = getattr(us, name)
    with np.errstate(all="ignore"):
        wanted = [np.asarray(oracle(*args)) for args in calls]
        results = program(lambda calls: [op(*args) for args in calls])(native(calls))
    for got, expected, dtype in zip(results, wanted, dtypes, strict=True):
        assert_same(got, expected, dtype=dtype)


@pytest.mark.parametrize("name", UNARY)
def test_unary(backend, name, rng):
    _, low, high, kinds = UNARY[name]
    arrays = [draw(rng, low, high, (2, 3), kind) for kind in kinds]
    arrays += [arrays[0][0, 0], arrays[0][:0]]
    dtypes = [None if name.startswith(("is", "logical")) or name == "abs" else x.dtype for x in arrays]
    if "f" in kinds:
        arrays += [np.linspace(low, high, 5)[1:]]
        dtypes += [None]
    check(name, [(x,) for x in arrays], dtypes)


@pytest.mark.parametrize("name", [n for n, row in UNARY.items() if row[3] in ("f", "fc")])
def test_unary_of_integers_is_floating(backend, name):
    whole = np.asarray([max(1, math.ceil(UNARY[name][1]))], dtype="int32")
    with np.errstate(all="ignore"):
        wanted, got = UNARY[name][0](whole.astype("float64")), getattr(us, name)(native(whole))
    assert_same(got, wanted, dtype="float32")


@pytest.mark.parametrize("name", [n for n in UNARY if "f" in UNARY[n][3]])
def test_unary_special_values(backend, name):
    x = SPECIAL if name in EXACT else SPECIAL[:5]
    check(name, [(x,)], [None if name.startswith("is") else "float32"])


@pytest.mark.parametrize("name", BINARY)
def test_binary(backend, name, rng):
    _, low, high, kinds = BINARY[name]
    pairs = [(draw(rng, low, high, (2, 3), kind), draw(rng, low, high, (3,), kind)) for kind in kinds]
    dtypes = ["float32" if name == "divide" and kind == "i" else None for kind in kinds]
    x, y = pairs[0]
    check(name, [*pairs, (x[0, 0], y[0]), (x[:0], y)], [*dtypes, dtypes[0], dtypes[0]])


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_division_rounds_down(backend, name):
    for dtype in ("int32", "float32"):
        x, y = np.asarray([7, -7, 7, -7, 0], dtype=dtype), np.asarray([2, 2, -2, -2, 3], dtype=dtype)
        check(name, [(x, y)], [None])


@pytest.mark.parametrize(
    "name", ["maximum", "minimum", "logaddexp", "atan2", "equal", "not_equal", "less", "add", "pow"]
)
def test_binary_special_values(backend, name):
    x, y = (np.asarray(a, dtype="float32") for a in ([np.nan, 1, np.inf, -np.inf], [1, np.nan, np.inf, -np.inf]))
    check(name, [(x, y)], [None])


def test_logaddexp_does_not_overflow(backend):
    x = np.asarray([1000.0, -1000.0], dtype="float32")
    assert_same(us.logaddexp(native(x), native(x)), np.logaddexp(x, x))


@pytest.mark.parametrize("name", ["add", "exp", "sqrt", "maximum", "tanh"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_stays(backend, name, dtype):
    if (backend, dtype) in GAPS:
        pytest.skip(GAPS[backend, dtype])
    host = np.asarray([0.5, 1.0, 2.0])
    x = us.astype(us.asarray(host), dtype)
    count = 2 if name in BINARY else 1
    oracle = (BINARY if name in BINARY else UNARY)[name][0]
    assert_same(getattr(us, name)(*[x] * count), oracle(*[host] * count), dtype=dtype)


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.0, 1.0), (None, 0.5), (0.5, None), (None, None), (np.zeros(3, "float32"), np.ones((2, 1), "float32"))],
)
def test_clip(backend, low, high, rng):
    x = draw(rng, -2, 2, (2, 3), "f")
    wanted = x if low is high is None else np.clip(x, low, high)
    assert_same(us.clip(native(x), native(low), native(high)), wanted)
    assert_same(us.clip(native(np.asarray([1, 5, 9])), 2, 7), np.asarray([2, 5, 7]))


# Promotion


def test_dtype_gaps_are_real(backend):
    for dtype in DTYPES.values():
        if (backend, dtype) in GAPS:
            with pytest.raises((TypeError, ValueError, ImportError)):
                us.ones(1, dtype=dtype)
        else:
            assert us.dtype_of(us.ones(1, dtype=dtype)) is dtype


@pytest.mark.parametrize("name", ["add", "multiply"])
def test_promotion(backend, name):
    dtypes = [d for d in DTYPES.values() if (backend, d) not in GAPS and d != "bool"]
    arrays = [us.ones(1, dtype=d) for d in dtypes]
    op = getattr(us, name)
    results = us.jit(lambda xs: [[op(a, b) for b in xs] for a in xs])(arrays)
    wrong = [
        f"{a} with {b} gave {us.dtype_of(r)}, not {_dtypes.promote(a, b)}"
        for a, row in zip(dtypes, results, strict=True)
        for b, r in zip(dtypes, row, strict=True)
        if us.dtype_of(r) != _dtypes.promote(a, b)
    ]
    assert not wrong
    np.testing.assert_array_equal(us.to_numpy(results[0][0]), {"add": [2], "multiply": [1]}[name])


@pytest.mark.parametrize(
    ("name", "one", "two", "wanted"),
    [
        ("add", "float32", "int64", "float32"), ("subtract", "int8", "uint8", "int16"),
        ("maximum", "int32", "float64", "float64"), ("divide", "int64", "int32", "float32"),
        ("divide", "int8", "float64", "float64"), ("pow", "float32", "int32", "float32"),
        ("atan2", "float32", "float64", "float64"), ("floor_divide", "int8", "int32", "int32"),
        ("remainder", "uint8", "int8", "int16"), ("bitwise_or", "uint8", "int32", "int32"),
        ("minimum", "float16", "float32", "float32"), ("add", "bool", "int8", "int8"),
        ("multiply", "bool", "float32", "float32"), ("logaddexp", "float64", "float32", "float64"),
        ("equal", "int64", "float32", "bool"), ("less", "int8", "uint8", "bool"),
        ("matmul", "float32", "float64", "float64"), ("tensordot", "int32", "float32", "float32"),
        ("vecdot", "int8", "int32", "int32"),
    ],
)  # fmt: skip
def test_mixed_dtypes(backend, name, one, two, wanted):
    x, y = us.ones((2, 2), dtype=one), us.ones((2, 2), dtype=two)
    assert us.dtype_of(getattr(us, name)(x, y)) == wanted
    assert us.dtype_of(getattr(us, name)(y, x)) == wanted


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda a, b: us.concat([a, b]), "float32"), (lambda a, b: us.stack([a, b]), "float32"),
        (lambda a, b: us.where(us.asarray([True, False]), a, b), "float32"),
        (lambda a, b: us.where(us.asarray([True, False]), b, a), "float32"),
    ],
)  # fmt: skip
def test_mixed_dtypes_of_joined_arrays(backend, call, wanted):
    a, b = us.asarray([1, 2], dtype="int32"), us.asarray([0.5, 2.5])
    assert us.dtype_of(call(a, b)) == wanted
    assert us.dtype_of(call(b, a)) == wanted


def test_comparisons_of_mixed_signs(backend):
    x, y = us.asarray([-1], dtype="int8"), us.asarray([255], dtype="uint8")
    assert bool(us.less(x, y)[0])
    assert not bool(us.equal(x, y)[0])


every_dtype = st.sampled_from(list(DTYPES.values()))
in_one_kind = st.sampled_from(
    [["float32", "float64", "float16"], ["int8", "int16", "int32", "int64"], ["uint8", "uint16", "uint32", "uint64"]]
).flatmap(lambda names: st.tuples(*[st.sampled_from([DTYPES[n] for n in names])] * 3))


@given(every_dtype, every_dtype)
@settings(max_examples=200, deadline=None)
def test_promotion_commutes_and_holds_still(a, b):
    both = _dtypes.promote(a, b)
    assert both == _dtypes.promote(b, a)
    assert both == _dtypes.promote(both, both)
    if {a, b} != {us.uint64} and not (_dtypes.isdtype(both, "real floating") and _dtypes.isdtype(a, "integral")):
        assert _dtypes.promote(both, b) == both


@given(in_one_kind)
@settings(deadline=None)
def test_promotion_associates(dtypes):
    a, b, c = dtypes
    assert _dtypes.promote(_dtypes.promote(a, b), c) == _dtypes.promote(a, _dtypes.promote(b, c))


@given(every_dtype, every_dtype)
@settings(max_examples=200, deadline=None)
def test_promotion_is_numpys_within_a_kind(a, b):
    kinds = ("integral", "real floating", "complex floating")
    same_kind = any(_dtypes.isdtype(a, k) and _dtypes.isdtype(b, k) for k in kinds)
    if same_kind and us.bfloat16 not in (a, b):
        wanted = np.result_type(np.dtype(a), np.dtype(b)).name
        signs_mixed = _dtypes.isdtype(a, "integral") and wanted == "float64"  # uint64 with a signed integer
        assert _dtypes.promote(a, b) == ("float32" if signs_mixed else wanted)

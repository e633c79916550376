"""What the tables of the functional tests share: arrays of the current backend, and comparison with NumPy's result."""

from __future__ import annotations

from typing import Any

import numpy as np

import unisync as us
from unisync import _dtypes, tree

TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 5e-6, "complex64": 5e-6}


def native(value: Any) -> Any:
    """The NumPy arrays in a tree as arrays of the current backend; the rest as it is."""
    if isinstance(value, (np.ndarray, np.generic)):
        return us.asarray(value)
    if type(value) in (list, tuple):
        return type(value)(native(v) for v in value)
    return {k: native(v) for k, v in value.items()} if isinstance(value, dict) else value


def assert_same(got: Any, wanted: Any, *, dtype: Any = None, scale: float = 1.0) -> None:
    """Backend, container, shape, dtype and values; `dtype` is the expected one where it is not NumPy's."""
    if isinstance(wanted, (list, tuple)):
        assert type(got) in (list, tuple)
        assert len(got) == len(wanted)
        for g, w in zip(got, wanted, strict=True):
            assert_same(g, w, dtype=dtype, scale=scale)
        return
    assert us.current_backend() == us.namespace(got).NAME
    expected = _dtypes.name(dtype or np.asarray(wanted).dtype)
    assert us.dtype_of(got) == expected
    host = us.to_numpy(got)
    assert tuple(got.shape) == host.shape == np.shape(wanted)
    tolerance = scale * TOLERANCE.get(expected, 1e-12)
    if _dtypes.isdtype(expected, ("bool", "integral")):
        np.testing.assert_array_equal(host, wanted)
    else:
        np.testing.assert_allclose(host, np.asarray(wanted), rtol=tolerance, atol=tolerance)


def program(fn: Any) -> Any:
    """fn, compiled as a whole where the backend otherwise compiles each operation by itself when it first meets it.

    That is what makes eager tests on jax slow; conversion, dispatch and the tables of shapes run it eagerly.
    """
    return us.jit(fn) if us.current_backend() == "jax" else fn


def numbers(tree_of_arrays: Any) -> Any:
    """A tree of arrays as a tree of NumPy arrays."""
    return tree.map(us.to_numpy, tree_of_arrays)


def numeric_gradient(fn: Any, x: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """The central finite differences of a function from a float64 array to a number."""
    flat, out = x.reshape(-1).copy(), np.empty(x.size)
    for i in range(x.size):
        kept = flat[i]
        flat[i] = kept + step
        up = float(fn(flat.reshape(x.shape)))
        flat[i] = kept - step
        down = float(fn(flat.reshape(x.shape)))
        flat[i] = kept
        out[i] = (up - down) / (2 * step)
    return out.reshape(x.shape)

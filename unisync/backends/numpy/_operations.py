"""Operations whose autograd versions are missing, slow, or change the dtype: primitives with derivatives of our own.

Each takes plain and traced arrays. Derivatives are written in operations of the same kind, so that they can be
differentiated again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from autograd.extend import defvjp, defvjp_argnum, primitive

from unisync.backends.numpy import _dtypes
from unisync.backends.numpy._erf import erf as _erf
from unisync.backends.numpy._fused import fused
from unisync.backends.numpy._tape import Box, anp, getval


@primitive
def _astype(x: Any, dtype: np.dtype) -> Any:
    return x.astype(dtype)


defvjp(_astype, lambda ans, x, dtype: lambda g: astype(g, _dtypes.dtype_of(x)))


def astype(x: Any, dtype: np.dtype) -> Any:
    """x in another dtype; a constant if that is not a floating-point one."""
    if type(x) is Box:
        return _astype(x, dtype) if _dtypes.is_float(dtype) else astype(getval(x), dtype)
    return np.asarray(x).astype(dtype)


def sum_rows(x: np.ndarray) -> np.ndarray:
    """The sum over the first axis of a plain matrix: as a product with ones, 5 to 10 times as fast as np.sum."""
    return np.ones(x.shape[0], dtype=x.dtype) @ x if x.dtype.kind == "f" else np.add.reduce(x, axis=0)


@primitive
def _broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(x, shape)


defvjp(_broadcast_to, lambda ans, x, shape: lambda g: sum_to(g, x.shape))


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """x broadcast to a shape."""
    return _broadcast_to(x, shape) if type(x) is Box else np.broadcast_to(x, shape)


def sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    """The adjoint of broadcasting from `shape`: sums over the axes along which it repeats."""
    if x.shape == shape:
        return x
    extra = x.ndim - len(shape)
    if type(x) is np.ndarray and x.shape[extra:] == shape and x.flags.c_contiguous:
        return sum_rows(x.reshape(-1, count(shape, None))).reshape(shape)
    axes = tuple(range(extra)) + tuple(i + extra for i, n in enumerate(shape) if n == 1 and x.shape[i + extra] != 1)
    summed = sum(x, axes, False) if axes else x
    return summed if summed.shape == shape else summed.reshape(shape)


def _spread(g: Any, shape: tuple[int, ...], axis: Any, keepdims: bool) -> Any:
    """A reduction's cotangent, as a view of the shape that was reduced."""
    if not keepdims and shape:
        axes = range(len(shape)) if axis is None else (axis,) if isinstance(axis, int) else axis
        axes = {a % len(shape) for a in axes}
        g = anp.reshape(g, tuple(1 if i in axes else n for i, n in enumerate(shape)))
    return broadcast_to(g, shape)


def _sum_forward(x: Any, axis: Any, keepdims: bool) -> tuple[Any, Any]:
    return np.add.reduce(x, axis=axis, keepdims=keepdims), None


def _sum_backward(g: Any, saved: Any, needed: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    return _spread(g, x.shape, axis, keepdims), None, None


@primitive
def _sum_composite(x: Any, axis: Any, keepdims: bool) -> Any:
    return sum(x, axis, keepdims)


defvjp(_sum_composite, lambda ans, x, axis, keepdims: lambda g: _spread(g, x.shape, axis, keepdims))
sum = fused(_sum_forward, _sum_backward, _sum_composite)
"""(x, axis, keepdims) → the sum over axes; small integers and booleans add up as 64-bit integers."""


def count(shape: tuple[int, ...], axis: Any) -> int:
    """How many elements a reduction over axes joins."""
    n = 1
    for length in shape if axis is None else (shape[a] for a in ((axis,) if isinstance(axis, int) else axis)):
        n *= length
    return n


def mean(x: Any, axis: Any, keepdims: bool) -> Any:
    """The mean over axes of a floating-point array."""
    if type(x) is not Box and x.dtype.itemsize < 4:
        return np.mean(x, axis=axis, keepdims=keepdims)  # adds up in float32
    return _mean(x, axis, keepdims)


def _mean_backward(g: Any, saved: Any, needed: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    return _spread(g / count(x.shape, axis), x.shape, axis, keepdims), None, None


_mean = fused(
    lambda x, axis, keepdims: (np.add.reduce(x, axis=axis, keepdims=keepdims) / count(x.shape, axis), None),
    _mean_backward,
    lambda x, axis, keepdims: sum(x, axis, keepdims) / count(x.shape, axis),
)


@primitive
def _prod(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.prod(x, axis=axis, keepdims=keepdims)


def _prod_vjp(ans: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    def vjp(g: Any) -> Any:
        if (getval(x) == 0).any():
            return _spread(g, x.shape, axis, keepdims) * _products_of_others(x, axis)
        return _spread(g * ans, x.shape, axis, keepdims) / x

    return vjp


def _products_of_others(x: Any, axis: Any) -> Any:
    """For each element, the product of the others that it is reduced with: exact where an element is zero."""
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = tuple(a % x.ndim for a in axes)
    kept = tuple(a for a in range(x.ndim) if a not in axes)
    moved = anp.transpose(x, kept + axes)
    rows = anp.reshape(moved, (*moved.shape[: len(kept)], -1))
    n = rows.shape[-1]
    square = where(
        np.eye(n, dtype=bool), _dtypes.dtype_of(x).type(1), broadcast_to(rows[..., None, :], (*rows.shape, n))
    )
    others = anp.reshape(prod(square, -1, False), moved.shape)
    return anp.transpose(others, tuple(np.argsort(kept + axes)))


defvjp(_prod, _prod_vjp)


def prod(x: Any, axis: Any, keepdims: bool) -> Any:
    """The product over axes."""
    return _prod(x, axis, keepdims) if type(x) is Box else np.prod(x, axis=axis, keepdims=keepdims)


@primitive
def _cumsum(x: Any, axis: int) -> Any:
    return np.cumsum(x, axis=axis)


def _reverse(x: Any, axis: int) -> Any:
    return x[(slice(None),) * axis + (slice(None, None, -1),)]


defvjp(_cumsum, lambda ans, x, axis: lambda g: _reverse(cumsum(_reverse(g, axis), axis), axis))


def cumsum(x: Any, axis: int) -> Any:
    """The sums of all elements up to each along a non-negative axis."""
    return _cumsum(x, axis) if type(x) is Box else np.cumsum(x, axis=axis)


@primitive
def _where(condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition, x, y)


def _shape(x: Any) -> tuple[int, ...]:
    return np.shape(getval(x))


defvjp(
    _where,
    lambda ans, c, x, y: lambda g: sum_to(where(c, g, 0.0), _shape(x)),
    lambda ans, c, x, y: lambda g: sum_to(where(c, 0.0, g), _shape(y)),
    argnums=(1, 2),
)


def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y; numbers take the dtype of the array among them."""
    if type(x) is np.ndarray and type(y) is float and x.dtype.kind == "f":
        return _kept(condition, x) if y == 0 else np.where(condition, x, y)
    if not (type(x) is np.ndarray and type(y) is np.ndarray and x.dtype is y.dtype):
        x, y = _where_operands(x, y)
    return _where(condition, x, y) if type(x) is Box or type(y) is Box else np.where(condition, x, y)


_BITS = {np.dtype("float32"): np.int32, np.dtype("float64"): np.int64}


def _kept(condition: Any, x: np.ndarray) -> np.ndarray:
    """x where the condition holds, else zero.

    Large arrays by their bits: np.where branches on each element, and takes ten times as long on a random condition.
    """
    bits = _BITS.get(x.dtype)
    if x.size < 4096 or bits is None or np.shape(condition) != x.shape or not x.flags.c_contiguous:
        return np.where(condition, x, x.dtype.type(0))
    mask = np.negative(np.ascontiguousarray(condition).view(np.int8), dtype=np.int8)  # all bits where it holds
    return np.bitwise_and(x.view(bits), mask, dtype=bits).view(x.dtype)


def _where_operands(x: Any, y: Any) -> tuple[Any, Any]:
    from unisync.backends.numpy.creation import scalar
    from unisync.backends.numpy.elementwise import _operands

    if not hasattr(x, "dtype") and not hasattr(y, "dtype"):
        x = scalar(x, np.bool_(False))
    if not hasattr(x, "dtype"):
        x = scalar(x, y)
    elif not hasattr(y, "dtype"):
        y = scalar(y, x)
    return _operands(x, y, False)


@primitive
def _clip(x: Any, low: Any, high: Any) -> Any:
    return np.clip(x, low, high)


def _outside(x: Any, low: Any, high: Any) -> tuple[Any, Any]:
    x = getval(x)
    below = False if low is None else x < getval(low)
    return below, False if high is None else x > getval(high)


def _clip_vjp(ans: Any, x: Any, low: Any, high: Any) -> Any:
    below, above = _outside(x, low, high)
    inside = np.logical_not(np.logical_or(below, above))
    return lambda g: sum_to(where(inside, g, 0.0), _shape(x))


defvjp(
    _clip,
    _clip_vjp,
    lambda ans, x, low, high: lambda g: sum_to(where(_outside(x, low, high)[0], g, 0.0), _shape(low)),
    lambda ans, x, low, high: lambda g: sum_to(where(_outside(x, low, high)[1], g, 0.0), _shape(high)),
)


def clip(x: Any, low: Any, high: Any) -> Any:
    """x limited to [low, high], in x's dtype."""
    if low is None and high is None:
        return x
    dtype = _dtypes.dtype_of(x)
    low, high = _bound(low, dtype), _bound(high, dtype)
    traced = type(x) is Box or type(low) is Box or type(high) is Box
    return _clip(x, low, high) if traced else np.clip(x, low, high)  # type: ignore[arg-type]


def _bound(bound: Any, dtype: np.dtype) -> Any:
    if bound is None or type(bound) is Box:
        return bound
    if dtype.kind in "iu" and isinstance(bound, float):
        return bound  # NumPy would round an integer's bound; it compares in float64 and the result is cast back.
    return np.asarray(bound, dtype=dtype)


@primitive
def _concat(axis: int, *arrays: Any) -> Any:
    return np.concatenate(arrays, axis=axis)


def _concat_vjp(argnum: int, ans: Any, args: Any, kwargs: Any) -> Any:
    axis, *arrays = args
    axis %= arrays[0].ndim
    start = int(np.sum([a.shape[axis] for a in arrays[: argnum - 1]], dtype=int))
    window = (slice(None),) * axis + (slice(start, start + arrays[argnum - 1].shape[axis]),)
    return lambda g: g[window]


defvjp_argnum(_concat, _concat_vjp)


def concat(arrays: Any, axis: int) -> Any:
    """Arrays of one dtype joined along an axis that they have."""
    if any(type(x) is Box for x in arrays):
        return _concat(axis, *arrays)
    return np.concatenate(arrays, axis=axis)


def stack(arrays: Any, axis: int) -> Any:
    """Arrays of one dtype joined along a new axis."""
    if any(type(x) is Box for x in arrays):
        return _concat(axis, *(anp.expand_dims(x, axis) for x in arrays))
    return np.stack(arrays, axis=axis)


@primitive
def _roll(x: Any, shift: Any, axis: Any) -> Any:
    return np.roll(x, shift, axis)


def _negated(shift: Any) -> Any:
    return -shift if isinstance(shift, int) else tuple(-s for s in shift)


defvjp(_roll, lambda ans, x, shift, axis: lambda g: roll(g, _negated(shift), axis))


def roll(x: Any, shift: Any, axis: Any) -> Any:
    """x with elements moved along axes."""
    return _roll(x, shift, axis) if type(x) is Box else np.roll(x, shift, axis)


def _triangle(name: str) -> Any:
    function = getattr(np, name)
    traced = primitive(lambda x, k: function(x, k))
    defvjp(traced, lambda ans, x, k: lambda g: op(g, k))

    def op(x: Any, k: int) -> Any:
        return traced(x, k) if type(x) is Box else function(x, k)

    return op


tril = _triangle("tril")
triu = _triangle("triu")


@primitive
def _take(x: Any, indices: Any, axis: int) -> Any:
    return np.take(x, indices, axis=axis)


defvjp(_take, lambda ans, x, indices, axis: lambda g: put_add(g, indices, axis, x.shape))


def take(x: Any, indices: Any, axis: int) -> Any:
    """The slices of x at positions of one axis; the positions' axes take its place."""
    indices = getval(indices)
    return _take(x, indices, axis) if type(x) is Box else np.take(x, indices, axis=axis)


@primitive
def _put_add(g: Any, indices: Any, axis: int, shape: tuple[int, ...]) -> Any:
    axis %= len(shape)
    n = shape[axis]
    flat = np.where(indices < 0, indices + n, indices).ravel()
    between = range(axis, axis + indices.ndim)
    rest = [a for a in range(g.ndim) if a not in between]
    rows = g.transpose([*between, *rest]).reshape(flat.size, -1)
    total = _sum_at(flat[:, None] * rows.shape[1] + np.arange(rows.shape[1]), rows, n * rows.shape[1])
    return np.ascontiguousarray(np.moveaxis(total.reshape(n, *(g.shape[a] for a in rest)), 0, axis))


def _sum_at(positions: np.ndarray, x: np.ndarray, n: int) -> np.ndarray:
    """n zeros with x's elements added at their positions: in one axis, where np.add.at is 5 to 20 times as fast."""
    total = np.zeros(n, dtype=x.dtype)
    np.add.at(total, positions.ravel(), x.ravel())
    return total


defvjp(_put_add, lambda ans, g, indices, axis, shape: lambda h: take(h, indices, axis))


def put_add(g: Any, indices: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """The adjoint of `take`: zeros of `shape` to which g's slices are added at their positions."""
    return _put_add(g, indices, axis, shape)


@primitive
def _take_along(x: Any, indices: Any, axis: int) -> Any:
    return np.take_along_axis(x, indices, axis)


defvjp(
    _take_along,
    lambda ans, x, indices, axis: lambda g: _put_along(g, indices, axis, x.shape),
)


@primitive
def _put_along(g: Any, indices: Any, axis: int, shape: tuple[int, ...]) -> Any:
    grid = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    grid[axis] = np.where(indices < 0, indices + shape[axis], indices)
    return _sum_at(np.ravel_multi_index(grid, shape), g, count(shape, None)).reshape(shape)


defvjp(_put_along, lambda ans, g, indices, axis, shape: lambda h: take_along_axis(h, indices, axis))


def take_along_axis(x: Any, indices: Any, axis: int) -> Any:
    """The elements of x at positions given for each place along one axis."""
    indices = getval(indices)
    axis %= x.ndim
    shape = np.broadcast_shapes(
        *(tuple(1 if i == axis else n for i, n in enumerate(s)) for s in (x.shape, indices.shape))
    )
    with_length = lambda length: tuple(length if i == axis else n for i, n in enumerate(shape))  # noqa: E731
    x = x if x.shape == with_length(x.shape[axis]) else broadcast_to(x, with_length(x.shape[axis]))
    indices = np.broadcast_to(indices, with_length(indices.shape[axis]))
    return _take_along(x, indices, axis) if type(x) is Box else np.take_along_axis(x, indices, axis)


_erf_traced = primitive(_erf)
defvjp(_erf_traced, lambda ans, x: lambda g: g * (1.1283791670955126 * anp.exp(-x * x)))


def erf(x: Any) -> Any:
    """The error function; integers give the default floating-point dtype."""
    if type(x) is Box:
        return _erf_traced(x)
    return _erf(x if _dtypes.is_float(x.dtype) else x.astype(_dtypes.FLOAT))

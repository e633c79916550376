"""Derivatives of autograd's own primitives, registered anew where autograd's change the dtype, overflow or are slow.

They matter for operators and methods of traced arrays (`x * y`, `x.mean()`, `x[:, 0]`), which autograd looks up itself.
They are right for any use of autograd in the process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from autograd.extend import SparseObject, defvjp, primitive, vspace
from autograd.numpy import numpy_wrapper
from autograd.numpy.numpy_boxes import ArrayBox
from autograd.util import func

from unisync.backends.numpy import _operations
from unisync.backends.numpy._operations import _spread, count, sum_to
from unisync.backends.numpy._tape import anp, getval


def _shape(x: Any) -> tuple[int, ...]:
    return np.shape(getval(x))


def _wrapped(name: str) -> Any:
    """The primitive behind `anp.mean` and the like, which autograd 1.9 wraps once more."""
    return getattr(numpy_wrapper, f"_primitive_{name}", getattr(anp, name))


# autograd adds zeros of the full shape to spread a sum; a view that repeats does.
defvjp(
    anp.sum,
    lambda ans, x, axis=None, dtype=None, out=None, keepdims=False: lambda g: _spread(g, _shape(x), axis, keepdims),
)


def _to(x: Any) -> Any:
    shape = _shape(x)
    return lambda g: sum_to(g, shape)


# autograd looks at more of each argument than its shape, which is what costs in small arrays.
defvjp(anp.add, lambda ans, x, y: _to(x), lambda ans, x, y: _to(y))
defvjp(anp.subtract, lambda ans, x, y: _to(x), lambda ans, x, y: lambda g: sum_to(-g, _shape(y)))
defvjp(
    anp.multiply,
    lambda ans, x, y: lambda g: sum_to(g * y, _shape(x)),
    lambda ans, x, y: lambda g: sum_to(g * x, _shape(y)),
)
for _function in (anp.divide, anp.true_divide):
    defvjp(
        _function,
        lambda ans, x, y: lambda g: sum_to(g / y, _shape(x)),
        lambda ans, x, y: lambda g: sum_to(-g * ans / y, _shape(y)),
    )


# autograd divides by NumPy integers, which makes float32 float64.
defvjp(
    _wrapped("mean"),
    lambda ans, x, axis=None, dtype=None, out=None, keepdims=False: (
        lambda g: _spread(g * (1.0 / max(count(_shape(x), axis), 1)), _shape(x), axis, keepdims)
    ),
)


def _var_vjp(
    ans: Any, x: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False
) -> Any:
    def vjp(g: Any) -> Any:
        n = count(_shape(x), axis)
        centred = anp.conj(x - anp.mean(x, axis=axis, keepdims=True))
        return _spread(g * (2.0 / (n - ddof)), _shape(x), axis, keepdims) * centred

    return vjp


def _std_vjp(
    ans: Any, x: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False
) -> Any:
    def vjp(g: Any) -> Any:
        n = count(_shape(x), axis)
        centred = anp.conj(x - anp.mean(x, axis=axis, keepdims=True))
        return _spread(g / ans * (1.0 / (n - ddof)), _shape(x), axis, keepdims) * centred

    return vjp


defvjp(_wrapped("var"), _var_vjp)
defvjp(_wrapped("std"), _std_vjp)


def _chosen_vjp(ans: Any, x: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """The cotangent in equal parts to all elements that are the maximum (minimum)."""

    def vjp(g: Any) -> Any:
        shape = _shape(x)
        at = getval(x) == _spread(getval(ans), shape, axis, keepdims)
        share = at / np.sum(at, axis=axis, keepdims=True, dtype=np.result_type(getval(x)))
        return _spread(g, shape, axis, keepdims) * share.astype(np.result_type(getval(x)), copy=False)

    return vjp


for _function in (anp.max, anp.min, anp.amax, anp.amin):
    defvjp(_function, _chosen_vjp)


def _larger_vjp(argnum: int) -> Any:
    """The cotangent to the argument that was taken, half to each where they are equal."""

    def maker(ans: Any, x: Any, y: Any) -> Any:
        mine, other = (getval(x), getval(y)) if argnum == 0 else (getval(y), getval(x))
        result = getval(ans)

        def vjp(g: Any) -> Any:
            half = np.result_type(result).type(0.5)
            part = np.where(mine == other, half, mine == result)
            return sum_to(g * part.astype(np.result_type(result), copy=False), np.shape(mine))

        return vjp

    return maker


for _function in (anp.maximum, anp.minimum, anp.fmax, anp.fmin):
    defvjp(_function, _larger_vjp(0), _larger_vjp(1))

defvjp(anp.log2, lambda ans, x: lambda g: g * 1.4426950408889634 / x)
defvjp(anp.log10, lambda ans, x: lambda g: g * 0.4342944819032518 / x)
# g / cosh(x)² overflows for |x| > 89 in float32.
defvjp(anp.tanh, lambda ans, x: lambda g: g * (1 - ans * ans))
defvjp(anp.sqrt, lambda ans, x: lambda g: g * 0.5 / ans)


def _power_vjp(ans: Any, x: Any, y: Any) -> Any:
    if isinstance(y, (int, float)) and not isinstance(y, np.generic):
        if y == 0:
            return lambda g: sum_to(anp.zeros_like(getval(g)), _shape(x))
        return lambda g: sum_to(g * (y * (x if y == 2 else x ** (y - 1))), _shape(x))
    return lambda g: sum_to(g * y * x ** _operations.where(getval(y) == 0, 1.0, y - 1), _shape(x))


defvjp(
    anp.power,
    _power_vjp,
    lambda ans, x, y: lambda g: sum_to(g * anp.log(_operations.where(getval(x) == 0, 1.0, x)) * ans, _shape(y)),
)


def _abs_vjp(ans: Any, x: Any) -> Any:
    if np.iscomplexobj(getval(x)):
        return lambda g: g * anp.conj(x) / _operations.where(getval(ans) == 0, 1.0, ans)
    return lambda g: g * np.sign(getval(x))


defvjp(anp.abs, _abs_vjp)
# autograd's where neither sums over broadcast axes nor keeps float32.
defvjp(
    anp.where,
    lambda ans, c, x, y: lambda g: sum_to(_operations.where(c, g, 0.0), _shape(x)),
    lambda ans, c, x, y: lambda g: sum_to(_operations.where(c, 0.0, g), _shape(y)),
    argnums=(1, 2),
)
defvjp(anp.broadcast_to, lambda ans, x, shape: lambda g: sum_to(g, _shape(x)))


@primitive
def _unslice(g: Any, index: Any, space: Any) -> SparseObject:
    def add_to(total: Any) -> Any:
        if _is_basic(index):
            total[index] += g
        else:
            np.add.at(total, index, g)
        return total

    return SparseObject(space, add_to)


def _is_basic(index: Any) -> bool:
    """Whether an index picks no element twice: it holds no arrays or lists but masks."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        p is None or p is Ellipsis or isinstance(p, (int, slice, np.integer))
        or (isinstance(p, np.ndarray) and p.dtype == bool and len(parts) == 1)
        for p in parts
    )  # fmt: skip


# autograd adds to every slice by np.add.at, 10 to 100 times as slow as +=.
defvjp(func(ArrayBox.__getitem__), lambda ans, x, index: lambda g: _unslice(g, index, vspace(getval(x))))
defvjp(_unslice, lambda ans, g, index, space: lambda h: h[index])

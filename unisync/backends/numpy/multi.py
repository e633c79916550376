"""Arithmetic on lists of arrays, for optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np


def _number(scalar: Any) -> Any:
    """A 0-d array as a Python number, which leaves the dtype of what it meets alone."""
    return scalar.item() if isinstance(scalar, (np.generic, np.ndarray)) else scalar


def _as(xs, results):
    """The results in the dtypes of xs: bfloat16 (of ml_dtypes) becomes float32 when it meets a Python number."""
    return [r if r.dtype == x.dtype else r.astype(x.dtype) for x, r in zip(xs, results, strict=True)]


def _plus(x: Any, y: Any) -> Any:
    """x + y, in the memory of y, which is a temporary array."""
    return np.add(x, y, out=y) if type(y) is np.ndarray and type(x) is np.ndarray and x.dtype is y.dtype else x + y


def _times(x: Any, scalar: Any) -> Any:
    """x · scalar, in the memory of x, which is a temporary array."""
    return np.multiply(x, scalar, out=x) if type(x) is np.ndarray and type(scalar) in (int, float) else x * scalar


def _into(x: Any, y: Any, place: Any) -> Any:
    """x + y, in the memory of `place`, which nobody needs any more."""
    return np.add(x, y, out=place) if _writable(place) and place.dtype is x.dtype is y.dtype else x + y


def _writable(x: Any) -> bool:
    return type(x) is np.ndarray and x.flags.writeable


def _added(xs: Any, terms: Any, reuse: Any) -> Any:
    """xs + terms, which are temporary arrays."""
    if reuse is None:
        return _as(xs, [_plus(x, term) for x, term in zip(xs, terms, strict=True)])
    return _as(xs, [_into(x, term, place) for x, term, place in zip(xs, terms, reuse, strict=True)])


def multi_add(xs, ys, /, *, alpha=1.0, reuse=None):
    alpha = _number(alpha)
    if type(alpha) in (int, float) and alpha == 1:
        if reuse is None:
            return _as(xs, [x + y for x, y in zip(xs, ys, strict=True)])
        return _added(xs, ys, reuse)
    if reuse is not None and reuse is ys:
        return _added(xs, (_times(y, alpha) if _writable(y) else y * alpha for y in ys), ys)
    return _added(xs, (y * alpha for y in ys), reuse)


def multi_addcdiv(xs, ys, zs, /, *, value=1.0, reuse=None):
    value = _number(value)
    return _added(xs, (_times(y / z, value) for y, z in zip(ys, zs, strict=True)), reuse)


def multi_addcmul(xs, ys, zs, /, *, value=1.0, reuse=None):
    value = _number(value)
    return _added(xs, (_times(y * z, value) for y, z in zip(ys, zs, strict=True)), reuse)


def multi_all_finite(xs, /):
    return np.bool_(all(np.isfinite(x).all() for x in xs))


def multi_divide(xs, ys, /):
    return [x / y for x, y in zip(xs, ys, strict=True)]


def multi_lerp(xs, ys, /, *, weight, reuse=None):
    weight = _number(weight)
    return _added(xs, (_times(y - x, weight) for x, y in zip(xs, ys, strict=True)), reuse)


def multi_mean_square(xs, ys, /, *, decay, reuse=None):
    means = [_times(x, decay) if reuse is not None and _writable(x) else x * decay for x in xs]
    # In place where the array is one of our own: arrays above the cache cost their memory traffic.
    return _as(xs, _added(means, (_times(y * y, 1.0 - decay) for y in ys), means))


def multi_multiply(xs, ys, /):
    return [x * y for x, y in zip(xs, ys, strict=True)]


def multi_norm(xs, /):
    return [_norm(x) for x in xs]


def _norm(x: Any) -> Any:
    if type(x) is np.ndarray and x.dtype.kind == "f":
        flat = x.reshape(-1)
        return np.sqrt(np.dot(flat, flat))
    return np.sqrt(np.sum(np.square(x)))


def multi_scale(xs, scalar, /):
    scalar = _number(scalar)
    return _as(xs, [x * scalar for x in xs])


def multi_shift(xs, scalar, /):
    scalar = _number(scalar)
    return _as(xs, [x + scalar for x in xs])


def multi_sign(xs, /):
    return [np.sign(x) for x in xs]


def multi_sqrt(xs, /, *, shift=0.0):
    shift = _number(shift)
    roots = [np.sqrt(x) for x in xs]
    return _as(xs, [root + shift for root in roots]) if shift else roots


def multi_where(condition, xs, ys, /):
    return list(xs) if bool(condition) else list(ys)

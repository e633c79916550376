"""Random numbers from explicit keys.

A `Key` is a value: the same key gives the same numbers, and new keys come from `split` and `fold_in`. Host draws
(`key.generator()`, which parameter initialisation uses) come from NumPy's Philox and are the same bits
on every backend. `uniform`, `normal` and `bernoulli` draw natively and may stand in compiled functions; they
are reproducible on one backend, and differ between backends.
"""

from __future__ import annotations

from typing import Any

from unisync import _dispatch
from unisync._key import Key as Key, flatten_key as flatten_key, unflatten_key as unflatten_key
from unisync._types import Shape
from unisync.errors import ArgumentTypeError


def uniform(
    key: Key,
    shape: Shape = (),
    *,
    low: float = 0.0,
    high: float = 1.0,
    dtype: Any = None,
    device: Any = None,
    like: Any = None,
) -> Any:
    """Numbers evenly distributed in [low, high), drawn natively.

    Args:
        key: the source; using it again gives the same numbers.
        shape: the shape of the result.
        low: the lower end.
        high: the upper end, not included.
        dtype: a floating-point dtype; default float32.
        device: the framework's device or its name.
        like: an array whose backend and device to use instead of the current backend's.

    Returns:
        Native array of the given shape.

    Raises:
        ArgumentTypeError: the key is none.

    Example:
        >>> us.random.uniform(us.random.Key(0), (3,)).shape
        (3,)
    """
    _check_key(key)
    m, device = _dispatch.target(like, device)
    return m.uniform(key, shape, low=low, high=high, dtype=dtype, device=device)


def normal(
    key: Key,
    shape: Shape = (),
    *,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: Any = None,
    device: Any = None,
    like: Any = None,
) -> Any:
    """Normally distributed numbers, drawn natively.

    Args:
        key: the source; using it again gives the same numbers.
        shape: the shape of the result.
        mean: the mean.
        std: the standard deviation.
        dtype: a floating-point dtype; default float32.
        device: the framework's device or its name.
        like: an array whose backend and device to use instead of the current backend's.

    Returns:
        Native array of the given shape.

    Raises:
        ArgumentTypeError: the key is none.

    Example:
        >>> us.random.normal(us.random.Key(0), (3,)).shape
        (3,)
    """
    _check_key(key)
    m, device = _dispatch.target(like, device)
    return m.normal(key, shape, mean=mean, std=std, dtype=dtype, device=device)


def bernoulli(key: Key, p: float, shape: Shape = (), *, device: Any = None, like: Any = None) -> Any:
    """Booleans that are True with probability p, drawn natively.

    Args:
        key: the source; using it again gives the same numbers.
        p: the probability, in [0, 1].
        shape: the shape of the result.
        device: the framework's device or its name.
        like: an array whose backend and device to use instead of the current backend's.

    Returns:
        Native boolean array of the given shape.

    Raises:
        ArgumentTypeError: the key is none.

    Example:
        >>> us.random.bernoulli(us.random.Key(0), 1.0, (2,))
        array([ True,  True])
    """
    _check_key(key)
    m, device = _dispatch.target(like, device)
    return m.bernoulli(key, p, shape, device=device)


def _check_key(key: Any) -> None:
    if not isinstance(key, Key):
        seed = key if isinstance(key, int) and not isinstance(key, bool) else 0
        raise ArgumentTypeError(f"`key` must be a us.random.Key, got {type(key).__name__}. Try: us.random.Key({seed}).")

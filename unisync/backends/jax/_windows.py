"""Convolution and pooling written out in slices where XLA's CPU compiler is faster with them.

Pooling always is: `reduce_window` over 24×24×20 takes 6.6 ms (its gradient is a select-and-scatter), the chain of
maxima 0.7. Convolution is one matrix product over patches as long as these are small, see `PATCHES_LIMIT`. On other
devices convolution is the device's own. Measured on jax 0.10.2 and two cores, batch 64, forward and backward.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

PATCHES_LIMIT = 1 << 21
"""Elements of patches (8 MiB of float32) above which convolution is XLA's own; windows of 1 need no patches.

Patches are XLA's temporary memory, and memory above malloc's largest threshold is mapped anew in every call: large
patches cost mostly page faults. In milliseconds, the gradient of the weight only where marked *:

    input, window, outputs     million elements     XLA    patches
    28×28×1,  3×3, 16 *             0.45            1.1      1.0
    28×28×3,  3×3, 32 *             1.4             4.5      2.1
    14×14×16, 3×3, 32               1.3             3.1      2.2
    28×28×4,  3×3, 8                1.8             3.4      1.4
    12×12×20, 5×5, 50               2.0            10.4      6.9
    8×8×64,   3×3, 64               2.4             5.3      7.3
    28×28×8,  3×3, 16               3.6             3.6     10.1
    14×14×32, 3×3, 64               3.6             9.0     23.3
    28×28×16, 3×3, 32               7.2            11.1     41.7
    28×28×16, 1×1, 32               0.8             4.1      2.3
    14×14×64, 1×1, 64               0.8             4.9      2.1
"""

_FEW_CHANNELS = 8  # below it, patches are gathered axis by axis: fewer and longer pieces to copy


@functools.partial(jax.jit, static_argnames=("strides", "pads", "dilation", "groups", "channels_last"))
def convolution(x, weight, *, strides, pads, dilation, groups, channels_last):
    """The convolution of (N, *spatial, C) or (N, C, *spatial) with (out, in / groups, *window)."""
    if groups > 1 or jax.default_backend() != "cpu" or _patch_elements(x, weight, strides) > PATCHES_LIMIT:
        letters = "HW"[-len(strides) :]
        data = f"N{letters}C" if channels_last else f"NC{letters}"
        return lax.conv_general_dilated(
            x, weight, strides, pads, rhs_dilation=dilation, dimension_numbers=(data, f"OI{letters}", data),
            feature_group_count=groups,
        )  # fmt: skip
    if not channels_last:
        x = jnp.moveaxis(x, 1, -1)
    y = _patches(_padded(x, pads, 0), weight.shape[2:], strides, dilation)
    flat = jnp.moveaxis(weight, 1, -1).reshape(weight.shape[0], -1)
    y = lax.dot_general(y, flat, (((y.ndim - 1,), (1,)), ((), ())))
    return y if channels_last else jnp.moveaxis(y, -1, 1)


def _patch_elements(x: Any, weight: Any, strides: tuple[int, ...]) -> int:
    window = weight.size // (weight.shape[0] * weight.shape[1])
    return x.size * window // math.prod(strides) if window > 1 else 0


def _patches(x: Any, window: tuple[int, ...], strides: tuple[int, ...], dilation: tuple[int, ...]) -> Any:
    """(N, *positions, window · C): at each position the window's elements in row-major order."""
    axes = range(1, x.ndim - 1)
    if x.shape[-1] < _FEW_CHANNELS:
        for axis in reversed(axes):
            x = jnp.concatenate(_steps(x, axis, window[axis - 1], strides[axis - 1], dilation[axis - 1]), axis=-1)
        return x
    counts = [_positions(x.shape[a], window[a - 1], strides[a - 1], dilation[a - 1]) for a in axes]
    pieces = []
    for offsets in itertools.product(*(range(k) for k in window)):
        start = [o * d for o, d in zip(offsets, dilation, strict=True)]
        stop = [b + (n - 1) * s + 1 for b, n, s in zip(start, counts, strides, strict=True)]
        pieces.append(lax.slice(x, (0, *start, 0), (x.shape[0], *stop, x.shape[-1]), (1, *strides, 1)))
    return jnp.concatenate(pieces, axis=-1)


def _positions(length: int, window: int, stride: int, dilation: int = 1) -> int:
    return (length - (window - 1) * dilation - 1) // stride + 1


def _steps(x: Any, axis: int, window: int, stride: int, dilation: int = 1) -> list[Any]:
    """For each element of a 1-d window, the array of that element at every position along an axis."""
    count = _positions(x.shape[axis], window, stride, dilation)
    if window == stride and dilation == 1:  # apart: a view in two axes differentiates into fewer pads
        x = lax.slice_in_dim(x, 0, count * window, axis=axis)
        x = x.reshape(*x.shape[:axis], count, window, *x.shape[axis + 1 :])
        return [lax.index_in_dim(x, i, axis + 1, keepdims=False) for i in range(window)]
    last = (count - 1) * stride + 1
    return [lax.slice_in_dim(x, i * dilation, i * dilation + last, stride, axis) for i in range(window)]


def _padded(x: Any, pads: tuple[tuple[int, int], ...], value: float) -> Any:
    if not any(map(any, pads)):
        return x
    return jnp.pad(x, ((0, 0), *pads, (0, 0)), constant_values=value)


@functools.partial(jax.jit, static_argnames=("window", "strides", "pads", "channels_last"))
def max_pool(x, *, window, strides, pads, channels_last):
    """The maximum over windows; its gradient goes to the first one in row-major order, as in torch."""
    return _pool(_later_if_greater, x, -jnp.inf, window, strides, pads, channels_last)


@functools.partial(jax.jit, static_argnames=("window", "strides", "pads", "channels_last"))
def avg_pool(x, *, window, strides, pads, channels_last):
    """The mean over windows, of which padding is a part."""
    return _pool(lax.add, x, 0.0, window, strides, pads, channels_last) / functools.reduce(int.__mul__, window)


def _later_if_greater(first: Any, later: Any) -> Any:
    return jnp.where((later > first) | (later != later), later, first)  # a NaN goes through


def _pool(
    combine: Callable[[Any, Any], Any],
    x: Any,
    outside: float,
    window: Any,
    strides: Any,
    pads: Any,
    channels_last: bool,
) -> Any:
    if not channels_last:
        x = jnp.moveaxis(x, 1, -1)
    x = _padded(x, pads, outside)
    for axis in reversed(
        range(1, x.ndim - 1)
    ):  # within rows first, so that of equals the first in row-major order wins
        x = functools.reduce(combine, _steps(x, axis, window[axis - 1], strides[axis - 1]))
    return x if channels_last else jnp.moveaxis(x, -1, 1)

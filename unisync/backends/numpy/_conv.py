"""Convolutions and pooling: matrix products over copied windows, and sums over the taps of a window.

A tap is one position (i, j) of the window; the elements of x under a tap, over all windows, are a strided slice of x.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from autograd.extend import defvjp, primitive

from unisync.backends.numpy import _operations
from unisync.backends.numpy._fused import fused
from unisync.backends.numpy._tape import Box, anp, getval
from unisync.errors import ArgumentError, ShapeError


@final
@dataclass(frozen=True, slots=True)
class _Windows:
    """Where the windows over an image of shape `size` stand."""

    size: tuple[int, int]
    window: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    out: tuple[int, int]

    def taps(self) -> Iterator[tuple[slice, slice]]:
        """For each tap in row-major order, its slices of the padded image's height and width."""
        for i in range(self.window[0]):
            for j in range(self.window[1]):
                yield tuple(
                    slice(k * d, k * d + s * (n - 1) + 1, s)
                    for k, d, s, n in zip((i, j), self.dilation, self.stride, self.out, strict=True)
                )  # type: ignore[misc]

    def padded(self, x: np.ndarray, value: float = 0.0) -> np.ndarray:
        """x with `value` around it."""
        if self.padding == ((0, 0), (0, 0)):
            return x
        (top, _), (left, _) = self.padding
        whole = np.full(self.padded_shape(x.shape), value, dtype=x.dtype)
        whole[:, top : top + self.size[0], left : left + self.size[1]] = x
        return whole

    def padded_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[0], *(n + sum(p) for n, p in zip(self.size, self.padding, strict=True)), shape[-1])

    def cropped(self, whole: np.ndarray) -> np.ndarray:
        """The inverse of `padded`."""
        (top, _), (left, _) = self.padding
        return whole[:, top : top + self.size[0], left : left + self.size[1]]

    def columns(self, x: np.ndarray, groups: int) -> Iterator[tuple[slice, np.ndarray]]:
        """(rows, columns of shape (groups, len(rows), KH · KW · C / groups)): each window of x as a row.

        A few images at a time, so that what is copied is still in the cache when it is multiplied.
        """
        x = self.padded(x)
        n, c = x.shape[0], x.shape[3]
        b, h, w, e = x.strides
        (sh, sw), (dh, dw) = self.stride, self.dilation
        windows = np.lib.stride_tricks.as_strided(
            x,
            (groups, n, *self.out, *self.window, c // groups),
            (e * (c // groups), b, h * sh, w * sw, h * dh, w * dw, e),
            writeable=False,
        )
        per_image = self.out[0] * self.out[1]
        width = self.window[0] * self.window[1] * (c // groups)
        step = max(1, _BLOCK_ELEMENTS // (per_image * width * groups))
        for i in range(0, n, step):
            rows = slice(i * per_image, min(i + step, n) * per_image)
            yield rows, windows[:, i : i + step].reshape(groups, -1, width)


_BLOCK_ELEMENTS = 1 << 18  # 1 MiB of float32


def _windows(x: Any, window: Any, stride: Any, dilation: Any, padding: Any) -> _Windows:
    size = x.shape[1:3]
    stride, dilation = _two("stride", stride), _two("dilation", dilation)
    span = tuple(d * (k - 1) + 1 for k, d in zip(window, dilation, strict=True))
    if padding == "same":
        totals = [max((-(-n // s) - 1) * s + k - n, 0) for n, s, k in zip(size, stride, span, strict=True)]
        both = tuple((t // 2, t - t // 2) for t in totals)
    elif padding == "valid":
        both = ((0, 0), (0, 0))
    elif isinstance(padding, str):
        raise ArgumentError(f"`padding` must be a number, a pair, 'valid' or 'same', got {padding!r}. Try: 'same'.")
    else:
        both = tuple((p, p) for p in _two("padding", padding, least=0))
    out = tuple((n + sum(p) - k) // s + 1 for n, p, k, s in zip(size, both, span, stride, strict=True))
    if min(out) < 1:
        raise ShapeError(f"`x` must be at least as large as the window {span}, got {size} with padding {both}.")
    return _Windows(size, tuple(window), stride, dilation, both, out)  # type: ignore[arg-type]


def _two(name: str, value: Any, least: int = 1) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, (int, np.integer)) else tuple(value)
    if len(pair) != 2 or min(pair) < least:
        raise ArgumentError(
            f"`{name}` must be one or two integers ≥ {least}, got {value!r}. Try: {name}={max(1, least)}."
        )
    return pair  # type: ignore[return-value]


@primitive
def _conv(x: np.ndarray, weight: np.ndarray, at: _Windows, groups: int) -> np.ndarray:
    o, c, kh, kw = weight.shape
    matrix = weight.reshape(groups, o // groups, c, kh * kw).transpose(0, 3, 2, 1).reshape(groups, kh * kw * c, -1)
    y = np.empty((x.shape[0], *at.out, o), dtype=np.result_type(x, weight))
    by_group = _by_group(y, groups)
    for rows, columns in at.columns(x, groups):
        np.matmul(columns, matrix, out=by_group[:, rows])
    return y


def _by_group(y: np.ndarray, groups: int) -> np.ndarray:
    """An image's rows as a view of shape (groups, N · OH · OW, O / groups)."""
    return y.reshape(-1, groups, y.shape[-1] // groups).transpose(1, 0, 2)


@primitive
def _conv_input(g: np.ndarray, weight: np.ndarray, at: _Windows, groups: int) -> np.ndarray:
    """The adjoint of `_conv` in x: for each tap, a product of matrices added to where the tap reads."""
    o, c, kh, kw = weight.shape
    rows = _by_group(g, groups)
    matrices = weight.transpose(2, 3, 0, 1).reshape(kh * kw, groups, o // groups, c)
    whole = np.zeros(at.padded_shape((g.shape[0], 0, 0, groups * c)), dtype=np.result_type(g, weight))
    for matrix, (height, width) in zip(matrices, at.taps(), strict=True):
        part = np.matmul(rows, matrix)
        part = part[0] if groups == 1 else part.transpose(1, 0, 2)
        whole[:, height, width] += part.reshape(g.shape[0], *at.out, groups * c)
    return at.cropped(whole)


@primitive
def _conv_weight(x: np.ndarray, g: np.ndarray, at: _Windows, groups: int) -> np.ndarray:
    """The adjoint of `_conv` in the weight."""
    o, c = g.shape[-1], x.shape[-1] // groups
    by_group = _by_group(g, groups).transpose(0, 2, 1)
    matrix = np.zeros((groups, o // groups, at.window[0] * at.window[1] * c), dtype=np.result_type(x, g))
    for rows, columns in at.columns(x, groups):
        matrix += np.matmul(by_group[:, :, rows], columns)
    return matrix.reshape(o, *at.window, c).transpose(0, 3, 1, 2)


# Each of the three is linear in both arguments, and the adjoints of each are the other two: any order is supported.
defvjp(
    _conv,
    lambda ans, x, w, at, groups: lambda g: _conv_input(g, w, at, groups),
    lambda ans, x, w, at, groups: lambda g: _conv_weight(x, g, at, groups),
)
defvjp(
    _conv_input,
    lambda ans, g, w, at, groups: lambda h: _conv(h, w, at, groups),
    lambda ans, g, w, at, groups: lambda h: _conv_weight(h, g, at, groups),
)
defvjp(
    _conv_weight,
    lambda ans, x, g, at, groups: lambda h: _conv_input(g, h, at, groups),
    lambda ans, x, g, at, groups: lambda h: _conv(x, h, at, groups),
)


def _forward(x: Any, weight: Any, bias: Any, at: _Windows, groups: int) -> tuple[Any, Any]:
    y = _conv(x, weight, at, groups)
    if bias is not None:
        y += bias
    return y, None


def _backward(g: Any, saved: Any, needed: Any, x: Any, weight: Any, bias: Any, at: _Windows, groups: int) -> Any:
    g = np.ascontiguousarray(g)
    gx = _conv_input(g, weight, at, groups) if needed[0] else None
    gw = _conv_weight(x, g, at, groups) if needed[1] else None
    gb = _operations.sum_rows(g.reshape(-1, g.shape[-1])) if needed[2] else None
    return gx, gw, gb, None, None


def _composite(x: Any, weight: Any, bias: Any, at: _Windows, groups: int) -> Any:
    y = _conv(x, weight, at, groups)
    return y if bias is None else y + bias


_convolve = fused(_forward, _backward, _composite)


def conv2d(x, weight, bias=None, /, *, stride=1, padding=0, dilation=1, groups=1, data_format="NHWC"):
    first = _channels_first(data_format, "NHWC", "NCHW")
    _check_conv(x, weight, groups, 1 if first else 3, 4)
    x = anp.transpose(x, (0, 2, 3, 1)) if first else x
    y = _convolve(x, weight, bias, _windows(x, weight.shape[2:], stride, dilation, padding), groups)
    return anp.transpose(y, (0, 3, 1, 2)) if first else y


def conv1d(x, weight, bias=None, /, *, stride=1, padding=0, dilation=1, groups=1, data_format="NLC"):
    first = _channels_first(data_format, "NLC", "NCL")
    _check_conv(x, weight, groups, 1 if first else 2, 3)
    x = anp.transpose(x, (0, 2, 1)) if first else x
    one = lambda value: value if isinstance(value, (int, np.integer)) else value[0]  # noqa: E731
    padding = padding if isinstance(padding, str) else (0, one(padding))
    image = anp.reshape(x, (x.shape[0], 1, *x.shape[1:]))
    kernel = anp.reshape(weight, (*weight.shape[:2], 1, weight.shape[2]))
    at = _windows(image, kernel.shape[2:], (1, one(stride)), (1, one(dilation)), padding)
    y = _convolve(image, kernel, bias, at, groups)
    y = anp.reshape(y, (y.shape[0], *y.shape[2:]))
    return anp.transpose(y, (0, 2, 1)) if first else y


def _channels_first(data_format: str, last: str, first: str) -> bool:
    if data_format not in (last, first):
        raise ArgumentError(f"`data_format` must be {last!r} or {first!r}, got {data_format!r}. Try: {last!r}.")
    return data_format == first


def _check_conv(x: Any, weight: Any, groups: int, channel: int, ndim: int) -> None:
    if x.ndim != ndim or weight.ndim != ndim:
        raise ShapeError(f"`x` and `weight` must have {ndim} axes, got shapes {x.shape} and {weight.shape}.")
    if x.shape[channel] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise ShapeError(
            f"`weight` must have shape (out, in / groups, ...) with in = {x.shape[channel]} and groups = {groups}, "
            f"got {weight.shape}."
        )


def max_pool2d(x, /, window, *, stride=None, padding=0, data_format="NHWC"):
    return _pooled(
        x, window, stride, padding, data_format, lambda x, at: _max_pool(x, at) if type(x) is Box else _maxima(x, at)
    )


def avg_pool2d(x, /, window, *, stride=None, padding=0, data_format="NHWC"):
    def mean(x: Any, at: _Windows) -> Any:
        return _sum_pool(x, at) * (1.0 / (at.window[0] * at.window[1]))

    return _pooled(x, window, stride, padding, data_format, mean)


def _pooled(x: Any, window: Any, stride: Any, padding: Any, data_format: str, pool: Any) -> Any:
    first = _channels_first(data_format, "NHWC", "NCHW")
    if x.ndim != 4:
        raise ShapeError(f"`x` must have 4 axes, got shape {x.shape}.")
    window = _two("window", window)
    x = anp.transpose(x, (0, 2, 3, 1)) if first else x
    y = pool(x, _windows(x, window, window if stride is None else stride, 1, padding))
    return anp.transpose(y, (0, 3, 1, 2)) if first else y


def _maxima(x: np.ndarray, at: _Windows) -> np.ndarray:
    whole = at.padded(x, -np.inf)
    taps = at.taps()
    rows, columns = next(taps)
    y = whole[:, rows, columns].copy()
    for rows, columns in taps:
        np.maximum(y, whole[:, rows, columns], out=y)
    return y


_max_pool = primitive(_maxima)


def _chosen(x: np.ndarray, y: np.ndarray, at: _Windows) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """For each tap, where it is the first of its window that holds the maximum."""
    whole = at.padded(x, -np.inf)
    free = np.ones(y.shape, dtype=bool)
    for rows, columns in at.taps():
        here = whole[:, rows, columns] == y
        here &= free
        free ^= here
        yield rows, columns, here


@primitive
def _unpool(g: np.ndarray, x: np.ndarray, y: np.ndarray, at: _Windows) -> np.ndarray:
    """g moved to where each window's maximum was."""
    whole = np.zeros(at.padded_shape(x.shape), dtype=g.dtype)
    for rows, columns, here in _chosen(x, y, at):
        whole[:, rows, columns] += g * here
    return at.cropped(whole)


@primitive
def _pick(h: np.ndarray, x: np.ndarray, y: np.ndarray, at: _Windows) -> np.ndarray:
    """The adjoint of `_unpool`: h where each window's maximum was."""
    whole = at.padded(h)
    total = np.zeros(y.shape, dtype=h.dtype)
    for rows, columns, here in _chosen(x, y, at):
        total += whole[:, rows, columns] * here
    return total


defvjp(_max_pool, lambda ans, x, at: lambda g: _unpool(g, getval(x), getval(ans), at))
defvjp(_unpool, lambda ans, g, x, y, at: lambda h: _pick(h, x, y, at))
defvjp(_pick, lambda ans, h, x, y, at: lambda g: _unpool(g, x, y, at))


@primitive
def _sum_pool(x: np.ndarray, at: _Windows) -> np.ndarray:
    whole = at.padded(x)
    y = np.zeros((x.shape[0], *at.out, x.shape[3]), dtype=x.dtype)
    for rows, columns in at.taps():
        y += whole[:, rows, columns]
    return y


@primitive
def _unsum_pool(g: np.ndarray, at: _Windows) -> np.ndarray:
    """The adjoint of `_sum_pool`."""
    whole = np.zeros(at.padded_shape(g.shape), dtype=g.dtype)
    for rows, columns in at.taps():
        whole[:, rows, columns] += g
    return at.cropped(whole)


defvjp(_sum_pool, lambda ans, x, at: lambda g: _unsum_pool(g, at))
defvjp(_unsum_pool, lambda ans, g, at: lambda h: _sum_pool(h, at))

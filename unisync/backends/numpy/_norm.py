"""Normalisation over features or groups of channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisync.backends.numpy import _dtypes, _operations
from unisync.backends.numpy._fused import fused as _fused
from unisync.backends.numpy._operations import sum_to as _sum_to
from unisync.errors import ShapeError


def _mean(x: Any, axes: tuple[int, ...]) -> Any:
    n = 1
    for a in axes:
        n *= x.shape[a]
    return np.add.reduce(x, axis=axes, keepdims=True) * (1.0 / n)


def _forward(x: Any, weight: Any, bias: Any, axes: tuple[int, ...], eps: float, centre: bool) -> tuple[Any, Any]:
    normal = x - _mean(x, axes) if centre else x
    scale = _mean(normal * normal, axes)
    scale += eps
    np.sqrt(scale, out=scale)
    np.reciprocal(scale, out=scale)
    normal = normal * scale if normal is x else np.multiply(normal, scale, out=normal)
    y = normal if weight is None else normal * weight
    if bias is not None:
        y = y + bias if y is normal else np.add(y, bias, out=y)
    return y, (normal, scale)


def _backward(g, saved, needed, x, weight, bias, axes, eps, centre):
    normal, scale = saved
    gb = _sum_to(g, bias.shape) if needed[2] else None
    gw = _sum_to(g * normal, weight.shape) if needed[1] else None
    if not needed[0]:
        return None, gw, gb, None, None, None
    g = g if weight is None else g * weight
    gx = normal * _mean(g * normal, axes)
    np.subtract(g, gx, out=gx)
    if centre:
        gx -= _mean(g, axes)
    gx *= scale
    return gx, gw, gb, None, None, None


def _composite(x, weight, bias, axes, eps, centre):
    n = float(np.prod([x.shape[a] for a in axes]))
    if centre:
        x = x - _operations.sum(x, axes, True) / n
    y = x * (_operations.sum(x * x, axes, True) / n + eps) ** -0.5
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


_norm = _fused(_forward, _backward, _composite)


def layer_norm(x, weight=None, bias=None, /, *, ndim=1, eps=1e-5):
    return _norm(x, weight, bias, tuple(range(-ndim, 0)), eps, True)


def rms_norm(x, weight=None, /, *, eps=None):
    return _norm(x, weight, None, (-1,), float(np.finfo(_dtypes.dtype_of(x)).eps) if eps is None else eps, False)


def group_norm(x, groups, weight=None, bias=None, /, *, eps=1e-5, data_format="NHWC"):
    first = data_format.startswith("NC")
    n, c = x.shape[0], x.shape[1 if first else -1]
    if groups < 1 or c % groups:
        raise ShapeError(f"`groups` must divide the number of channels, got {groups} for {c} of shape {x.shape}.")
    split = (n, groups, c // groups, -1) if first else (n, -1, groups, c // groups)
    shape = (groups, c // groups, 1) if first else (groups, c // groups)
    weight = None if weight is None else weight.reshape(shape)
    bias = None if bias is None else bias.reshape(shape)
    return _norm(x.reshape(split), weight, bias, (2, 3) if first else (1, 3), eps, True).reshape(x.shape)

"""The fully connected layer."""

from __future__ import annotations

from typing import Any

from unisync.backends.numpy._fused import fused as _fused
from unisync.backends.numpy._operations import sum_rows as _sum_rows
from unisync.backends.numpy._tape import anp


def _forward(x: Any, weight: Any, bias: Any) -> tuple[Any, Any]:
    # One product of matrices: NumPy would take a batch of them one by one.
    rows = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
    y = rows @ weight.T
    if bias is not None:
        y += bias
    return (y if x.ndim == 2 else y.reshape(*x.shape[:-1], -1)), rows


def _backward(g: Any, rows: Any, needed: Any, x: Any, weight: Any, bias: Any) -> Any:
    g = g if g.ndim == 2 else g.reshape(-1, g.shape[-1])
    gx = (g @ weight).reshape(x.shape) if needed[0] else None
    gw = g.T @ rows if needed[1] else None
    gb = _sum_rows(g) if needed[2] else None
    return gx, gw, gb


def _composite(x: Any, weight: Any, bias: Any) -> Any:
    y = anp.matmul(x, anp.transpose(weight))
    return y if bias is None else y + bias


_linear = _fused(_forward, _backward, _composite)


def linear(x, weight, bias=None, /):
    return _linear(x, weight, bias)

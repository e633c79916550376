"""Softmax, its logarithm, and the cross entropy of integer labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisync.backends.numpy import _operations
from unisync.backends.numpy._fused import fused
from unisync.backends.numpy._tape import anp, getval


def top_of(x: Any, axis: Any) -> Any:
    """The maximum along axes, which to subtract before exp: finite, so that −inf − −inf does not come up."""
    top = np.max(getval(x), axis=axis, keepdims=True)
    return np.where(np.isfinite(top), top, top.dtype.type(0)) if not np.isfinite(top).all() else top


def softmax_of(x: Any, axis: int) -> Any:
    """softmax of a plain array."""
    y = x - np.max(x, axis=axis, keepdims=True)
    np.exp(y, out=y)
    y /= np.add.reduce(y, axis=axis, keepdims=True)
    return y


def softmax_vjp(g: Any, y: Any, axis: int) -> Any:
    """The cotangent of softmax's argument, on plain arrays."""
    gx = g * y
    total = np.add.reduce(gx, axis=axis, keepdims=True)
    gx -= y * total
    return gx


def _softmax_forward(x: Any, axis: int) -> tuple[Any, Any]:
    y = softmax_of(np.asarray(x), axis)
    return y, y


def _softmax_composite(x: Any, axis: int) -> Any:
    e = anp.exp(x - np.max(getval(x), axis=axis, keepdims=True))
    return e / _operations.sum(e, axis, True)


softmax = fused(_softmax_forward, lambda g, y, needed, x, axis: (softmax_vjp(g, y, axis), None), _softmax_composite)
"""(x, axis) → exp(x) scaled to sum to one."""


def _log_softmax_forward(x: Any, axis: int) -> tuple[Any, Any]:
    y = x - top_of(x, axis)
    y -= np.log(np.add.reduce(np.exp(y), axis=axis, keepdims=True))
    return y, y


def _log_softmax_backward(g: Any, y: Any, needed: Any, x: Any, axis: int) -> Any:
    return g - np.exp(y) * np.add.reduce(g, axis=axis, keepdims=True), None


def _log_softmax_composite(x: Any, axis: int) -> Any:
    return x - _logsumexp_composite(x, axis, True)


log_softmax = fused(_log_softmax_forward, _log_softmax_backward, _log_softmax_composite)
"""(x, axis) → the logarithm of softmax."""


def _logsumexp_forward(x: Any, axis: Any, keepdims: bool) -> tuple[Any, Any]:
    top = top_of(x, axis)
    with np.errstate(divide="ignore"):  # log 0 is the right −inf where all elements are −inf
        kept = np.log(np.add.reduce(np.exp(x - top), axis=axis, keepdims=True)) + top
    return (kept if keepdims else np.squeeze(kept, axis=axis)[()]), kept


def _logsumexp_backward(g: Any, kept: Any, needed: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    finite = np.where(np.isfinite(kept), kept, kept.dtype.type(0))
    return np.reshape(g, kept.shape) * np.exp(x - finite), None, None


def _logsumexp_composite(x: Any, axis: Any, keepdims: bool) -> Any:
    top = top_of(x, axis)
    kept = anp.log(_operations.sum(anp.exp(x - top), axis, True)) + top
    return kept if keepdims else _operations.sum(kept, axis, False)


logsumexp = fused(_logsumexp_forward, _logsumexp_backward, _logsumexp_composite)
"""(x, axis, keepdims) → log(sum(exp(x)))."""


def _cross_entropy_forward(logits: Any, labels: Any) -> tuple[Any, Any]:
    y = logits - np.max(logits, axis=-1, keepdims=True)
    picked = np.take_along_axis(y, labels[..., None], -1)[..., 0]
    np.exp(y, out=y)
    total = np.add.reduce(y, axis=-1, keepdims=True)
    return np.log(total[..., 0]) - picked, (y, total)


def _cross_entropy_backward(g: Any, saved: Any, needed: Any, logits: Any, labels: Any) -> Any:
    y, total = saved
    gx = y * (g[..., None] / total)
    rows = gx.reshape(-1, gx.shape[-1])
    rows[np.arange(rows.shape[0]), labels.ravel()] -= np.ravel(g)
    return gx, None


def _cross_entropy_composite(logits: Any, labels: Any) -> Any:
    picked = _operations.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return _logsumexp_composite(logits, -1, False) - picked


cross_entropy = fused(_cross_entropy_forward, _cross_entropy_backward, _cross_entropy_composite)
"""(logits, labels) → −log softmax(logits)[label]."""

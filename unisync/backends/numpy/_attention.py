"""Scaled dot-product attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisync.backends.numpy import _losses, _operations
from unisync.backends.numpy._fused import fused
from unisync.backends.numpy._operations import sum_to
from unisync.backends.numpy._tape import anp, getval


def _forward(query: Any, key: Any, value: Any, mask: Any, scale: float) -> tuple[Any, Any]:
    scaled = query * scale
    scores = np.matmul(scaled, np.swapaxes(key, -1, -2))
    if mask is not None:
        scores = np.where(mask, scores, scores.dtype.type(-np.inf)) if mask.dtype == bool else scores + mask
    weights = _weights(scores)
    return np.matmul(weights, value), (scaled, weights)


def _weights(scores: Any) -> Any:
    """softmax over the last axis; zeros where all is masked, as torch and jax have it."""
    weights = scores - _losses.top_of(scores, -1)
    np.exp(weights, out=weights)
    total = np.add.reduce(weights, axis=-1, keepdims=True)
    # The largest is exp(0): the sum is at least 1, or 0.
    weights /= np.maximum(total, 1, out=total)
    return weights


def _backward(g: Any, saved: Any, needed: Any, query: Any, key: Any, value: Any, mask: Any, scale: float) -> Any:
    scaled, weights = saved
    gv = sum_to(np.matmul(np.swapaxes(weights, -1, -2), g), value.shape) if needed[2] else None
    if not (needed[0] or needed[1] or needed[3]):
        return None, None, gv, None, None
    scores = _losses.softmax_vjp(np.matmul(g, np.swapaxes(value, -1, -2)), weights, -1)
    gq = sum_to(np.matmul(scores, key) * scale, query.shape) if needed[0] else None
    gk = sum_to(np.matmul(np.swapaxes(scores, -1, -2), scaled), key.shape) if needed[1] else None
    gm = sum_to(scores, mask.shape) if needed[3] else None
    return gq, gk, gv, gm, None


def _composite(query: Any, key: Any, value: Any, mask: Any, scale: float) -> Any:
    scores = anp.matmul(query * scale, anp.swapaxes(key, -1, -2))
    if mask is not None:
        scores = _operations.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    weights = anp.exp(scores - _losses.top_of(scores, -1))
    total = _operations.sum(weights, -1, True)
    return anp.matmul(weights / (total + (getval(total) == 0)), value)


attention = fused(_forward, _backward, _composite)
"""(query, key, value, mask or None, scale) → softmax(scale · query · keyᵀ, masked) · value."""

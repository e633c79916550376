"""Normalisation over features or groups of channels."""

from __future__ import annotations

import numpy as np

from unisync.backends.numpy import _dtypes, _operations


def _normalised(x, axes, eps):
    n = float(np.prod([x.shape[a] for a in axes]))
    centred = x - _operations.sum(x, axes, True) / n
    return centred * (_operations.sum(centred * centred, axes, True) / n + eps) ** -0.5


def layer_norm(x, weight=None, bias=None, /, *, ndim=1, eps=1e-5):
    y = _normalised(x, tuple(range(-ndim, 0)), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def rms_norm(x, weight=None, /, *, eps=None):
    eps = float(np.finfo(_dtypes.dtype_of(x)).eps) if eps is None else eps
    y = x * (_operations.sum(x * x, -1, True) / x.shape[-1] + eps) ** -0.5
    return y if weight is None else y * weight


def group_norm(x, groups, weight=None, bias=None, /, *, eps=1e-5, data_format="NHWC"):
    first = data_format.startswith("NC")
    n, c = x.shape[0], x.shape[1 if first else -1]
    split = (n, groups, c // groups, -1) if first else (n, -1, groups, c // groups)
    y = _normalised(x.reshape(split), (2, 3) if first else (1, 3), eps).reshape(x.shape)
    shape = (c,) + (1,) * (x.ndim - 2) if first else (c,)
    y = y if weight is None else y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)

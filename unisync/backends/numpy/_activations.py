"""Non-linear functions of single elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisync.backends.numpy import _dtypes, _operations
from unisync.backends.numpy._erf import erf as _erf_of
from unisync.backends.numpy._fused import elementwise as _elementwise
from unisync.backends.numpy._tape import Box as _Box, anp, getval as _getval


def _where(condition: Any, x: Any, y: Any) -> Any:
    return _operations.where(_getval(condition), x, y)


def _floating(x: Any) -> Any:
    return x if type(x) is _Box or x.dtype.kind in "fV" else x.astype(_dtypes.FLOAT)


_relu = _elementwise(
    lambda x: np.maximum(x, 0),
    lambda x, y: y > 0,
    lambda x: _where(x > 0, x, 0.0),
)


def relu(x, /):
    return _relu(x)


_leaky_relu = _elementwise(
    lambda x, slope: np.where(x > 0, x, slope * x),
    lambda x, y, slope: np.where(x > 0, x.dtype.type(1), x.dtype.type(slope)),
    lambda x, slope: _where(x > 0, x, slope * x),
)


def leaky_relu(x, /, *, negative_slope=0.01):
    return _leaky_relu(_floating(x), negative_slope)


_elu = _elementwise(
    lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    lambda x, y, alpha: np.where(x > 0, x.dtype.type(1), y + x.dtype.type(alpha)),
    lambda x, alpha: _where(x > 0, x, alpha * anp.expm1(_where(x > 0, 0.0, x))),
)


def elu(x, /, *, alpha=1.0):
    return _elu(_floating(x), alpha)


def _sigmoid_of(x: Any) -> Any:
    y = np.negative(x)
    with np.errstate(over="ignore"):  # 1 / (1 + ∞) is the right 0
        np.exp(y, out=y)
    y += 1
    return np.reciprocal(y, out=y)


def _composite_sigmoid(x: Any) -> Any:
    return 0.5 * anp.tanh(0.5 * x) + 0.5


_sigmoid = _elementwise(
    lambda x: _sigmoid_of(np.asarray(x)),
    lambda x, y: y * (1 - y),
    _composite_sigmoid,
)


def sigmoid(x, /):
    return _sigmoid(_floating(x))


def _silu_slope(x: Any, y: Any) -> Any:
    s = _sigmoid_of(np.asarray(x))
    return s + y * (1 - s)


_silu = _elementwise(
    lambda x: x * _sigmoid_of(np.asarray(x)),
    _silu_slope,
    lambda x: x * _composite_sigmoid(x),
)


def silu(x, /):
    return _silu(_floating(x))


def _softplus_of(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


_softplus = _elementwise(
    _softplus_of,
    lambda x, y: _sigmoid_of(np.asarray(x)),
    lambda x: anp.logaddexp(x, np.zeros((), dtype=x.dtype)),
)


def softplus(x, /):
    return _softplus(_floating(x))


_ROOT_HALF = 0.7071067811865476
_ROOT_2_OVER_PI = 0.7978845608028654


def _gelu_slope(x: Any, y: Any) -> Any:
    # y / x is Φ(x), at the price of a division in place of another erf.
    zero = x == 0
    phi = y / x if not zero.any() else (y + 0.5 * zero) / (x + zero)
    near = np.clip(x, -38, 38)  # beyond, exp is 0 and the square may overflow
    return phi + x * np.exp(-0.5 * near * near) * 0.3989422804014327


_gelu = _elementwise(
    lambda x: x * (0.5 + 0.5 * _erf_of(x * _ROOT_HALF)),
    _gelu_slope,
    lambda x: x * (0.5 + 0.5 * _operations.erf(x * _ROOT_HALF)),
)


def _tanh_of(near: Any) -> Any:
    return np.tanh(_ROOT_2_OVER_PI * (near + 0.044715 * near * near * near))


def _near(x: Any) -> Any:
    return np.clip(x, -10, 10)  # beyond, tanh is ±1 and the cube may overflow


def _gelu_tanh_slope(x: Any, y: Any) -> Any:
    near = _near(x)
    t = _tanh_of(near)
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _ROOT_2_OVER_PI * (1 + 3 * 0.044715 * near * near)


_gelu_tanh = _elementwise(
    lambda x: 0.5 * x * (1 + _tanh_of(_near(x))),
    _gelu_tanh_slope,
    lambda x: 0.5 * x * (1 + anp.tanh(_ROOT_2_OVER_PI * (x + 0.044715 * x * x * x))),
)


def gelu(x, /, *, approximate=False):
    return (_gelu_tanh if approximate else _gelu)(_floating(x))

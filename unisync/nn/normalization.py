"""Normalisation layers. The channel stands last by default."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from unisync import _context
from unisync._dispatch import namespace
from unisync._types import Shape
from unisync.errors import ArgumentError, ShapeError, unknown
from unisync.functional import nn as primitives
from unisync.functional.collectives import all_reduce
from unisync.functional.random import Key
from unisync.nn import _checks
from unisync.nn.layer import Layer, Params, State

_FORMATS = ("NHWC", "NLC", "NCHW", "NCL")


@final
@dataclass(frozen=True, repr=False)
class LayerNorm(Layer):
    """The last axes to mean 0 and variance 1, then · weight + bias (Ba et al. 2016).

    Params: weight (ones) and bias (zeros), of the given shape.

    Args:
        shape: the length of the last axis, or the lengths of the last axes.
        eps: added to the variance.
        affine: whether there are weight and bias.

    Example:
        >>> layer = us.nn.LayerNorm(2)
        >>> params, _ = layer.init(0)
        >>> layer(params, us.asarray([[1.0, 3.0]]))
        array([[-0.999995,  0.999995]], dtype=float32)
    """

    shape: int | Shape
    eps: float = 1e-5
    affine: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.shape, list):
            object.__setattr__(self, "shape", tuple(self.shape))
        _checks.sizes(self, shape=self.shape)

    def init_params(self, key: Key) -> Params:
        return {"weight": np.ones(self.shape), "bias": np.zeros(self.shape)} if self.affine else {}

    def forward(self, params: Params, x: Any) -> Any:
        sizes = self.shape if isinstance(self.shape, tuple) else (self.shape,)
        expected = f"(..., {', '.join(map(str, sizes))})"
        for axis, size in enumerate(sizes, -len(sizes)):
            _checks.axis_size(self, x, axis, size, expected)
        weight, bias = (params["weight"], params["bias"]) if self.affine else (None, None)
        return primitives.layer_norm(x, weight, bias, ndim=len(sizes), eps=self.eps)


@final
@dataclass(frozen=True, repr=False)
class RMSNorm(Layer):
    """The last axis divided by the root of its mean square, then · weight (Zhang & Sennrich 2019).

    Params: weight (dim,), ones.

    Args:
        dim: the length of the last axis.
        eps: added to the mean square; default the dtype's machine epsilon, as in torch.
        affine: whether there is a weight.

    Example:
        >>> layer = us.nn.RMSNorm(2)
        >>> params, _ = layer.init(0)
        >>> layer(params, us.asarray([[3.0, 4.0]])).shape
        (1, 2)
    """

    dim: int
    eps: float | None = None
    affine: bool = True

    def __post_init__(self) -> None:
        _checks.sizes(self, dim=self.dim)

    def init_params(self, key: Key) -> Params:
        return {"weight": np.ones(self.dim)} if self.affine else {}

    def forward(self, params: Params, x: Any) -> Any:
        _checks.axis_size(self, x, -1, self.dim, f"(..., {self.dim})", f"RMSNorm({_last(x)})")
        return primitives.rms_norm(x, params["weight"] if self.affine else None, eps=self.eps)


def _last(x: Any) -> Any:
    shape = tuple(getattr(x, "shape", ()))
    return shape[-1] if shape else "dim"


@final
@dataclass(frozen=True, repr=False)
class GroupNorm(Layer):
    """Groups of channels, over all positions, to mean 0 and variance 1, then · weight + bias (Wu & He 2018).

    Params: weight (channels,), ones, and bias (channels,), zeros.

    Args:
        groups: how many groups of consecutive channels; divides `channels`.
        channels: channels of the input.
        eps: added to the variance.
        affine: whether there are weight and bias.
        data_format: "NHWC", "NLC", "NCHW" or "NCL": whether the channel stands last or second.

    Example:
        >>> layer = us.nn.GroupNorm(3, 6)
        >>> params, _ = layer.init(0)
        >>> layer(params, us.ones((2, 4, 4, 6))).shape
        (2, 4, 4, 6)
    """

    groups: int
    channels: int
    eps: float = 1e-5
    affine: bool = True
    data_format: str = "NHWC"

    def __post_init__(self) -> None:
        _checks.sizes(self, groups=self.groups, channels=self.channels)
        _checks.divides(self, "groups", "channels")
        if self.data_format not in _FORMATS:
            raise unknown("data_format", self.data_format, _FORMATS)

    def init_params(self, key: Key) -> Params:
        return {"weight": np.ones(self.channels), "bias": np.zeros(self.channels)} if self.affine else {}

    def forward(self, params: Params, x: Any) -> Any:
        second = self.data_format.startswith("NC")
        expected = f"(N, {self.channels}, ...)" if second else f"(N, ..., {self.channels})"
        _checks.axis_size(self, x, 1 if second else -1, self.channels, expected)
        weight, bias = (params["weight"], params["bias"]) if self.affine else (None, None)
        return primitives.group_norm(x, self.groups, weight, bias, eps=self.eps, data_format=self.data_format)


@final
@dataclass(frozen=True, repr=False)
class BatchNorm(Layer):
    """Each channel, over batch and positions, to mean 0 and variance 1, then · weight + bias (Ioffe & Szegedy 2015).

    One layer for inputs (N, C), (N, L, C) and (N, H, W, C). In training it uses the batch's statistics and moves the
    running ones towards them by `momentum` (the running variance is the unbiased one, as in torch); else it uses the
    running ones. Padded rows of the batch (sample weight 0) count in neither; without a real row nothing moves.

    Params: weight (ones) and bias (zeros). State: running_mean (zeros) and running_var (ones). All (features,).

    Args:
        features: channels of the input.
        eps: added to the variance.
        momentum: the share of the new statistics in the running ones.
        affine: whether there are weight and bias.
        track: whether there are running statistics; without them the batch's are always used.
        data_format: "NHWC" (also for (N, C)), "NLC", "NCHW" or "NCL": whether the channel stands last or second.
        sync: whether replicas that train together use the statistics of all their rows, as one replica with the whole
            batch would, at the price of two small all-reduces in the forward pass and two in the backward pass. Else
            each uses those of its own rows.

    Example:
        >>> layer = us.nn.BatchNorm(2)
        >>> params, state = layer.init(0)
        >>> y, state = layer.apply(params, state, us.asarray([[0.0, 1.0], [2.0, 5.0]]), train=True)
        >>> state["running_mean"]
        array([0.1, 0.3], dtype=float32)
    """

    features: int
    eps: float = 1e-5
    momentum: float = 0.1
    affine: bool = True
    track: bool = True
    data_format: str = "NHWC"
    sync: bool = False

    def __post_init__(self) -> None:
        _checks.sizes(self, features=self.features)
        _checks.fraction(self, momentum=self.momentum)
        if self.data_format not in _FORMATS:
            raise unknown("data_format", self.data_format, _FORMATS)

    @property
    def stateful(self) -> bool:
        return self.track

    def init_params(self, key: Key) -> Params:
        return {"weight": np.ones(self.features), "bias": np.zeros(self.features)} if self.affine else {}

    def init_state(self) -> State:
        return {"running_mean": np.zeros(self.features), "running_var": np.ones(self.features)} if self.track else {}

    def apply(
        self, params: Params, state: State, x: Any, train: bool = False, key: Key | None = None
    ) -> tuple[Any, State]:
        try:
            return self._apply(params, state, x, train)
        except Exception as error:
            clear = _checks.bad_params(self, params, error)
            if clear is error:
                raise
            raise clear from error

    def _apply(self, params: Params, state: State, x: Any, train: bool) -> tuple[Any, State]:
        second = self.data_format.startswith("NC")
        axis = 1 if second else -1
        expected = f"(N, {self.features}, ...)" if second else f"(N, ..., {self.features})"
        _checks.axis_size(self, x, axis, self.features, expected)
        m, ndim = namespace(x), len(x.shape)
        spread = (1, self.features) + (1,) * (ndim - 2) if second and ndim > 2 else (self.features,)
        if train or not self.track:
            mean, centered, var, state = self._batch_statistics(m, state, x, spread)
        else:
            if "running_mean" not in state or "running_var" not in state:
                raise _checks.layer_error(
                    ArgumentError,
                    self,
                    f"`state` must hold 'running_mean' and 'running_var', got {sorted(state)}. "
                    "Try: y, state = model.apply(params, state, x), with the state of model.init.",
                )
            mean, var = m.reshape(state["running_mean"], spread), m.reshape(state["running_var"], spread)
            centered = x - mean
        scale = m.rsqrt(var + self.eps)
        if not self.affine:
            return centered * scale, state
        return centered * (scale * m.reshape(params["weight"], spread)) + m.reshape(params["bias"], spread), state

    def _batch_statistics(self, m: Any, state: State, x: Any, spread: Shape) -> tuple[Any, Any, Any, State]:
        """Mean, x − mean and biased variance of the batch, shaped to broadcast with x, and the new state."""
        ndim = len(x.shape)
        channel = 1 if self.data_format.startswith("NC") else ndim - 1
        axes = tuple(a for a in range(ndim) if a != channel)
        weights, scope = _context.sample_weights(), _context.scope()
        if self.sync and scope is not None and scope.engine.size > 1:
            mean, centered, var, count = self._statistics_of_all(m, x, spread, channel, weights)
            real = count > 0
        elif weights is None:
            mean = m.mean(x, axis=axes)
            centered = x - m.reshape(mean, spread)
            var = m.mean(centered * centered, axis=axes)
            count = _count(m, x, channel)
            real = None
        else:
            mask = self._mask(m, weights, x)
            count = m.sum(mask) * _count(m, x, channel, rows=False)
            at_least_one = m.maximum(count, 1.0)
            mean = m.sum(x * mask, axis=axes) / at_least_one
            centered = x - m.reshape(mean, spread)
            var = m.sum(centered * centered * mask, axis=axes) / at_least_one
            real = count > 0
        if self.track:
            state = self._moved(m, state, m.stop_gradient(mean), m.stop_gradient(var), count, real)
        return mean, centered, m.reshape(var, spread), state

    def _statistics_of_all(
        self, m: Any, x: Any, spread: Shape, channel: int, weights: Any
    ) -> tuple[Any, Any, Any, Any]:
        """Mean, x − mean, biased variance and count over the rows of all replicas.

        The mean comes first, then the squares of what is left: from sums of squares the variance of channels that lie
        far from 0 could not be told. Half precision is widened, since it cannot count beyond a few thousands.
        """
        axes = tuple(a for a in range(len(x.shape)) if a != channel)
        dtype = m.dtype_of(x)
        wide = x if dtype in ("float32", "float64") else m.astype(x, "float32")
        mask = None if weights is None else self._mask(m, weights, wide)
        rows = 1.0 if mask is None else m.sum(mask)
        total = m.sum(wide if mask is None else wide * mask, axis=axes)
        count = m.zeros_like(total) + rows * _count(m, wide, channel, rows=mask is None)
        count, total = all_reduce((count, total), op="sum")
        at_least_one = m.maximum(count, 1.0)
        mean = total / at_least_one
        centered = wide - m.reshape(mean, spread)
        squares = centered * centered
        var = all_reduce(m.sum(squares if mask is None else squares * mask, axis=axes), op="sum") / at_least_one
        return m.astype(mean, dtype), m.astype(centered, dtype), m.astype(var, dtype), m.astype(count, dtype)

    def _mask(self, m: Any, weights: Any, x: Any) -> Any:
        rows, found = weights.shape[0], x.shape[0]
        if len(weights.shape) != 1 or (None not in (rows, found) and rows != found):
            raise _checks.layer_error(
                ShapeError,
                self,
                f"`x` must have a row for each of the batch's {_checks.shape_text(weights.shape)} sample weights, got "
                f"shape {_checks.shape_text(x.shape)}. Try: keep the batch axis first and unmerged up to this layer.",
            )
        mask = m.astype(m.not_equal(weights, 0.0), m.dtype_of(x))
        return m.reshape(mask, (-1,) + (1,) * (len(x.shape) - 1))

    def _moved(self, m: Any, state: State, mean: Any, var: Any, count: Any, real: Any) -> State:
        share: Any = self.momentum
        if real is not None:
            share = m.astype(real, m.dtype_of(mean)) * share
        unbiased = _unbiased(m, var, count)
        return {
            **state,
            "running_mean": state["running_mean"] + share * (mean - state["running_mean"]),
            "running_var": state["running_var"] + share * (unbiased - state["running_var"]),
        }


def _unbiased(m: Any, var: Any, count: Any) -> Any:
    """The variance with count − 1 in the divisor; that of a single element stays 0."""
    return var * (count / (max(count - 1, 1) if isinstance(count, int) else m.maximum(count - 1, 1.0)))


def _count(m: Any, x: Any, channel: int, rows: bool = True) -> Any:
    """How many elements a channel has (in one row): an int, or a scalar array where a size is unknown in tracing."""
    sizes = [size for axis, size in enumerate(x.shape) if axis != channel and (rows or axis > 0)]
    if None not in sizes:
        return math.prod(sizes)
    part = x[:, :1] if channel == 1 else x[..., :1]
    return m.sum(m.ones_like(part if rows else part[:1]))

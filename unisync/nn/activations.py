"""Activations as layers, for use in `Sequential`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from unisync.functional import elementwise, nn as primitives
from unisync.nn.layer import Layer, Params


@final
@dataclass(frozen=True, repr=False)
class ReLU(Layer):
    """max(x, 0).

    Example:
        >>> us.nn.ReLU()({}, us.asarray([-1.0, 2.0]))
        array([0., 2.], dtype=float32)
    """

    def forward(self, params: Params, x: Any) -> Any:
        return primitives.relu(x)


@final
@dataclass(frozen=True, repr=False)
class LeakyReLU(Layer):
    """x above zero, negative_slope · x below.

    Args:
        negative_slope: the slope below zero.

    Example:
        >>> us.nn.LeakyReLU(0.5)({}, us.asarray([-1.0, 2.0]))
        array([-0.5,  2. ], dtype=float32)
    """

    negative_slope: float = 0.01

    def forward(self, params: Params, x: Any) -> Any:
        return primitives.leaky_relu(x, negative_slope=self.negative_slope)


@final
@dataclass(frozen=True, repr=False)
class ELU(Layer):
    """x above zero, alpha · (exp(x) − 1) below.

    Args:
        alpha: the limit −alpha for large negative x.

    Example:
        >>> us.nn.ELU()({}, us.asarray([0.0, 2.0]))
        array([0., 2.], dtype=float32)
    """

    alpha: float = 1.0

    def forward(self, params: Params, x: Any) -> Any:
        return primitives.elu(x, alpha=self.alpha)


@final
@dataclass(frozen=True, repr=False)
class GELU(Layer):
    """x · Φ(x), with Φ the normal distribution function.

    Args:
        approximate: whether to use the tanh approximation instead of the exact form.

    Example:
        >>> us.nn.GELU()({}, us.asarray([0.0])).shape
        (1,)
    """

    approximate: bool = False

    def forward(self, params: Params, x: Any) -> Any:
        return primitives.gelu(x, approximate=self.approximate)


@final
@dataclass(frozen=True, repr=False)
class SiLU(Layer):
    """x · sigmoid(x), also called swish.

    Example:
        >>> us.nn.SiLU()({}, us.asarray([0.0])).shape
        (1,)
    """

    def forward(self, params: Params, x: Any) -> Any:
        return primitives.silu(x)


@final
@dataclass(frozen=True, repr=False)
class Sigmoid(Layer):
    """1 / (1 + exp(−x)).

    Example:
        >>> us.nn.Sigmoid()({}, us.asarray([0.0]))
        array([0.5], dtype=float32)
    """

    def forward(self, params: Params, x: Any) -> Any:
        return primitives.sigmoid(x)


@final
@dataclass(frozen=True, repr=False)
class Tanh(Layer):
    """The hyperbolic tangent.

    Example:
        >>> us.nn.Tanh()({}, us.asarray([0.0]))
        array([0.], dtype=float32)
    """

    def forward(self, params: Params, x: Any) -> Any:
        return elementwise.tanh(x)


@final
@dataclass(frozen=True, repr=False)
class Softplus(Layer):
    """log(1 + exp(x)) without overflow.

    Example:
        >>> us.nn.Softplus()({}, us.asarray([0.0])).shape
        (1,)
    """

    def forward(self, params: Params, x: Any) -> Any:
        return primitives.softplus(x)


@final
@dataclass(frozen=True, repr=False)
class Softmax(Layer):
    """exp(x) scaled to sum to one along an axis.

    Not before `us.losses.softmax_cross_entropy`, which takes logits.

    Args:
        axis: the axis.

    Example:
        >>> us.nn.Softmax()({}, us.asarray([[0.0, 0.0]]))
        array([[0.5, 0.5]], dtype=float32)
    """

    axis: int = -1

    def forward(self, params: Params, x: Any) -> Any:
        return primitives.softmax(x, axis=self.axis)

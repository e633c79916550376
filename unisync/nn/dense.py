"""Layers made of one weight matrix: linear maps and embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from unisync._types import KINDS
from unisync.errors import ArgumentTypeError
from unisync.functional import nn as primitives
from unisync.functional.dtypes import dtype_of
from unisync.functional.random import Key
from unisync.nn import _checks, initializers
from unisync.nn.layer import Layer, Params


@final
@dataclass(frozen=True, repr=False)
class Linear(Layer):
    """x · weightᵀ + bias.

    Params: weight (out, in) and bias (out,), both first drawn from U(−1/√in, 1/√in).

    Args:
        in_features: the length of the input's last axis.
        out_features: the length of the output's last axis.
        bias: whether to add a bias.

    Example:
        >>> layer = us.nn.Linear(3, 2)
        >>> params, _ = layer.init(0)
        >>> layer(params, us.ones((4, 3))).shape
        (4, 2)
    """

    in_features: int
    out_features: int
    bias: bool = True

    def __post_init__(self) -> None:
        _checks.sizes(self, in_features=self.in_features, out_features=self.out_features)

    def init_params(self, key: Key) -> Params:
        draw = key.generator()
        params = {"weight": initializers.fan_in_uniform(draw, (self.out_features, self.in_features), self.in_features)}
        if self.bias:
            params["bias"] = initializers.fan_in_uniform(draw, (self.out_features,), self.in_features)
        return params

    def forward(self, params: Params, x: Any) -> Any:
        try:
            fits = x.shape[-1] == self.in_features
        except (AttributeError, IndexError):
            fits = False
        if not fits:
            self._refuse(x)
        return primitives.linear(x, params["weight"], params["bias"] if self.bias else None)

    def _refuse(self, x: Any) -> None:
        shape = tuple(getattr(x, "shape", ()))
        cure = f"Linear({shape[-1]}, {self.out_features})" if shape else ""
        _checks.axis_size(self, x, -1, self.in_features, f"(..., {self.in_features})", cure)


@final
@dataclass(frozen=True, repr=False)
class Embedding(Layer):
    """The rows of a table at the given positions.

    Params: weight (rows, dim), first drawn from N(0, 1).

    Args:
        rows: how many rows: the inputs are integers in [0, rows).
        dim: the length of a row.

    Example:
        >>> layer = us.nn.Embedding(10, 4)
        >>> params, _ = layer.init(0)
        >>> layer(params, us.asarray([[1, 2, 3]])).shape
        (1, 3, 4)
    """

    rows: int
    dim: int

    def __post_init__(self) -> None:
        _checks.sizes(self, rows=self.rows, dim=self.dim)

    def init_params(self, key: Key) -> Params:
        return {"weight": initializers.normal(key.generator(), (self.rows, self.dim))}

    def forward(self, params: Params, x: Any) -> Any:
        dtype = dtype_of(x)
        if dtype not in KINDS["integral"]:
            raise _checks.layer_error(
                ArgumentTypeError, self, f"`x` must be of an integer dtype, got {dtype}. Try: us.astype(x, us.int64)."
            )
        return primitives.embedding(params["weight"], x)


@final
@dataclass(frozen=True, repr=False)
class PositionalEmbedding(Layer):
    """x plus a learned vector for each position of a sequence.

    Params: weight (length, dim), first drawn from N(0, 1), as an `Embedding` of the positions would be.

    Args:
        length: the longest sequence.
        dim: the length of the input's last axis.

    Example:
        >>> layer = us.nn.PositionalEmbedding(16, 4)
        >>> params, _ = layer.init(0)
        >>> layer(params, us.ones((2, 10, 4))).shape
        (2, 10, 4)
    """

    length: int
    dim: int

    def __post_init__(self) -> None:
        _checks.sizes(self, length=self.length, dim=self.dim)

    def init_params(self, key: Key) -> Params:
        return {"weight": initializers.normal(key.generator(), (self.length, self.dim))}

    def forward(self, params: Params, x: Any) -> Any:
        expected = f"(N, L, {self.dim}) with L ≤ {self.length}"
        _checks.rank(self, x, 3, expected)
        _checks.axis_size(self, x, -1, self.dim, expected)
        length = x.shape[1]
        if length is not None and length > self.length:
            raise _checks.shape_error(self, expected, x.shape, f"PositionalEmbedding({length}, {self.dim})")
        return x + params["weight"][:length]

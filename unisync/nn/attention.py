"""Self-attention, and the transformer block made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from unisync._dispatch import namespace
from unisync.errors import unknown
from unisync.functional import nn as primitives
from unisync.functional.random import Key
from unisync.nn import _checks, initializers
from unisync.nn.dense import Linear
from unisync.nn.layer import Layer, Params, State
from unisync.nn.normalization import LayerNorm
from unisync.nn.regularization import drop


@final
@dataclass(frozen=True, repr=False)
class MultiHeadAttention(Layer):
    """Self-attention of several heads over (N, L, dim) (Vaswani et al. 2017).

    Params as torch's: in_proj_weight (3·dim, dim), Xavier-uniform, with the rows of query, key and value in this order;
    in_proj_bias (3·dim,), zeros; out_proj/weight (dim, dim) from U(−1/√dim, 1/√dim) and out_proj/bias, zeros.

    Args:
        dim: the length of the last axis of input and output.
        heads: how many heads; divides `dim`.
        bias: whether the projections have biases.
        causal: whether position i sees positions ≤ i only.

    Example:
        >>> layer = us.nn.MultiHeadAttention(8, 2, causal=True)
        >>> params, _ = layer.init(0)
        >>> layer(params, us.ones((4, 5, 8))).shape
        (4, 5, 8)
    """

    dim: int
    heads: int
    bias: bool = True
    causal: bool = False

    def __post_init__(self) -> None:
        _checks.sizes(self, dim=self.dim, heads=self.heads)
        _checks.divides(self, "heads", "dim")

    def init_params(self, key: Key) -> Params:
        draw = key.generator()
        params: Params = {"in_proj_weight": initializers.xavier_uniform(draw, (3 * self.dim, self.dim))}
        params["out_proj"] = {"weight": initializers.fan_in_uniform(draw, (self.dim, self.dim), self.dim)}
        if self.bias:
            params["in_proj_bias"] = np.zeros(3 * self.dim)
            params["out_proj"]["bias"] = np.zeros(self.dim)
        return params

    def forward(self, params: Params, x: Any) -> Any:
        _check_input(self, x)
        return _attend(params, x, self.heads, self.causal, self.bias)


def _check_input(layer: Any, x: Any) -> None:
    expected = f"(N, L, {layer.dim})"
    _checks.rank(layer, x, 3, expected)
    _checks.axis_size(layer, x, -1, layer.dim, expected)


def _attend(params: Params, x: Any, heads: int, causal: bool, bias: bool) -> Any:
    out = params["out_proj"]
    m = namespace(x, params["in_proj_weight"])
    length, dim = x.shape[1], x.shape[2]
    projected = m.linear(x, params["in_proj_weight"], params["in_proj_bias"] if bias else None)
    # (N, L, 3·dim) → three times (N, heads, L, dim / heads)
    split = m.permute_dims(m.reshape(projected, (-1, length, 3, heads, dim // heads)), (2, 0, 3, 1, 4))
    # unstack, not three slices: its gradient is one stack.
    query, key, value = m.unstack(split)
    seen = m.scaled_dot_product_attention(query, key, value, causal=causal)
    joined = m.reshape(m.permute_dims(seen, (0, 2, 1, 3)), (-1, length, dim))
    return m.linear(joined, out["weight"], out["bias"] if bias else None)


_ACTIVATIONS = {"gelu": primitives.gelu, "relu": primitives.relu, "silu": primitives.silu}


@final
@dataclass(frozen=True, repr=False)
class TransformerBlock(Layer):
    """Self-attention, then two linear layers, each inside a residual connection with a layer norm.

    Params as torch's TransformerEncoderLayer: self_attn, linear1, linear2, norm1, norm2. With torch's own settings
    (`hidden=2048, activation="relu", norm_first=False`) it computes the same. In training, dropout acts after the
    attention, after the activation and after the second linear layer (torch's acts on the attention weights too).

    Args:
        dim: the length of the last axis of input (N, L, dim) and output.
        heads: attention heads; divides `dim`.
        hidden: the width between the linear layers; default 4 · dim.
        activation: "gelu", "relu" or "silu".
        norm_first: whether the norms stand before attention and linear layers (trains more stably) or after the sums.
        causal: whether position i sees positions ≤ i only.
        dropout: the dropout rate.
        eps: of the layer norms.

    Example:
        >>> block = us.nn.TransformerBlock(8, heads=2, causal=True)
        >>> params, _ = block.init(0)
        >>> block(params, us.ones((4, 5, 8))).shape
        (4, 5, 8)
    """

    dim: int
    heads: int
    hidden: int | None = None
    activation: Literal["gelu", "relu", "silu"] = "gelu"
    norm_first: bool = True
    causal: bool = False
    dropout: float = 0.0
    eps: float = 1e-5

    def __post_init__(self) -> None:
        _checks.sizes(self, dim=self.dim, heads=self.heads, hidden=4 * self.dim if self.hidden is None else self.hidden)
        _checks.divides(self, "heads", "dim")
        _checks.fraction(self, dropout=self.dropout)
        if self.activation not in _ACTIVATIONS:
            raise unknown("activation", self.activation, _ACTIVATIONS)

    def children(self) -> Mapping[str, Layer]:
        hidden = self.hidden or 4 * self.dim
        return {
            "self_attn": MultiHeadAttention(self.dim, self.heads, causal=self.causal),
            "linear1": Linear(self.dim, hidden),
            "linear2": Linear(hidden, self.dim),
            "norm1": LayerNorm(self.dim, self.eps),
            "norm2": LayerNorm(self.dim, self.eps),
        }

    def apply(
        self, params: Params, state: State, x: Any, train: bool = False, key: Key | None = None
    ) -> tuple[Any, State]:
        _check_input(self, x)
        keys = key.split(3) if train and self.dropout and key is not None else (key,) * 3
        try:
            if self.norm_first:
                x = x + self._attend(params, self._norm(params["norm1"], x), train, keys)
                return x + self._transform(params, self._norm(params["norm2"], x), train, keys), state
            x = self._norm(params["norm1"], x + self._attend(params, x, train, keys))
            return self._norm(params["norm2"], x + self._transform(params, x, train, keys)), state
        except Exception as error:
            clear = _checks.bad_params(self, params, error)
            if clear is error:
                raise
            raise clear from error

    def _norm(self, params: Params, x: Any) -> Any:
        return primitives.layer_norm(x, params["weight"], params["bias"], eps=self.eps)

    def _attend(self, params: Params, x: Any, train: bool, keys: tuple[Key | None, ...]) -> Any:
        y = _attend(params["self_attn"], x, self.heads, self.causal, bias=True)
        return drop(self, y, self.dropout, train, keys[0])

    def _transform(self, params: Params, x: Any, train: bool, keys: tuple[Key | None, ...]) -> Any:
        first, second = params["linear1"], params["linear2"]
        y = _ACTIVATIONS[self.activation](primitives.linear(x, first["weight"], first["bias"]))
        y = drop(self, y, self.dropout, train, keys[1])
        return drop(self, primitives.linear(y, second["weight"], second["bias"]), self.dropout, train, keys[2])

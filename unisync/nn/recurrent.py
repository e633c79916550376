"""Recurrent layers, with torch's gate order and parameter names; inputs are (N, L, C)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, final

from unisync._dispatch import namespace
from unisync.errors import unknown
from unisync.functional.random import Key
from unisync.nn import _checks, initializers
from unisync.nn.layer import Layer, Params

Output = Literal["sequence", "last"]


@final
@dataclass(frozen=True, repr=False)
class LSTM(Layer):
    """Long short-term memory (Hochreiter & Schmidhuber 1997), of one or more layers, from a zero state.

    Params as torch's, per layer k: weight_ih_lk (4·hidden, in), weight_hh_lk (4·hidden, hidden), bias_ih_lk and
    bias_hh_lk (4·hidden,), with the gates in the order input, forget, cell, output; all first drawn from
    U(−1/√hidden, 1/√hidden).

    Args:
        in_features: the length of the input's last axis.
        hidden: the length of the output's last axis.
        layers: how many layers, each fed with the outputs of the one before.
        output: "sequence" for the top layer's output at every position, (N, L, hidden); "last" for that at the last
            one, (N, hidden).
        bias: whether there are biases.

    Example:
        >>> layer = us.nn.LSTM(3, 5, output="last")
        >>> params, _ = layer.init(0)
        >>> layer(params, us.ones((2, 7, 3))).shape
        (2, 5)
    """

    in_features: int
    hidden: int
    layers: int = 1
    output: Output = "sequence"
    bias: bool = True

    def __post_init__(self) -> None:
        _check_recurrent(self)

    def init_params(self, key: Key) -> Params:
        return _recurrent_params(self, key, 4)

    def forward(self, params: Params, x: Any) -> Any:
        return _run(self, params, x, self._layer)

    def _layer(self, m: Any, x: Any, params: Params, k: int) -> tuple[Any, Any]:
        """One layer over time-major x: the last output, and all."""
        n, weight = self.hidden, params[f"weight_hh_l{k}"]
        bias = params[f"bias_ih_l{k}"] + params[f"bias_hh_l{k}"] if self.bias else None
        projected = m.linear(x, params[f"weight_ih_l{k}"], bias)

        def step(carry: tuple[Any, Any], inputs: Any) -> tuple[tuple[Any, Any], Any]:
            h, c = carry
            gates = inputs + m.linear(h, weight)
            opened = m.sigmoid(gates[:, : 2 * n])
            c = opened[:, n:] * c + opened[:, :n] * m.tanh(gates[:, 2 * n : 3 * n])
            h = m.sigmoid(gates[:, 3 * n :]) * m.tanh(c)
            return (h, c), h

        zeros = m.zeros_like(projected[0, :, :n])
        (last, _), every = m.scan(step, (zeros, zeros), projected)
        return last, every


@final
@dataclass(frozen=True, repr=False)
class GRU(Layer):
    """Gated recurrent units (Cho et al. 2014), of one or more layers, from a zero state.

    The reset gate acts after the recurrent product, as in torch and cuDNN: n = tanh(W x + b + r · (U h + c)).

    Params as torch's, per layer k: weight_ih_lk (3·hidden, in), weight_hh_lk (3·hidden, hidden), bias_ih_lk and
    bias_hh_lk (3·hidden,), with the gates in the order reset, update, new; all first drawn from
    U(−1/√hidden, 1/√hidden).

    Args:
        in_features: the length of the input's last axis.
        hidden: the length of the output's last axis.
        layers: how many layers, each fed with the outputs of the one before.
        output: "sequence" for the top layer's output at every position, (N, L, hidden); "last" for that at the last
            one, (N, hidden).
        bias: whether there are biases.

    Example:
        >>> layer = us.nn.GRU(3, 5)
        >>> params, _ = layer.init(0)
        >>> layer(params, us.ones((2, 7, 3))).shape
        (2, 7, 5)
    """

    in_features: int
    hidden: int
    layers: int = 1
    output: Output = "sequence"
    bias: bool = True

    def __post_init__(self) -> None:
        _check_recurrent(self)

    def init_params(self, key: Key) -> Params:
        return _recurrent_params(self, key, 3)

    def forward(self, params: Params, x: Any) -> Any:
        return _run(self, params, x, self._layer)

    def _layer(self, m: Any, x: Any, params: Params, k: int) -> tuple[Any, Any]:
        """One layer over time-major x: the last output, and all."""
        n, weight = self.hidden, params[f"weight_hh_l{k}"]
        bias = params[f"bias_hh_l{k}"] if self.bias else None
        projected = m.linear(x, params[f"weight_ih_l{k}"], params[f"bias_ih_l{k}"] if self.bias else None)

        def step(h: Any, inputs: Any) -> tuple[Any, Any]:
            recurrent = m.linear(h, weight, bias)
            opened = m.sigmoid(inputs[:, : 2 * n] + recurrent[:, : 2 * n])
            new = m.tanh(inputs[:, 2 * n :] + opened[:, :n] * recurrent[:, 2 * n :])
            h = new + opened[:, n:] * (h - new)
            return h, h

        return m.scan(step, m.zeros_like(projected[0, :, :n]), projected)


def _check_recurrent(layer: Any) -> None:
    _checks.sizes(layer, in_features=layer.in_features, hidden=layer.hidden, layers=layer.layers)
    if layer.output not in ("sequence", "last"):
        raise unknown("output", layer.output, ("sequence", "last"))


def _recurrent_params(layer: Any, key: Key, gates: int) -> Params:
    draw, bound, rows = key.generator(), 1.0 / math.sqrt(layer.hidden), gates * layer.hidden
    params = {}
    for k in range(layer.layers):
        columns = layer.in_features if k == 0 else layer.hidden
        params[f"weight_ih_l{k}"] = initializers.uniform(draw, (rows, columns), bound)
        params[f"weight_hh_l{k}"] = initializers.uniform(draw, (rows, layer.hidden), bound)
        if layer.bias:
            params[f"bias_ih_l{k}"] = initializers.uniform(draw, (rows,), bound)
            params[f"bias_hh_l{k}"] = initializers.uniform(draw, (rows,), bound)
    return params


def _run(layer: Any, params: Params, x: Any, one: Callable[..., tuple[Any, Any]]) -> Any:
    expected = f"(N, L, {layer.in_features})"
    _checks.rank(layer, x, 3, expected, "x[..., None], if the feature axis is missing")
    _checks.axis_size(layer, x, -1, layer.in_features, expected)
    m = namespace(x, params["weight_ih_l0"])
    every, last = m.permute_dims(x, (1, 0, 2)), None
    for k in range(layer.layers):
        last, every = one(m, every, params, k)
    return last if layer.output == "last" else m.permute_dims(every, (1, 0, 2))

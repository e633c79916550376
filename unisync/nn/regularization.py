"""Layers that act in training only, against overfitting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from unisync.errors import ArgumentError
from unisync.functional import nn as primitives
from unisync.functional.random import Key
from unisync.nn import _checks
from unisync.nn.layer import Layer, Params, State


@final
@dataclass(frozen=True, repr=False)
class Dropout(Layer):
    """In training, sets elements to zero at random and scales the rest by 1 / (1 − rate); else the identity.

    The draws are the backend's own: reproducible from the key on one backend, different between backends.

    Args:
        rate: the probability of an element to become zero, in [0, 1].

    Raises:
        ArgumentError: in training, no key was given.

    Example:
        >>> layer = us.nn.Dropout(0.5)
        >>> layer({}, us.ones(3))
        array([1., 1., 1.], dtype=float32)
        >>> y, _ = layer.apply({}, {}, us.ones(1000), train=True, key=us.random.Key(0))
        >>> float(us.max(y))
        2.0
    """

    rate: float

    def __post_init__(self) -> None:
        _checks.fraction(self, rate=self.rate)

    def apply(
        self, params: Params, state: State, x: Any, train: bool = False, key: Key | None = None
    ) -> tuple[Any, State]:
        return drop(self, x, self.rate, train, key), state


def drop(layer: Layer, x: Any, rate: float, train: bool, key: Key | None) -> Any:
    """x with dropout if in training.

    Raises:
        ArgumentError: in training, no key was given; names the layer.
    """
    if not train or rate == 0.0:
        return x
    if key is None:
        raise _checks.layer_error(
            ArgumentError,
            layer,
            "`key` must be given in training, got None: dropout needs a source of randomness. "
            "Try: model.apply(params, state, x, train=True, key=us.random.Key(0)).",
        )
    return primitives.dropout(x, rate, key)

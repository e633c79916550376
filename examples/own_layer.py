"""A layer of your own, in a model for the command line.

    unisync train examples/own_layer.py:model --data digits --backend torch

The function gets what it asks for of `input_shape`, `outputs` and `data`, and returns a model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import unisync as us


@dataclass(frozen=True)
class Scale(us.nn.Layer):
    """Multiplies each feature by a learned number."""

    features: int

    def init_params(self, key):
        return {"scale": np.ones(self.features)}

    def forward(self, params, x):
        return x * params["scale"]


def model(input_shape: tuple[int, ...], outputs: int) -> us.nn.Sequential:
    """An mlp with a Scale in front."""
    features = math.prod(input_shape)
    return us.nn.Sequential(
        [
            us.nn.Flatten(),
            Scale(features),
            us.nn.Linear(features, 64),
            us.nn.ReLU(),
            us.nn.Linear(64, outputs),
        ]
    )

"""Keras 3 on the backend of KERAS_BACKEND: the same models from its layers, compiled, one `train_on_batch` per step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers

from benchmarks.jobs import BLOCKS, HEADS, LENGTH, VOCABULARY, WIDTH, Job


class Position(layers.Layer):
    """Adds a learned vector per position."""

    def build(self, shape: Any) -> None:
        self.table = self.add_weight(shape=(LENGTH, WIDTH), initializer="zeros")

    def call(self, x: Any) -> Any:
        return x + self.table


def transformer() -> Any:
    """The character model."""
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = Position()(layers.Embedding(VOCABULARY, WIDTH)(inputs))
    for _ in range(BLOCKS):
        h = layers.LayerNormalization(epsilon=1e-5)(x)
        x = x + layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(h, h, use_causal_mask=True)
        h = layers.Dense(4 * WIDTH, activation="gelu")(layers.LayerNormalization(epsilon=1e-5)(x))
        x = x + layers.Dense(WIDTH)(h)
    return keras.Model(inputs, layers.Dense(VOCABULARY)(layers.LayerNormalization(epsilon=1e-5)(x)))


def model_of(job: Job) -> Any:
    """The job's model as Keras users write it."""
    if job.model == "transformer":
        return transformer()
    if job.model == "mlp":
        body = [layers.Flatten(), layers.Dense(128, "relu"), layers.Dense(128, "relu")]
    else:
        body = [
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPool2D(), layers.Flatten(), layers.Dense(64, "relu"),
        ]  # fmt: skip
    return keras.Sequential([keras.Input((28, 28, 1)), *body, layers.Dense(10)])


def make(job: Job) -> Callable[[np.ndarray, np.ndarray], float]:
    """The training step."""
    model = model_of(job)
    if job.optimizer == "sgd":
        optimizer: Any = keras.optimizers.SGD(job.learning_rate, job.momentum)
    else:
        optimizer = keras.optimizers.Adam(job.learning_rate)
    model.compile(optimizer=optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return lambda x, y: float(model.train_on_batch(x, y))

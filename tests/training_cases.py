"""What the tests of training over replicas and over processes train: models, data, and tolerances."""

from __future__ import annotations

import numpy as np

import unisync as us

DRAWS = np.random.default_rng(7)
IMAGES = DRAWS.normal(size=(53, 8, 8, 1)).astype(np.float32)
LABELS = DRAWS.integers(0, 5, 53)
TOKENS = DRAWS.integers(0, 11, (24, 6))


def mlp(*more):
    return us.nn.Sequential([us.nn.Flatten(), us.nn.Linear(64, 16), *more, us.nn.Tanh(), us.nn.Linear(16, 5)])


def cnn():
    return us.nn.Sequential(
        [us.nn.Conv2d(1, 4, 3), us.nn.ReLU(), us.nn.MaxPool2d(2), us.nn.Flatten(), us.nn.Linear(36, 5)]
    )


def transformer():
    return us.nn.Sequential(
        [us.nn.Embedding(11, 8), us.nn.PositionalEmbedding(6, 8), us.nn.TransformerBlock(8, 2, causal=True),
         us.nn.Linear(8, 11)]
    )  # fmt: skip


def make(model, optimizer=None, **options):
    options = {"loss": us.losses.softmax_cross_entropy, **options}
    return us.parallelize(model, optimizer=optimizer or us.optim.sgd(0.05, momentum=0.9), **options)


CASES = {  # name → (how to make the trainer, data, tolerance)
    "mlp-sgd": (lambda: make(mlp(), dtype="float64"), (IMAGES, LABELS), 1e-10),
    "mlp-adam": (lambda: make(mlp(), us.optim.adam(1e-2), dtype="float64"), (IMAGES, LABELS), 1e-10),
    "cnn": (lambda: make(cnn()), (IMAGES, LABELS), 1e-4),
    "transformer": (lambda: make(transformer()), (TOKENS, np.roll(TOKENS, -1, axis=1)), 1e-4),
}

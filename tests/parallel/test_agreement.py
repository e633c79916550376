"""The promise that the backends agree: the losses of fifty steps of a model, on each backend against NumPy's."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import unisync as us
from unisync.cli.models import build_model
from unisync.data import Dataset

RNG = np.random.default_rng(7)
IMAGES, LABELS = RNG.random((32, 8, 8, 1), np.float32), RNG.integers(0, 10, 32)
TEXT, NEXT = RNG.integers(0, 12, (8, 16)), RNG.integers(0, 12, (8, 16))

CASES = {  # model → (kind, x, y, optimizer, dtype, relative tolerance)
    "cnn": ("image", IMAGES, LABELS, us.optim.sgd(0.02, momentum=0.9), us.float32, 1e-4),
    "transformer": ("text", TEXT, NEXT, us.optim.sgd(0.02, momentum=0.9), us.float32, 1e-4),
    "mlp": ("image", IMAGES, LABELS, us.optim.adam(1e-3), us.float64, 1e-9),
}


@functools.cache
def losses(backend: str, model: str) -> np.ndarray:
    kind, x, y, optimizer, dtype, _ = CASES[model]
    data = Dataset("generated", kind, x, y, x, y, classes=tuple("abcdefghijkl")[: 12 if kind == "text" else 10])
    with us.backend(backend):
        trainer = us.parallelize(
            build_model(model, data), loss=us.losses.softmax_cross_entropy, optimizer=optimizer, dtype=dtype
        )
        return np.array([trainer.step((x, y)).loss for _ in range(50)])


@pytest.mark.parametrize("model", CASES)
def test_fifty_steps_agree_with_numpy(backend, model):
    found, expected = losses(backend, model), losses("numpy", model)
    assert expected[-1] < expected[0]
    np.testing.assert_allclose(found, expected, rtol=CASES[model][-1])

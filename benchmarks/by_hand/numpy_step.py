"""NumPy: the derivatives of an mlp written out, with in-place updates."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from benchmarks.jobs import Job

SIZES = (784, 512, 512, 10)


def make(job: Job) -> Callable[[np.ndarray, np.ndarray], float]:
    """The training step of a 784-512-512-10 network."""
    rng = np.random.default_rng(0)
    pairs = list(itertools.pairwise(SIZES))
    weights = [rng.uniform(-(i**-0.5), i**-0.5, (i, o)).astype(np.float32) for i, o in pairs]
    biases = [np.zeros(o, np.float32) for _, o in pairs]
    weight_momenta = [np.zeros_like(w) for w in weights]
    bias_momenta = [np.zeros_like(b) for b in biases]
    lr, momentum = np.float32(job.learning_rate), np.float32(job.momentum)

    def apply(p: np.ndarray, m: np.ndarray, g: np.ndarray) -> None:
        m *= momentum
        m += g
        p -= lr * m

    def step(x: np.ndarray, y: np.ndarray) -> float:
        x = x.reshape(len(x), -1)
        h1 = np.maximum(x @ weights[0] + biases[0], 0)
        h2 = np.maximum(h1 @ weights[1] + biases[1], 0)
        logits = h2 @ weights[2] + biases[2]
        logits -= logits.max(1, keepdims=True)
        probabilities = np.exp(logits)
        total = probabilities.sum(1, keepdims=True)
        rows = np.arange(len(y))
        loss = float((np.log(total[:, 0]) - logits[rows, y]).mean())
        probabilities /= total
        probabilities[rows, y] -= 1
        d3 = probabilities / np.float32(len(y))
        d2 = (d3 @ weights[2].T) * (h2 > 0)
        d1 = (d2 @ weights[1].T) * (h1 > 0)
        for i, (inputs, d) in enumerate(((x, d1), (h1, d2), (h2, d3))):
            apply(weights[i], weight_momenta[i], inputs.T @ d)
            apply(biases[i], bias_momenta[i], d.sum(0))
        return loss

    return step

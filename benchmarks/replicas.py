"""A training step of two replicas against one of one replica, with the same global batch and one math thread each.

The model is bound by its matrix products, so two replicas on two free cores should take little more than half as long.
On jax and TensorFlow one replica uses all cores already; there the figures are only reported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import numpy as np

import unisync as us
from benchmarks import each
from benchmarks.paired import compare, show
from unisync import losses

HIDDEN, BATCH, ROUNDS, REPLICAS = 1024, 512, 40, 2
MAX_RATIO = {"numpy": 0.65, "torch": 0.65}


def trainer() -> us.Trainer:
    """A trainer in the current world."""
    nn = us.nn
    model = nn.Sequential(
        [nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10)]
    )
    return us.parallelize(model, loss=losses.softmax_cross_entropy, optimizer=us.optim.sgd(0.01, momentum=0.9))


def run(backend: str) -> None:
    """Measure one backend in this process and print its table."""
    us.set_backend(backend)
    draws = np.random.default_rng(0)
    batch = draws.normal(size=(BATCH, HIDDEN)).astype(np.float32), draws.integers(0, 10, BATCH)
    one = trainer()
    with us.init_distributed(replicas=REPLICAS):
        several = trainer()
        steps: dict[str, Callable[[], object]] = {
            "1 replica": partial(loss_of, one, batch),
            f"{REPLICAS} replicas": partial(loss_of, several, batch),
        }
        first = loss_of(one, batch), loss_of(several, batch)
        assert np.isclose(*first, rtol=1e-5), f"{backend}: the replicas compute something else, {first}"
        found = compare("1 replica", steps, rounds=ROUNDS)
    show(f"{backend}, mlp of width {HIDDEN}, batch {BATCH}, {REPLICAS} replicas", found)
    limit = MAX_RATIO.get(backend)
    if limit is not None:
        # Not `holds`, which forgives any difference below 0: a limit below 1 asks for one.
        several = next(c for c in found if c.name == f"{REPLICAS} replicas")
        verdict = "holds" if several.ratio_low <= limit else "DOES NOT HOLD"
        print(f"\nAt most {limit} of the one-replica step: {verdict}.")


def loss_of(made: us.Trainer, batch: tuple[np.ndarray, np.ndarray]) -> float:
    """One step, and its loss once it is there."""
    return made.step(batch).loss


def main() -> None:
    """Measure every installed backend."""
    # The trainer of one replica makes the first array, after which jax and TensorFlow make no more devices.
    devices = str(REPLICAS)
    each.backend("replicas", "Replicas in one process", UNISYNC_JAX_DEVICES=devices, UNISYNC_TF_DEVICES=devices)


if __name__ == "__main__":
    run(sys.argv[1]) if len(sys.argv) > 1 else main()

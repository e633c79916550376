"""A training step of unisync against the same step written by hand, and against Keras 3, on every backend.

Each backend runs in a process of its own. The steps take NumPy batches and return a loss that has arrived; they are
interleaved in random order, and the hand-written step takes part twice, as the control. That is a second instance with
params of its own: one that runs twice as often as the others finds more in the caches (29 µs of 400 for jax's mlp).

Training is one step after the other. Where a step is so short that it matters what ran before it (the mlp), a
candidate therefore takes 20 steps in a row each round, and their mean counts: after a single step of another
candidate, what is timed would be how long Python's own code and objects take to come back into the caches.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from functools import partial
from typing import Any

import unisync as us
from benchmarks.jobs import Job, job
from benchmarks.paired import CONTROL, compare, show
from unisync import _dispatch, losses
from unisync.backends import installed

ROUNDS = {"mlp": 100, "cnn": 150, "transformer": 60}
CALLS = {"mlp": 20}  # steps in a row
JOBS = {"numpy": ("mlp",)}  # the hand-derived NumPy step exists for the mlp alone
NUMPY_BATCH = 256


def our_step(task: Job) -> Any:
    """The trainer's step, from NumPy batch to loss."""
    model = task.build() if us.current_backend() != "numpy" else wide_mlp()
    # Without metrics, which the other steps do not compute either.
    trainer = us.parallelize(model, loss=losses.softmax_cross_entropy, optimizer=task.transform(), metrics={})
    return lambda x, y: trainer.step((x, y)).loss


def wide_mlp() -> us.nn.Sequential:
    """The network of the hand-derived NumPy step."""
    nn = us.nn
    return nn.Sequential(
        [nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    )


def run(backend: str) -> None:
    """Measure one backend in this process and print its tables."""
    us.set_backend(backend)
    for model in JOBS.get(backend, ("mlp", "cnn", "transformer")):
        task = job(model, NUMPY_BATCH if backend == "numpy" else 64)
        make = importlib.import_module(f"benchmarks.by_hand.{backend}_step").make
        steps = {"by hand": make(task), "unisync": our_step(task), CONTROL: make(task)}
        if backend != "numpy":
            steps["keras"] = importlib.import_module("benchmarks.by_hand.keras_step").make(task)
        x, y = task.batch()
        for step in steps.values():
            first = step(x, y)
            for _ in range(10):
                last = step(x, y)
            assert last < first, f"{backend}, {model}: a step that does not train is not worth timing"
        candidates = {name: partial(step, x, y) for name, step in steps.items()}
        measured = compare("by hand", candidates, rounds=ROUNDS[model], calls=CALLS.get(model, 1))
        show(f"{backend}, {model}, batch {task.batch_size}", measured)


def main() -> None:
    """Measure every installed backend, each in its own process."""
    print("\n## Training step")
    for name in _dispatch.BACKENDS:
        if installed(name):
            environment = {**os.environ, "KERAS_BACKEND": name, "TF_CPP_MIN_LOG_LEVEL": "1"}
            subprocess.run([sys.executable, "-m", "benchmarks.training_step", name], env=environment, check=True)


if __name__ == "__main__":
    run(sys.argv[1]) if len(sys.argv) > 1 else main()

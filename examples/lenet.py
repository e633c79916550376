"""The classic small convolutional network on scans of digits, on any backend.

    python examples/lenet.py --backend jax

conv 1→20 (5 × 5), pool, conv 20→50 (5 × 5), pool, linear 800→500, linear 500→10, on images of 28 × 28. The scans that
scikit-learn ships are 8 × 8: each pixel becomes 3 × 3, with a margin of two.
"""

from __future__ import annotations

import argparse

import numpy as np

import unisync as us


def model() -> us.nn.Sequential:
    """The network; `unisync train examples/lenet.py:model` finds it by this name (its data must be 28 × 28 × 1)."""
    nn = us.nn
    return nn.Sequential(
        [
            nn.Conv2d(1, 20, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(20, 50, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(800, 500),
            nn.ReLU(),
            nn.Linear(500, 10),
        ]
    )


def enlarge(x: np.ndarray) -> np.ndarray:
    """Images (N, 8, 8, 1) as (N, 28, 28, 1)."""
    return np.pad(x.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2), (0, 0)))


def main() -> None:
    """Train and print one line per epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="numpy")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()

    us.set_backend(args.backend)
    data = us.data.digits()
    trainer = us.parallelize(model(), loss=us.losses.softmax_cross_entropy, optimizer=us.optim.sgd(0.01, momentum=0.9))
    trainer.train(
        (enlarge(data.x_train), data.y_train),
        epochs=args.epochs,
        batch_size=64,
        validation=(enlarge(data.x_test), data.y_test),
    )


if __name__ == "__main__":
    main()

"""Eager PyTorch: an nn.Module in its own NCHW layout, autograd, and torch.optim with multi-tensor updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.jobs import BLOCKS, HEADS, LENGTH, VOCABULARY, WIDTH, Job


class Block(nn.Module):
    """A pre-norm transformer block with torch's fused attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """A character model."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.embedding(x) + self.position)))


def module(job: Job) -> nn.Module:
    """The job's model as torch users write it."""
    if job.model == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
        )
    if job.model == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(6272, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip
    return Transformer()


def make(job: Job) -> Callable[[np.ndarray, np.ndarray], float]:
    """The training step."""
    model = module(job)
    if job.optimizer == "sgd":
        optimizer: Any = torch.optim.SGD(model.parameters(), job.learning_rate, job.momentum, foreach=True)
    else:
        optimizer = torch.optim.Adam(model.parameters(), job.learning_rate, foreach=True)

    def step(x: np.ndarray, y: np.ndarray) -> float:
        inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
        if inputs.ndim == 4:
            inputs = inputs.permute(0, 3, 1, 2)
        optimizer.zero_grad(set_to_none=True)
        outputs = model(inputs)
        loss = F.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step

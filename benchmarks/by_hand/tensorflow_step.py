"""TensorFlow: one tf.function over tf.Variables that are updated in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.jobs import BLOCKS, HEADS, LENGTH, VOCABULARY, WIDTH, Job


class Weights:
    """Makes variables and remembers them."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.all: list[tf.Variable] = []

    def variable(self, value: Any) -> tf.Variable:
        self.all.append(tf.Variable(np.asarray(value, np.float32)))
        return self.all[-1]

    def dense(self, inputs: int, outputs: int) -> tuple[tf.Variable, tf.Variable]:
        bound = inputs**-0.5
        return self.variable(self.rng.uniform(-bound, bound, (inputs, outputs))), self.variable(np.zeros(outputs))

    def conv(self, inputs: int, outputs: int) -> tuple[tf.Variable, tf.Variable]:
        bound = (9 * inputs) ** -0.5
        kernel = self.rng.uniform(-bound, bound, (3, 3, inputs, outputs))
        return self.variable(kernel), self.variable(np.zeros(outputs))

    def norm(self) -> tuple[tf.Variable, tf.Variable]:
        return self.variable(np.ones(WIDTH)), self.variable(np.zeros(WIDTH))


def linear(p: Any, x: tf.Tensor) -> tf.Tensor:
    flat = tf.reshape(x, (-1, x.shape[-1])) if x.shape.rank > 2 else x
    y = tf.nn.bias_add(tf.matmul(flat, p[0]), p[1])
    return tf.reshape(y, (*x.shape[:-1], y.shape[-1])) if x.shape.rank > 2 else y


def layer_norm(p: Any, x: tf.Tensor) -> tf.Tensor:
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
    return centred * tf.math.rsqrt(variance + 1e-5) * p[0] + p[1]


def conv(p: Any, x: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, p[0], 1, "SAME"), p[1]))


def classifier(w: Weights, job: Job) -> Callable[[tf.Tensor], tf.Tensor]:
    """The mlp or the cnn."""
    convs = [w.conv(1, 16), w.conv(16, 32)] if job.model == "cnn" else []
    sizes = ((6272, 64), (64, 10)) if job.model == "cnn" else ((784, 128), (128, 128), (128, 10))
    layers = [w.dense(*s) for s in sizes]

    def forward(x: tf.Tensor) -> tf.Tensor:
        for p in convs:
            x = conv(p, x)
        if convs:
            x = tf.nn.max_pool2d(x, 2, 2, "VALID")
        x = tf.reshape(x, (x.shape[0], -1))
        for p in layers[:-1]:
            x = tf.nn.relu(linear(p, x))
        return linear(layers[-1], x)

    return forward


def transformer(w: Weights) -> Callable[[tf.Tensor], tf.Tensor]:
    """The character model."""
    embedding = w.variable(w.rng.normal(size=(VOCABULARY, WIDTH)))
    position = w.variable(np.zeros((LENGTH, WIDTH)))
    blocks = [
        (
            w.norm(),
            w.dense(WIDTH, 3 * WIDTH),
            w.dense(WIDTH, WIDTH),
            w.norm(),
            w.dense(WIDTH, 4 * WIDTH),
            w.dense(4 * WIDTH, WIDTH),
        )
        for _ in range(BLOCKS)
    ]
    last_norm, head = w.norm(), w.dense(WIDTH, VOCABULARY)
    mask = tf.constant(np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1))

    def block(p: Any, x: tf.Tensor) -> tf.Tensor:
        norm1, qkv, out, norm2, up, down = p
        n, t, _ = x.shape
        heads = tf.reshape(linear(qkv, layer_norm(norm1, x)), (n, t, 3, HEADS, WIDTH // HEADS))
        q, k, v = tf.unstack(tf.transpose(heads, (2, 0, 3, 1, 4)))
        scores = tf.matmul(q, k, transpose_b=True) * (WIDTH // HEADS) ** -0.5 + mask
        mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), (0, 2, 1, 3))
        x = x + linear(out, tf.reshape(mixed, (n, t, WIDTH)))
        return x + linear(down, tf.nn.gelu(linear(up, layer_norm(norm2, x)), approximate=False))

    def forward(x: tf.Tensor) -> tf.Tensor:
        x = tf.gather(embedding, x) + position
        for p in blocks:
            x = block(p, x)
        return linear(head, layer_norm(last_norm, x))

    return forward


def make(job: Job) -> Callable[[np.ndarray, np.ndarray], float]:
    """The training step."""
    w = Weights()
    forward = transformer(w) if job.model == "transformer" else classifier(w, job)
    first = [tf.Variable(tf.zeros_like(v)) for v in w.all]
    second = [tf.Variable(tf.zeros_like(v)) for v in w.all]
    count = tf.Variable(0.0)
    lr, b1, b2, eps = job.learning_rate, 0.9, 0.999, 1e-8

    @tf.function(autograph=False)
    def update(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, forward(x)))
        grads = [tf.convert_to_tensor(g) for g in tape.gradient(loss, w.all)]
        if job.optimizer == "sgd":
            for v, m, g in zip(w.all, first, grads, strict=True):
                v.assign_sub(lr * m.assign(job.momentum * m + g))
            return loss
        t = count.assign_add(1.0)
        rate = lr * tf.sqrt(1 - b2**t) / (1 - b1**t)
        for v, m, s, g in zip(w.all, first, second, grads, strict=True):
            m_new, s_new = m.assign(b1 * m + (1 - b1) * g), s.assign(b2 * s + (1 - b2) * tf.square(g))
            v.assign_sub(rate * m_new / (tf.sqrt(s_new) + eps))
        return loss

    def step(x: np.ndarray, y: np.ndarray) -> float:
        return float(update(tf.convert_to_tensor(x), tf.convert_to_tensor(y)))

    return step

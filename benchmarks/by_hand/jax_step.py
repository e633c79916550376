"""JAX: one jitted function from params to params, with donated buffers and XLA's own layouts (HWIO weights)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.jobs import BLOCKS, HEADS, LENGTH, VOCABULARY, WIDTH, Job


def dense(rng: np.random.Generator, inputs: int, outputs: int) -> dict[str, Any]:
    bound = inputs**-0.5
    return {
        "w": jnp.asarray(rng.uniform(-bound, bound, (inputs, outputs)), jnp.float32),
        "b": jnp.zeros(outputs, jnp.float32),
    }


def norm() -> dict[str, Any]:
    return {"w": jnp.ones(WIDTH, jnp.float32), "b": jnp.zeros(WIDTH, jnp.float32)}


def init(job: Job) -> Any:
    """The model's parameters."""
    rng = np.random.default_rng(0)
    if job.model == "mlp":
        return [dense(rng, *sizes) for sizes in ((784, 128), (128, 128), (128, 10))]
    if job.model == "cnn":
        convs = []
        for inputs, outputs in ((1, 16), (16, 32)):
            layer = dense(rng, 9 * inputs, outputs)
            convs.append({"w": layer["w"].reshape(3, 3, inputs, outputs), "b": layer["b"]})
        return [*convs, dense(rng, 6272, 64), dense(rng, 64, 10)]
    blocks = [
        {
            "norm1": norm(), "norm2": norm(), "qkv": dense(rng, WIDTH, 3 * WIDTH), "out": dense(rng, WIDTH, WIDTH),
            "up": dense(rng, WIDTH, 4 * WIDTH), "down": dense(rng, 4 * WIDTH, WIDTH),
        }
        for _ in range(BLOCKS)
    ]  # fmt: skip
    return {
        "embedding": jnp.asarray(rng.normal(size=(VOCABULARY, WIDTH)), jnp.float32),
        "position": jnp.zeros((LENGTH, WIDTH), jnp.float32),
        "blocks": blocks,
        "norm": norm(),
        "head": dense(rng, WIDTH, VOCABULARY),
    }


def linear(p: Any, x: Any) -> Any:
    return x @ p["w"] + p["b"]


def layer_norm(p: Any, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * p["w"] + p["b"]


def block(p: Any, x: Any) -> Any:
    n, t, _ = x.shape
    q, k, v = jnp.moveaxis(linear(p["qkv"], layer_norm(p["norm1"], x)).reshape(n, t, 3, HEADS, -1), 2, 0)
    mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    x = x + linear(p["out"], mixed.reshape(n, t, WIDTH))
    return x + linear(p["down"], jax.nn.gelu(linear(p["up"], layer_norm(p["norm2"], x)), approximate=False))


def conv(p: Any, x: Any) -> Any:
    x = jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jax.nn.relu(x + p["b"])


def pool(x: Any) -> Any:
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))


def forward(job: Job, params: Any, x: Any) -> Any:
    """The model's logits."""
    if job.model == "transformer":
        x = params["embedding"][x] + params["position"]
        for p in params["blocks"]:
            x = block(p, x)
        return linear(params["head"], layer_norm(params["norm"], x))
    if job.model == "cnn":
        x = pool(conv(params[1], conv(params[0], x)))
        params = params[2:]
    x = x.reshape(len(x), -1)
    for p in params[:-1]:
        x = jax.nn.relu(linear(p, x))
    return linear(params[-1], x)


def make(job: Job) -> Callable[[np.ndarray, np.ndarray], float]:
    """The training step."""
    params = init(job)
    zeros = jax.tree.map(jnp.zeros_like, params)
    lr, b1, b2, eps = job.learning_rate, 0.9, 0.999, 1e-8
    state: Any = zeros if job.optimizer == "sgd" else (zeros, jax.tree.map(jnp.zeros_like, params), jnp.int32(0))

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        logits = forward(job, params, x)
        picked = jnp.take_along_axis(logits, y[..., None], -1)[..., 0]
        return (jax.nn.logsumexp(logits, axis=-1) - picked).mean()

    def sgd(params: Any, state: Any, grads: Any) -> tuple[Any, Any]:
        state = jax.tree.map(lambda m, g: job.momentum * m + g, state, grads)
        return jax.tree.map(lambda p, m: p - lr * m, params, state), state

    def adam(params: Any, state: Any, grads: Any) -> tuple[Any, Any]:
        m, v, count = state
        count = count + 1
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
        v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
        c1, c2 = 1 - b1 ** count.astype(jnp.float32), 1 - b2 ** count.astype(jnp.float32)
        params = jax.tree.map(lambda p, m, v: p - lr * (m / c1) / (jnp.sqrt(v / c2) + eps), params, m, v)
        return params, (m, v, count)

    def update(params: Any, state: Any, x: Any, y: Any) -> tuple[Any, Any, Any]:
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        return *(sgd if job.optimizer == "sgd" else adam)(params, state, grads), loss

    compiled = jax.jit(update, donate_argnums=(0, 1))

    def step(x: np.ndarray, y: np.ndarray) -> float:
        nonlocal params, state
        params, state, loss = compiled(params, state, x, y)
        return float(loss)

    return step

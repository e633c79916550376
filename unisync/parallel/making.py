"""Making a trainer: the initial params, and the engine that trains them, by the current backend and world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unisync import _context, _dispatch
from unisync._key import Key
from unisync._per_replica import PerReplica
from unisync._types import Tree
from unisync.errors import ArgumentError, ArgumentTypeError, StateError
from unisync.functional.gradients import backend_of
from unisync.parallel.engine import Engine
from unisync.parallel.metrics import Metric
from unisync.parallel.replicated import ReplicatedEngine
from unisync.parallel.trainer import Trainer


def parallelize(
    model: Any,
    *,
    loss: Callable[..., Any] | None = None,
    optimizer: Any = None,
    metrics: Mapping[str, Metric] | None = None,
    seed: int = 0,
    params: Tree = None,
    state: Tree = None,
    dtype: Any = None,
    jit: bool = True,
    torch_compile: bool = False,
) -> Trainer:
    """A trainer of the model on the current backend (or that of `params`) and in the current world.

    In a world of several replicas (`us.init_distributed(replicas=2)` before) each replica works on its part of every
    batch, and their gradients are added up in each step: the losses are those of one replica with the whole batch. A
    batch that does not divide is filled up with rows of weight 0. If the loss does not take `weights`, each row is
    repeated equally often instead, so the loss must be a mean over the samples. `trainer.params` and `trainer.state`
    are replica 0's; the running statistics of a BatchNorm without `sync=True` are those of its part.

    Args:
        model: a `us.nn` layer, or any object with `init(key) -> (params, state)` and
            `apply(params, state, x, train, key) -> (outputs, state)`.
        loss: (outputs, targets, weights=None) → scalar, as those of `us.losses`; or (outputs, targets) → a scalar or
            one value per sample. May be set later: `trainer.loss = ...`.
        optimizer: of `us.optim`, or any object with `init` and `update`. May be set later.
        metrics: functions (outputs, targets) → one value per sample, by name. Default: accuracy if the loss is softmax
            cross entropy; `us.metrics.binary_accuracy`, as "accuracy", if it is binary cross entropy.
        seed: settles the initial params, the order of the data and what layers draw in training.
        params: params to start from, instead of those that `model.init` makes from the seed; a tree, or a PerReplica
            of trees that must be equal.
        state: the state to start from, with `params`.
        dtype: the dtype of the params that `model.init` makes; default float32.
        jit: whether to compile the step (jax, tensorflow; see `us.jit`). False is slow and easy to debug.
        torch_compile: whether to compile on torch too.

    Returns:
        Trainer.

    Example:
        >>> import numpy as np
        >>> x, y = np.random.default_rng(0).normal(size=(100, 2)), np.arange(100) % 2
        >>> trainer = us.parallelize(
        ...     us.nn.Linear(2, 2), loss=us.losses.softmax_cross_entropy, optimizer=us.optim.sgd(0.1))
        >>> history = trainer.train((x, y), epochs=2, batch_size=50, verbose=False)
        >>> trainer.steps, sorted(history[-1])
        (4, ['accuracy', 'epoch', 'loss', 'seconds'])
    """
    for name in ("init", "apply"):
        if not callable(getattr(model, name, None)):
            raise ArgumentTypeError(f"`model` must have a method {name}, got {model!r}. Try: us.nn.Sequential([...]).")
    m = _dispatch.current_namespace() if params is None else backend_of(_first(params))
    with _dispatch.backend(m.NAME):
        if params is None or state is None:
            made, first = model.init(Key(seed)) if dtype is None else model.init(Key(seed), dtype=dtype)
            params, state = made if params is None else params, first if state is None else state
    engine = _engine(m, params, state, Key(seed), jit=jit, torch_compile=torch_compile)
    trainer = Trainer(model, m, engine, seed)
    trainer.loss, trainer.optimizer, trainer.metrics = loss, optimizer, metrics
    return trainer


def _engine(m: Any, params: Tree, state: Tree, key: Key, *, jit: bool, torch_compile: bool) -> Any:
    """The engine of the current world."""
    world = _context.world()
    if world is None:
        _context.check_joined()
    if world is None or world.size == 1:
        return Engine(m, _first(params), _first(state), key, jit=jit, torch_compile=torch_compile)
    if _context.scope() is not None:
        raise StateError("us.parallelize must be called outside replicas, got a call inside us.spmd. Try: before it.")
    if world.backend != m.NAME:
        raise StateError(
            f"the params must be of the world's backend, {world.backend!r}, got {m.NAME!r}. "
            f"Try: us.set_backend({world.backend!r}), or us.init_distributed(...) after us.set_backend({m.NAME!r})."
        )
    if set(world.axes) != {"data"}:
        raise StateError(
            f"parallelize trains over replicas of the whole model, got a world with axes {world.axes}. "
            'Try: us.init_distributed(..., mode="data_parallel").'
        )
    compiles = m.jit(_probe) is not _probe
    if torch_compile or (compiles and not jit):
        name, value = ("torch_compile", True) if torch_compile else ("jit", False)
        raise ArgumentError(
            f"`{name}` must be {not value} with several replicas, got {value} with {world.size}. "
            "Try: us.init_distributed(replicas=1)."
        )
    return ReplicatedEngine(world, m, params, state, key, compiles=compiles)


def _first(values: Tree) -> Tree:
    return values[0] if isinstance(values, PerReplica) else values


def _probe(x: Any) -> Any:
    return x

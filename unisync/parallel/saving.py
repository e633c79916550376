"""A trainer as a checkpoint, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unisync import checkpoint, losses, nn
from unisync._key import Key
from unisync.errors import CheckpointError


def save(trainer: Any, path: str | Path) -> None:
    """See `Trainer.save`."""
    engine, log = trainer._engine, trainer._log
    info = {
        "backend": trainer.backend,
        "model": repr(trainer.model),
        "recipe": describe(trainer.model),
        "loss": _loss_name(trainer.loss),
        "seed": trainer.seed,
        "steps": trainer.steps,
        "epochs": trainer.epochs,
        "batches": trainer._batches,
        "sums": log.sums(),
        "history": [_plain(record) for record in trainer.history.records],
    }
    trees = {
        "params": engine.params,
        "state": engine.state,
        "optimizer_state": engine.saved_optimizer_state if trainer.optimizer is None else engine.optimizer_state,
        "step_losses": np.array(log.losses, np.float64),
    }
    engine.alone(lambda: checkpoint.write(path, trees, info))


def restore(trainer: Any, path: str | Path) -> None:
    """See `Trainer.restore`."""
    saved = checkpoint.read(path)
    try:
        trees, info = saved.trees, saved.info
        trainer._engine.restore(trees["params"], trees["state"], trees["optimizer_state"], info["steps"])
        trainer.seed, trainer.epochs, trainer._skip = info["seed"], info["epochs"], info["batches"]
        trainer._engine.set_key(Key(info["seed"]))
        trainer._log.resume([float(value) for value in trees["step_losses"]], info["sums"])
        trainer.history.records[:] = info["history"]
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{str(path)!r} is not a trainer's checkpoint ({error!r}). Try: trainer.save.") from error


def load(
    path: str | Path,
    model: Any = None,
    *,
    loss: Any = None,
    optimizer: Any = None,
    metrics: Mapping[str, Any] | None = None,
    jit: bool = True,
    torch_compile: bool = False,
) -> Any:
    """A trainer that goes on from what `trainer.save(path)` wrote, on the current backend.

    Args:
        path: the folder.
        model: the model; needed if it has layers of your own, since a checkpoint holds no code.
        loss: the loss; default the saved one, if it is of `us.losses`.
        optimizer: the optimizer, needed to train on; its saved state is put in place when it is given, now or later.
        metrics: as for `us.parallelize`.
        jit: as for `us.parallelize`.
        torch_compile: as for `us.parallelize`.

    Returns:
        Trainer.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or it does not fit the model or the optimizer.

    Example:
        >>> trainer = us.load("run1", optimizer=us.optim.adam(1e-3))  # doctest: +SKIP
        >>> trainer.train(data, epochs=2)  # doctest: +SKIP
    """
    from unisync.parallel.making import parallelize

    info = checkpoint.read(path).info
    if model is None:
        model = rebuild(info.get("recipe"), str(info.get("model")))
    if loss is None and info.get("loss") is not None:
        loss = getattr(losses, str(info["loss"]), None)
    trainer = parallelize(model, loss=loss, metrics=metrics, jit=jit, torch_compile=torch_compile)
    trainer.restore(path)
    if optimizer is not None:
        trainer.optimizer = optimizer
    return trainer


def describe(value: Any) -> Any:
    """A model of this package's layers as JSON values; None if there is a layer or a setting of another kind."""
    try:
        return _describe(value)
    except TypeError:
        return None


def rebuild(recipe: Any, text: str) -> Any:
    """The model that `describe` was given. Only this package's own layers are ever made.

    Raises:
        CheckpointError: it holds other layers.
    """
    if recipe is None:
        raise CheckpointError(
            f"the checkpoint's model has layers that unisync does not have: {text}. Try: us.load(path, model=model)."
        )
    if isinstance(recipe, list):
        return tuple(rebuild(value, text) for value in recipe)
    if not isinstance(recipe, dict):
        return recipe
    cls = getattr(nn, str(recipe.get("layer")), None)
    if not (isinstance(cls, type) and issubclass(cls, nn.Layer)):
        raise CheckpointError(f"the checkpoint names the layer {recipe.get('layer')!r}, which unisync does not have.")
    layer = object.__new__(cls)
    for name, value in recipe["settings"].items():
        object.__setattr__(layer, name, None if value is None else rebuild(value, text))
    return layer


def _describe(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [_describe(part) for part in value]
    cls = type(value)
    if isinstance(value, nn.Layer) and getattr(nn, cls.__name__, None) is cls:
        fields = dataclasses.fields(value)  # type: ignore[arg-type]
        return {"layer": cls.__name__, "settings": {f.name: _describe(getattr(value, f.name)) for f in fields}}
    raise TypeError


def _loss_name(loss: Any) -> str | None:
    name = getattr(loss, "__name__", None)
    return name if name is not None and getattr(losses, name, None) is loss else None


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as JSON values; what a callback added and JSON does not know becomes text."""
    known = (bool, int, str, type(None))
    return {
        k: v if isinstance(v, known) or (isinstance(v, float) and v - v == 0) else str(v) for k, v in record.items()
    }

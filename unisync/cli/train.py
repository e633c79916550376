"""`unisync train`: the main job. One model, one data set, one backend by flag."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

import unisync as us
from unisync import losses, optim
from unisync.cli.models import build_model, default_optimizer
from unisync.data import Dataset
from unisync.errors import ArgumentError, DataError

SCHEMA = "unisync.train/1"


def train(
    model: Annotated[str, typer.Argument(help="mlp, cnn, lstm, transformer, or path/to/file.py:function.")],
    data: Annotated[str, typer.Option(help="digits, or a FILE.npz, FILE.csv or FILE.txt.")] = "digits",
    backend: Annotated[
        str | None,
        typer.Option(help="numpy, torch, jax or tensorflow [default: UNISYNC_BACKEND, else numpy]."),
    ] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the training data.")] = 10,
    batch_size: Annotated[int, typer.Option(help="Samples per step.")] = 64,
    lr: Annotated[float | None, typer.Option(help="Learning rate [default: the model's or the optimizer's].")] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(help="sgd (momentum 0.9), adam, adamw, rmsprop, adagrad, lion or lamb [default: the model's]."),
    ] = None,
    replicas: Annotated[int | None, typer.Option(help="Replicas to train with, exactly as one would.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of initial parameters, data order and dropout.")] = 0,
    target: Annotated[str | None, typer.Option(help="The column to predict, of a CSV file.")] = None,
    save: Annotated[Path | None, typer.Option(help="Folder to write the trained model to.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="File to write the losses and the history to.")
    ] = None,
) -> None:
    """Train a model and print one line per epoch."""
    if backend is not None:
        us.set_backend(backend)
    if replicas is not None:
        us.init_distributed(replicas=replicas)
    _check_writable(json_file)
    dataset = _load(data, target)
    if optimizer is None:
        optimizer, usual = default_optimizer(model)
        lr = usual if lr is None else lr
    trainer = us.parallelize(
        build_model(model, dataset),
        loss=losses.mse if dataset.classes is None else losses.softmax_cross_entropy,
        optimizer=optim.by_name(optimizer, lr, **({"momentum": 0.9} if optimizer == "sgd" else {})),
        seed=seed,
    )
    print(
        f"{model} on {dataset.name}: {len(dataset.x_train)} samples to train on, {len(dataset.x_test)} to test on, "
        f"backend {us.current_backend()}, {optimizer}, batches of {batch_size}, seed {seed}"
    )
    history = trainer.train(
        (dataset.x_train, dataset.y_train),
        epochs=epochs,
        batch_size=batch_size,
        validation=(dataset.x_test, dataset.y_test),
    )
    if save is not None:
        trainer.save(save)
        print(f"saved to {save}")
    if json_file is not None:
        _write(json_file, record(model, data, seed, history))


def record(model: str, data: str, seed: int, history: Any) -> dict[str, Any]:
    """What --json writes: the loss of each step and, per epoch, losses, metrics and seconds."""
    return {
        "schema": SCHEMA,
        "backend": us.current_backend(),
        "model": model,
        "data": data,
        "seed": seed,
        "step_losses": list(history.step_losses),
        "history": [dict(epoch) for epoch in history],
    }


def _load(data: str, target: str | None) -> Dataset:
    is_csv = data.lower().endswith(".csv")
    if target is not None and not is_csv:
        raise ArgumentError(f"`--target` goes with a .csv file, got {data}. Try: leave it out.")
    if is_csv and target is None:
        raise ArgumentError(f"`--target` must name the column of {data} to predict. Try: --target COLUMN.")
    return us.data.load(data, **({"target": target} if is_csv else {}))


def _check_writable(file: Path | None) -> None:
    """Fail before hours of training, not after."""
    if file is not None and not (file.parent.is_dir() and os.access(file.parent, os.W_OK)):
        raise DataError(
            f"`--json` must be in a folder that can be written to, got {file}. Try: mkdir -p {file.parent}."
        )


def _write(file: Path, content: dict[str, Any]) -> None:
    temporary = file.with_name(f".{file.name}.tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    temporary.replace(file)

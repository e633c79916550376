"""`unisync train`: the main job. One model, one data set, one backend by flag."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

import unisync as us
from unisync import checkpoint, losses
from unisync.cli.models import build_model
from unisync.cli.optimizers import choose
from unisync.data import Dataset
from unisync.data.loader import check_size
from unisync.distributed import is_launched
from unisync.errors import ArgumentError, DataError

SCHEMA = "unisync.train/1"
_GOES_WITH = {"target": ".csv", "ignore": ".csv", "delimiter": ".csv", "length": ".txt"}


def train(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="mlp, cnn, lstm, transformer, or path/to/file.py:function.", show_default=False
        ),
    ],
    data: Annotated[str, typer.Option(metavar="DATA", help="digits, FILE.npz, FILE.csv or FILE.txt.")] = "digits",
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="What to predict; for a CSV file.", show_default=False)
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of a CSV file to leave out; repeatable.", show_default=False),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(metavar="CHARACTER", help="What stands between a CSV file's columns. [default: detected]"),
    ] = None,
    length: Annotated[
        int | None, typer.Option(metavar="N", help="Characters per window of a text. [default: 64]")
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="numpy, torch, jax or tensorflow. [default: $UNISYNC_BACKEND, else numpy]"),
    ] = None,
    epochs: Annotated[int, typer.Option(metavar="N", help="Passes over the training data.")] = 10,
    batch_size: Annotated[int, typer.Option(metavar="N", help="Samples per step.")] = 32,
    optimizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="sgd (momentum 0.9), adam, adamw, rmsprop, adagrad, lion or lamb. [default: the model's]",
        ),
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(metavar="RATE", help="First learning rate. [default: the model's or the optimizer's]"),
    ] = None,
    schedule: Annotated[
        str, typer.Option(metavar="NAME", help="cosine (down to 0 over all steps) or constant.")
    ] = "cosine",
    seed: Annotated[int, typer.Option(metavar="N", help="Settles parameters, data order and dropout.")] = 0,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write the trained model there; replaces a checkpoint there.", show_default=False
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(metavar="N", help="Replicas to train with, exactly as one would. [default: 1]"),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write losses and history there.", show_default=False),
    ] = None,
) -> None:
    """Train a model and print one line per epoch."""
    if backend is not None:
        us.set_backend(backend)
    first = True
    if replicas is not None or is_launched():
        first = us.init_distributed(replicas=replicas).process_index == 0  # one process speaks and writes for all
    _check_targets(save, json_file)
    check_size("epochs", epochs)
    check_size("batch_size", batch_size)
    dataset = _load(data, target=target, ignore=ignore, delimiter=delimiter, length=length).standardise_targets()
    chosen = choose(model, dataset, optimizer, lr, schedule)
    trainer = us.parallelize(
        build_model(model, dataset),
        loss=losses.mse if dataset.classes is None else losses.softmax_cross_entropy,
        optimizer=chosen.build(epochs * -(-len(dataset.x_train) // batch_size)),
        metrics=_metrics(dataset),
        seed=seed,
    )
    if first:
        print(
            f"{model} on {dataset.name}: {len(dataset.x_train)} samples to train on, {len(dataset.x_test)} to test on\n"
            f"backend {us.current_backend()}, {chosen}, batches of {batch_size}, seed {seed}{_about_targets(dataset)}",
            flush=True,
        )
    history = trainer.train(dataset, epochs=epochs, batch_size=batch_size)
    if save is not None:
        trainer.save(save)
        if first:
            print(f"saved to {save}")
    if json_file is not None and first:
        _write(json_file, record(model, data, seed, history))


def record(model: str, data: str, seed: int, history: us.History) -> dict[str, Any]:
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


def _load(data: str, **options: Any) -> Dataset:
    given = {name: value for name, value in options.items() if value is not None}
    suffix = Path(data).suffix.lower()
    for name in given:
        if suffix != _GOES_WITH[name]:
            raise ArgumentError(f"`--{name}` goes with a {_GOES_WITH[name]} file, got {data}. Try: leave it out.")
    if suffix == ".csv" and "target" not in given:
        raise ArgumentError(f"`--target` must name the column of {data} to predict. Try: --target COLUMN.")
    if len(given.get("delimiter", ",")) != 1:
        raise ArgumentError(f"`--delimiter` must be one character, got {given['delimiter']!r}. Try: --delimiter ';'.")
    return us.data.load(data, **given)


def _metrics(data: Dataset) -> dict[str, Any] | None:
    """Of one target that is a number: the absolute error in its own units; else the trainer's own choice."""
    if data.target_scale is None or data.target_scale.size != 1:
        return None
    scale = float(data.target_scale.item())

    def absolute_error(outputs: Any, targets: Any) -> Any:
        return us.multiply(us.abs(us.subtract(outputs, targets)), scale)

    return {"absolute_error": absolute_error}


def _about_targets(data: Dataset) -> str:
    if data.target_mean is None or data.target_scale is None:
        return ""
    if data.target_scale.size != 1:
        return "\nlosses are of the standardised targets: (y - its mean) / its standard deviation"
    mean, scale = data.target_mean.item(), data.target_scale.item()
    return (
        f"\nlosses are of the standardised target, (y - {mean:.6g}) / {scale:.6g}; "
        "absolute_error is in the target's own units"
    )


def _check_targets(save: Path | None, json_file: Path | None) -> None:
    """Fail before hours of training, not after."""
    if save is not None:
        checkpoint.check_target(save)
    if json_file is None:
        return
    folder = json_file.parent
    if json_file.is_dir() or not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise DataError(
            f"`--json` must be a file in a folder that can be written to, got {json_file}. Try: --json losses.json."
        )


def _write(file: Path, content: dict[str, Any]) -> None:
    temporary = file.with_name(f".{file.name}.tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    temporary.replace(file)

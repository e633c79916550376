"""The models that the command line knows by name, built to fit a data set, and those it finds in a user's file."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unisync import nn
from unisync.data import Dataset
from unisync.errors import ArgumentError, ArgumentTypeError, nearest, unknown


def build_model(name: str, data: Dataset) -> Any:
    """The model that `name` stands for, with inputs and outputs that fit the data.

    Args:
        name: "mlp", "cnn", "lstm", "transformer", or "path/to/file.py:function".
        data: what the model shall be trained on.

    Raises:
        UnknownNameError: there is no such model; names the nearest.
        ArgumentError: the model cannot be used with this kind of data, or the file or function is missing.
    """
    if ".py" in name:
        return _from_file(name, data)
    if name not in MODELS:
        raise unknown("model", name, [*MODELS, "path/to/file.py:function"])
    return MODELS[name](data)


def mlp(data: Dataset) -> nn.Sequential:
    """Two hidden layers of 128 units; of a text, a window's characters each for themselves."""
    if data.kind == "text":
        return nn.Sequential([nn.Embedding(data.outputs, 64), *_hidden(64), nn.Linear(128, data.outputs)])
    features = 1
    for length in data.input_shape:
        features *= length
    return nn.Sequential([nn.Flatten(), *_hidden(features), nn.Linear(128, data.outputs)])


def _hidden(features: int) -> list[nn.Layer]:
    return [nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()]


def cnn(data: Dataset) -> nn.Sequential:
    """Two convolutions of 3 × 3 with 16 and 32 channels, a pool, and a hidden layer of 64 units."""
    if data.kind != "image":
        more = "; for images of one channel, save x[..., None]" if data.kind == "sequence" else ""
        raise _misfit("cnn", data, "images of shape (height, width, channels)", more)
    height, width, channels = data.input_shape
    if min(height, width) < 2:
        raise _misfit("cnn", data, "images of at least 2 × 2")
    return nn.Sequential(
        [
            nn.Conv2d(channels, 16, 3, padding="same"),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding="same"),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear((height // 2) * (width // 2) * 32, 64),
            nn.ReLU(),
            nn.Linear(64, data.outputs),
        ]
    )


def lstm(data: Dataset) -> nn.Sequential:
    """One LSTM of 64 units, over the rows of an image, the steps of a sequence or the characters of a text."""
    if data.kind == "text":
        return nn.Sequential([nn.Embedding(data.outputs, 64), nn.LSTM(64, 64), nn.Linear(64, data.outputs)])
    features = _features_per_step("lstm", data)
    return nn.Sequential([_rows(data), nn.LSTM(features, 64, output="last"), nn.Linear(64, data.outputs)])


def transformer(data: Dataset) -> nn.Sequential:
    """Two blocks of width 64 with 4 heads: a character model on text, a classifier of rows on images and sequences."""
    steps = data.input_shape[0]
    if data.kind == "text":
        first, causal, last = [nn.Embedding(data.outputs, 64)], True, []
    else:
        first, causal = [_rows(data), nn.Linear(_features_per_step("transformer", data), 64)], False
        last = [nn.Mean(1)]
    blocks = [nn.TransformerBlock(64, 4, causal=causal) for _ in range(2)]
    return nn.Sequential(
        [*first, nn.PositionalEmbedding(steps, 64), *blocks, nn.LayerNorm(64), *last, nn.Linear(64, data.outputs)]
    )


def _rows(data: Dataset) -> nn.Layer:
    """Images (N, H, W, C) as sequences (N, H, W · C); sequences as they are."""
    return nn.Flatten(2)


def _features_per_step(model: str, data: Dataset) -> int:
    if data.kind == "image":
        return data.input_shape[1] * data.input_shape[2]
    if data.kind == "sequence":
        return data.input_shape[1]
    raise _misfit(model, data, "images, sequences or text")


def _misfit(model: str, data: Dataset, needs: str, more: str = "") -> ArgumentError:
    return ArgumentError(
        f"`model` {model!r} needs {needs}, got {data.kind} data of shape {data.input_shape} per sample from "
        f"{data.name}. Try: mlp{more}."
    )


MODELS: dict[str, Callable[[Dataset], nn.Sequential]] = {
    "mlp": mlp,
    "cnn": cnn,
    "lstm": lstm,
    "transformer": transformer,
}


def _from_file(name: str, data: Dataset) -> Any:
    """What a function of a Python file returns, given those of `data`, `input_shape` and `outputs` that it takes."""
    file, _, function_name = name.rpartition(":")
    if not file:
        raise ArgumentError(f"`model` must be path/to/file.py:function, got {name!r}. Try: {name}:model.")
    path = Path(file).expanduser()
    if not path.is_file():
        raise ArgumentError(f"`model` file {file!r} does not exist. Try: a path relative to {str(Path.cwd())!r}.")
    spec = importlib.util.spec_from_file_location(f"unisync_model_{path.stem}", path)
    assert spec is not None  # a path that ends in .py always has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    sys.path.append(str(path.resolve().parent))  # for what the file imports from beside it
    spec.loader.exec_module(module)
    function = getattr(module, function_name, None)
    if not callable(function):
        names = [n for n, value in vars(module).items() if inspect.isfunction(value) and not n.startswith("_")]
        cure = f"{file}:{nearest(function_name, names)}" if names else "def a function in it that returns a model"
        raise ArgumentError(f"`model` function {function_name!r} is not in {file}. Try: {cure}.")
    offered = {"data": data, "input_shape": data.input_shape, "outputs": data.outputs}
    wanted = inspect.signature(function).parameters
    _check_offered(function_name, wanted, offered)
    model = function(**{key: value for key, value in offered.items() if key in wanted})
    if not (hasattr(model, "init") and hasattr(model, "apply")):
        raise ArgumentTypeError(
            f"`model` function {function_name!r} must return a model with init and apply, got "
            f"{type(model).__name__}. Try: return us.nn.Sequential([...])."
        )
    return model


def _check_offered(function: str, wanted: Mapping[str, inspect.Parameter], offered: Mapping[str, Any]) -> None:
    """Raise if a function has an argument that nobody would give it."""
    given = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for name, parameter in wanted.items():
        if name not in offered and parameter.default is parameter.empty and parameter.kind not in given:
            raise ArgumentError(
                f"`model` function {function!r} must take no other arguments than {', '.join(offered)}, got {name!r}. "
                f"Try: give it a default, {name}=..."
            )

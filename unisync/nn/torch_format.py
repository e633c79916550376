"""Parameters from and to PyTorch state dicts, without importing torch.

Names and layouts are torch's already. One thing differs: our `Flatten` of a channels-last image has the channels
innermost, torch's has them outermost. What follows a flattened image (a `Linear`, and norms before it) is reordered:
with C channels and P = features / C positions, torch's feature c · P + p is our p · C + c.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from unisync import _dispatch, tree
from unisync.errors import ArgumentError, ShapeError, nearest
from unisync.functional.conversion import to_numpy
from unisync.functional.creation import asarray
from unisync.nn.attention import MultiHeadAttention, TransformerBlock
from unisync.nn.containers import Residual, Sequential
from unisync.nn.convolution import Conv1d, Conv2d
from unisync.nn.dense import Embedding, Linear, PositionalEmbedding
from unisync.nn.layer import Layer, Params, State
from unisync.nn.normalization import BatchNorm, LayerNorm, RMSNorm
from unisync.nn.recurrent import GRU, LSTM
from unisync.nn.shaping import Flatten


def from_torch_state_dict(model: Layer, state_dict: Mapping[str, Any]) -> tuple[Params, State]:
    """Parameters and state of a model from a torch module of the same layers.

    The names must be the model's, joined by dots: those of a `torch.nn.Sequential` of the same layers are, and so are
    those of any module if our `Sequential` is given a dict of layers with the module's names. `num_batches_tracked` is
    left out. Where a `Flatten` follows convolutions, ours of NHWC images and torch's of NCHW ones, the weights behind
    it are reordered; images that go straight into a `Flatten` must be in one layout for both.

    Args:
        model: the recipe.
        state_dict: name → array of any backend, e.g. `module.state_dict()`.

    Returns:
        (params, state): copies, as arrays of the current backend with the dtypes of the state dict.

    Raises:
        ArgumentError: names are missing or not expected; lists them.
        ShapeError: a shape does not fit; names both.

    Example:
        >>> import numpy as np
        >>> model = us.nn.Sequential([us.nn.Linear(3, 2)])
        >>> params, _ = us.nn.from_torch_state_dict(model, {"0.weight": np.ones((2, 3)), "0.bias": np.zeros(2)})
        >>> params["0"]["bias"]
        array([0., 0.])
    """
    with _dispatch.backend("numpy"):
        expected = model.init(0)
    known = {**_named(expected[0]), **_named(expected[1])}
    found = {name: value for name, value in state_dict.items() if name.rpartition(".")[2] != "num_batches_tracked"}
    _check_names(known, found)
    orders = _orders(model)

    def convert(name: str, like: Any) -> Any:
        value = to_numpy(found[name])
        if value.shape != like.shape:
            raise ShapeError(
                f"`state_dict[{name!r}]` must have shape {like.shape}, as in the model, got {value.shape}. "
                "Try: layers of the same sizes on both sides."
            )
        return asarray(orders[name].from_torch(value, name) if name in orders else value, copy=True)

    return _fill(expected[0], convert), _fill(expected[1], convert)


def to_torch_state_dict(model: Layer, params: Params, state: State | None = None) -> dict[str, Any]:
    """The state dict of a torch module of the same layers: the inverse of `from_torch_state_dict`.

    Args:
        model: the recipe.
        params: its parameters, of any backend.
        state: its state; needed if it has any, as with batch norm.

    Returns:
        name → array of the current backend (a copy). On torch it is what `module.load_state_dict` takes. It has no
        `num_batches_tracked`, which we do not count: torch keeps its module's own.

    Raises:
        ArgumentError: names are missing or not expected, or the state is missing; lists them.

    Example:
        >>> model = us.nn.Sequential([us.nn.Linear(3, 2)])
        >>> params, _ = model.init(0)
        >>> sorted(us.nn.to_torch_state_dict(model, params))
        ['0.bias', '0.weight']
    """
    with _dispatch.backend("numpy"):
        expected = model.init(0)
    given = {**_named(params), **_named(state or {})}
    if not state and expected[1]:
        raise ArgumentError(
            f"`state` must be given for a model that has any, {sorted(_named(expected[1]))[:4]}, got {state!r}. "
            "Try: us.nn.to_torch_state_dict(model, params, state)."
        )
    _check_names({**_named(expected[0]), **_named(expected[1])}, given)
    orders = _orders(model)
    result = {}
    for name, value in given.items():
        array = to_numpy(value)
        result[name] = asarray(orders[name].to_torch(array, name) if name in orders else array, copy=True)
    return result


def _named(values: Any) -> dict[str, Any]:
    return {path.replace("/", "."): leaf for path, leaf in zip(tree.paths(values), tree.leaves(values), strict=True)}


def _fill(expected: Any, convert: Any) -> Any:
    return tree.map_with_path(lambda path, leaf: convert(path.replace("/", "."), leaf), expected)


def _check_names(known: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    missing, surplus = sorted(known.keys() - found.keys()), sorted(found.keys() - known.keys())
    if missing or surplus:
        guess = f"{missing[0]!r} for {nearest(missing[0], surplus)!r}?" if missing and surplus else "the same layers."
        raise ArgumentError(
            f"the names must be those of the model, got {len(missing)} missing {missing[:8]} and {len(surplus)} not "
            f"expected {surplus[:8]}. Try: {guess}"
        )


@final
@dataclass(frozen=True, slots=True)
class _Order:
    """How the last axis of a parameter is reordered: from C channels × P positions to P × C."""

    channels: int

    def from_torch(self, x: np.ndarray, name: str) -> np.ndarray:
        return self._exchange(x, name, (self.channels, -1))

    def to_torch(self, x: np.ndarray, name: str) -> np.ndarray:
        return self._exchange(x, name, (-1, self.channels))

    def _exchange(self, x: np.ndarray, name: str, split: tuple[int, int]) -> np.ndarray:
        if x.shape[-1] % self.channels:
            raise ShapeError(
                f"`{name}` must have a last axis that the {self.channels} channels of the flattened image divide, got "
                f"shape {x.shape}. Try: a Linear with in_features = height · width · {self.channels}."
            )
        return np.ascontiguousarray(x.reshape(*x.shape[:-1], *split).swapaxes(-1, -2).reshape(x.shape))


_NOT_IMAGES = (Embedding, PositionalEmbedding, LSTM, GRU, MultiHeadAttention, TransformerBlock)


def _orders(model: Layer) -> dict[str, _Order]:
    """Which parameters see the features of a flattened channels-last image, by name."""
    orders: dict[str, _Order] = {}
    channels: int | None = None  # of the channels-last image that the layer gets, as far as known
    flattened: int | None = None  # channels of the flattened image that the layer gets
    for path, layer in _walk(model, ()):
        if isinstance(layer, (Conv1d, Conv2d)):
            channels = layer.out_channels if layer.data_format.endswith("C") else None
        elif isinstance(layer, Flatten):
            if channels is not None and layer.start_axis == 1:
                flattened = channels
            channels = None
        elif isinstance(layer, Linear):
            if flattened is not None:
                orders[".".join((*path, "weight"))] = _Order(flattened)
            channels = flattened = None
        elif isinstance(layer, (BatchNorm, LayerNorm, RMSNorm)) and flattened is not None:
            for name in ("weight", "bias", "running_mean", "running_var"):
                orders[".".join((*path, name))] = _Order(flattened)
        elif isinstance(layer, _NOT_IMAGES):
            channels = None
        elif flattened is not None:
            _refuse_if_parameters(path, layer)
    return orders


def _refuse_if_parameters(path: tuple[str, ...], layer: Layer) -> None:
    with _dispatch.backend("numpy"):
        params, _ = layer.init(0)
    if params:
        raise ArgumentError(
            f"`model` must have a Linear after a flattened image, got {layer!r} at {'.'.join(path)!r}, whose "
            "parameters' order is not known. Try: convert its parameters by hand."
        )


def _walk(layer: Layer, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Layer]]:
    if isinstance(layer, (Sequential, Residual)):
        for name, child in layer.children().items():
            yield from _walk(child, (*path, name))
    else:
        yield path, layer

"""Layers made of layers in a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final, overload

from unisync._types import float32
from unisync.errors import ArgumentError, ArgumentTypeError
from unisync.functional.random import Key
from unisync.nn import _checks
from unisync.nn.layer import Layer, Params, State, as_key


@final
@dataclass(frozen=True, init=False, repr=False)
class Sequential(Layer):
    """Layers in a row, each applied to the output of the one before.

    The params of the i-th layer stand under "i" (torch's numbering), or under its name if the layers are given as a
    dict. Layers without parameters are absent. A slice keeps these keys, so that it works with the whole params:
    `model[2:5](params, x)` applies layers 2, 3 and 4.

    Args:
        layers: the layers: a list, a dict from name to layer, or one argument each.

    Raises:
        ArgumentTypeError: something is not a layer.

    Example:
        >>> model = us.nn.Sequential([us.nn.Linear(4, 8), us.nn.ReLU(), us.nn.Linear(8, 2)])
        >>> params, state = model.init(0)
        >>> sorted(params), model(params, us.ones((5, 4))).shape
        (['0', '2'], (5, 2))
        >>> model[1:], model[0]
        (Sequential({'1': ReLU(), '2': Linear(8, 2)}), Linear(4, 8))
        >>> model[2:](params, us.ones((5, 8))).shape
        (5, 2)
    """

    layers: tuple[Layer, ...]
    keys: tuple[str, ...]
    positions: tuple[int, ...]  # in the unsliced model: what keys are folded with

    def __init__(self, *layers: Layer | Iterable[Layer] | Mapping[str, Layer]) -> None:
        first: Any = layers[0] if len(layers) == 1 else layers
        if isinstance(first, Layer):
            first = (first,)
        if not isinstance(first, Iterable):
            raise ArgumentTypeError(f"`layers` must be layers, got {first!r}. Try: Sequential([Linear(4, 2), ReLU()]).")
        keys: Iterable[str] | None = first.keys() if isinstance(first, Mapping) else None
        members = tuple(first.values() if isinstance(first, Mapping) else first)
        for index, member in enumerate(members):
            if not isinstance(member, Layer):
                hint = "(a class: call it)" if isinstance(member, type) else "(a function: Function(fn) makes it one)"
                raise ArgumentTypeError(
                    f"`layers[{index}]` of Sequential must be a layer, got {member!r}"
                    + (f" {hint}. " if callable(member) else ". ")
                    + "Try: Sequential([Linear(4, 2), ReLU()])."
                )
        self._set(members, tuple(keys or map(str, range(len(members)))), tuple(range(len(members))))

    def _set(self, layers: tuple[Layer, ...], keys: tuple[str, ...], positions: tuple[int, ...]) -> None:
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "positions", positions)

    @overload
    def __getitem__(self, index: int | str) -> Layer: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | str | slice) -> Layer:
        """One layer by position or key, or some of them as a Sequential that keeps the keys."""
        if isinstance(index, slice):
            part = object.__new__(Sequential)
            part._set(self.layers[index], self.keys[index], self.positions[index])
            return part
        if isinstance(index, str):
            if index not in self.keys:
                raise ArgumentError(f"`index` must be one of the keys {list(self.keys)}, got {index!r}. Try: model[0].")
            return self.layers[self.keys.index(index)]
        return self.layers[index]

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def children(self) -> Mapping[str, Layer]:
        return dict(zip(self.keys, self.layers, strict=True))

    @property
    def stateful(self) -> bool:
        return any(layer.stateful for layer in self.layers)

    def init(self, key: Key | int = 0, dtype: Any = float32) -> tuple[Params, State]:
        key = as_key(key)
        params: Params = {}
        state: State = {}
        for name, position, layer in zip(self.keys, self.positions, self.layers, strict=True):
            below, remembered = layer.init(key.fold_in(position), dtype)
            if below:
                params[name] = below
            if remembered:
                state[name] = remembered
        return params, state

    def apply(
        self, params: Params, state: State, x: Any, train: bool = False, key: Key | None = None
    ) -> tuple[Any, State]:
        if not isinstance(params, (dict, Mapping)) or not isinstance(state, (dict, Mapping)):  # a dict is seen sooner
            raise _not_dicts(self, params, state)
        new_state = state
        name, layer = "", self
        try:
            for name, position, layer in zip(self.keys, self.positions, self.layers, strict=True):
                if type(layer).apply is Layer.apply:
                    try:  # what that does, written out: between the kernels of small layers each call counts
                        x = layer.forward(params.get(name) or {}, x)
                    except Exception as error:
                        clear = _checks.bad_params(layer, params.get(name) or {}, error)
                        if clear is error:
                            raise
                        raise clear from error
                    continue
                before = state.get(name) or {}
                here = None if key is None else key.fold_in(position)
                x, after = layer.apply(params.get(name) or {}, before, x, train, here)
                if after is not before:
                    new_state = {**new_state, name: after}
        except Exception as error:
            _checks.locate(error, self, name, layer)
            raise
        return x, new_state

    def __repr__(self) -> str:
        whole = tuple(range(len(self.layers)))
        if self.positions == whole and self.keys == tuple(map(str, whole)):
            return f"Sequential([{', '.join(map(repr, self.layers))}])"
        named = (f"{key!r}: {layer!r}" for key, layer in zip(self.keys, self.layers, strict=True))
        return f"Sequential({{{', '.join(named)}}})"


def _not_dicts(layer: Layer, params: Any, state: Any) -> ArgumentTypeError:
    name, found = ("state", state) if isinstance(params, Mapping) else ("params", params)
    return ArgumentTypeError(
        f"`{name}` of {type(layer).__name__} must be the dict that model.init returned, got {type(found).__name__}. "
        "Try: y = model(params, x), or y, state = model.apply(params, state, x)."
    )


@final
@dataclass(frozen=True, init=False, repr=False)
class Residual(Layer):
    """x + layers(x) (He et al. 2016).

    Args:
        layers: a layer, or layers in a row as `Sequential` takes them; their params stand under "0", "1", ...

    Raises:
        ShapeError: the layers change the shape.

    Example:
        >>> block = us.nn.Residual([us.nn.LayerNorm(4), us.nn.Linear(4, 4)])
        >>> params, _ = block.init(0)
        >>> sorted(params), block(params, us.ones((2, 4))).shape
        (['0', '1'], (2, 4))
    """

    inner: Sequential

    def __init__(self, *layers: Layer | Iterable[Layer] | Mapping[str, Layer]) -> None:
        alone = len(layers) == 1 and isinstance(layers[0], Sequential)
        object.__setattr__(self, "inner", layers[0] if alone else Sequential(*layers))

    def children(self) -> Mapping[str, Layer]:
        return self.inner.children()

    def init(self, key: Key | int = 0, dtype: Any = float32) -> tuple[Params, State]:
        return self.inner.init(key, dtype)

    def apply(
        self, params: Params, state: State, x: Any, train: bool = False, key: Key | None = None
    ) -> tuple[Any, State]:
        y, state = self.inner.apply(params, state, x, train, key)
        if x.shape != y.shape and None not in (*x.shape, *y.shape):
            raise _checks.layer_error(
                _checks.ShapeError,
                self,
                f"the layers must keep the shape, got {_checks.shape_text(x.shape)} in and "
                f"{_checks.shape_text(y.shape)} out. Try: last layers that give what the first take.",
            )
        return x + y, state

    def __repr__(self) -> str:
        return f"Residual({repr(self.inner).removeprefix('Sequential(')}"

"""The layer: a frozen recipe that makes parameters and computes with them, and holds neither."""

from __future__ import annotations

import dataclasses
from abc import ABC
from collections.abc import Mapping
from typing import Any

import numpy as np

from unisync import tree
from unisync._dispatch import is_array
from unisync._types import Tree, float32
from unisync.errors import ArgumentTypeError, StateError
from unisync.functional.creation import asarray
from unisync.functional.dtypes import dtype_of, isdtype
from unisync.functional.random import Key
from unisync.nn import _checks

Params = dict[str, Any]
"""Nested dicts of native arrays, under torch's names."""

State = dict[str, Any]
"""As Params; what a layer remembers besides its parameters, e.g. running statistics."""


class Layer(ABC):  # noqa: B024 - a subclass overrides forward or apply: neither can be abstract
    """A part of a model: what its parameters are and what it computes with them.

    A layer is a frozen dataclass of settings. It holds no arrays and knows no backend: `init` makes the parameters on
    the current backend, and the same recipe then computes with them on whatever backend they belong to.

    A layer of your own is one small class. Write `forward`; write `init_params` if it has parameters, in NumPy (they
    are converted to the current backend and the asked-for dtype); name inner layers in `children`:

        >>> import dataclasses
        >>> import numpy as np
        >>> @dataclasses.dataclass(frozen=True)
        ... class Scale(us.nn.Layer):
        ...     features: int
        ...
        ...     def init_params(self, key):
        ...         return {"scale": np.ones(self.features)}
        ...
        ...     def forward(self, params, x):
        ...         return x * params["scale"]
        >>> model = us.nn.Sequential([us.nn.Linear(3, 2), Scale(2)])
        >>> params, state = model.init(0)
        >>> model(params, us.ones((4, 3))).shape
        (4, 2)

    A layer that remembers something besides its parameters writes `init_state` and, instead of `forward`, `apply`; so
    does one that differs in training or is random:

        >>> @dataclasses.dataclass(frozen=True)
        ... class Count(us.nn.Layer):
        ...     def init_state(self):
        ...         return {"calls": 0}
        ...
        ...     def apply(self, params, state, x, train=False, key=None):
        ...         return x, {"calls": state["calls"] + 1}
        >>> params, state = Count().init(0)
        >>> Count().apply(params, state, us.ones(2))[1]
        {'calls': np.int64(1)}
    """

    __slots__ = ()

    def init(self, key: Key | int = 0, dtype: Any = float32) -> tuple[Params, State]:
        """The first parameters and state, on the current backend.

        Drawn on the host, so that one key gives the same bits on every backend.

        Args:
            key: a `us.random.Key`, or an integer seed.
            dtype: the dtype of the floating-point parameters and state.

        Returns:
            (params, state): nested dicts of native arrays; the state is empty for layers without any.

        Example:
            >>> params, state = us.nn.Linear(3, 2).init(0)
            >>> params["weight"].shape, params["bias"].shape, state
            ((2, 3), (2,), {})
        """
        key = as_key(key)
        params, state = _native(self.init_params(key), dtype), _native(self.init_state(), dtype)
        for index, (name, child) in enumerate(self.children().items()):
            below, remembered = child.init(key.fold_in(index), dtype)
            if below:
                params[name] = below
            if remembered:
                state[name] = remembered
        return params, state

    def apply(
        self, params: Params, state: State, x: Any, train: bool = False, key: Key | None = None
    ) -> tuple[Any, State]:
        """The output for x, and the new state.

        Args:
            params: of `init`, or updated.
            state: of `init` or of the last call.
            x: the input, an array of the params' backend.
            train: whether the model is being trained: dropout drops and batch norm uses the batch's statistics.
            key: the source of randomness in training, needed by layers such as `Dropout`.

        Returns:
            (output, new state); layers without state return the one they were given.

        Raises:
            ShapeError: x does not fit; names the layer and both shapes.
            ArgumentError: the params lack an entry, or a random layer in training has no key.

        Example:
            >>> model = us.nn.Sequential([us.nn.Linear(3, 2), us.nn.Dropout(0.5)])
            >>> params, state = model.init(0)
            >>> y, state = model.apply(params, state, us.ones((4, 3)), train=True, key=us.random.Key(1))
            >>> y.shape
            (4, 2)
        """
        try:
            return self.forward(params, x), state
        except Exception as error:
            clear = _checks.bad_params(self, params, error)
            if clear is error:
                raise
            raise clear from error

    def __call__(self, params: Params, x: Any) -> Any:
        """The output for x of a layer without state, not in training.

        Raises:
            StateError: the layer, or one inside it, has state: use `apply`.

        Example:
            >>> layer = us.nn.Linear(3, 2)
            >>> params, _ = layer.init(0)
            >>> layer(params, us.ones((4, 3))).shape
            (4, 2)
        """
        if self.stateful:
            raise StateError(
                f"{type(self).__name__} has state (e.g. running statistics), which model(params, x) cannot pass. "
                "Try: y, state = model.apply(params, state, x)."
            )
        return self.apply(params, {}, x)[0]

    def init_params(self, key: Key) -> Params:
        """The layer's own first parameters, as NumPy arrays; those of its children are added. To override.

        Args:
            key: draw from `key.generator()`.
        """
        return {}

    def init_state(self) -> State:
        """The layer's own first state, as NumPy arrays; that of its children is added. To override, with `apply`."""
        return {}

    def forward(self, params: Params, x: Any) -> Any:
        """The output for x. To override, unless `apply` is.

        Args:
            params: the layer's parameters, those of a child under its name.
            x: the input.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define forward(self, params, x), or apply(self, params, state, x, train, key)."
        )

    def children(self) -> Mapping[str, Layer]:
        """The layers inside this one, by the names of their parameters. To override by layers made of layers."""
        return {}

    @property
    def stateful(self) -> bool:
        """Whether `init` gives a state that is not empty."""
        return type(self).init_state is not Layer.init_state or any(c.stateful for c in self.children().values())

    def __repr__(self) -> str:
        """As one would write it: required settings by position, others only where they differ from the default."""
        parts = []
        # Errors show layers: a user's own that is no dataclass, or has an __init__ that failed, must not hide them.
        for field in dataclasses.fields(self) if dataclasses.is_dataclass(self) else ():
            if not hasattr(self, field.name):
                continue
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                parts.append(repr(value))
            elif value != field.default:
                parts.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


def as_key(key: Key | int) -> Key:
    """A key as it is, a seed as a key.

    Raises:
        ArgumentTypeError: it is neither.
    """
    if isinstance(key, Key):
        return key
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return Key(int(key))
    raise ArgumentTypeError(f"`key` must be a us.random.Key or an integer seed, got {key!r}. Try: model.init(0).")


def _native(values: Tree, dtype: Any) -> Any:
    def convert(leaf: Any) -> Any:
        if not is_array(leaf):
            leaf = np.asarray(leaf)
        return asarray(leaf, dtype=dtype if isdtype(dtype_of(leaf), "real floating") else None)

    return tree.map(convert, values)

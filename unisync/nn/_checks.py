"""Checks of sizes and shapes, and errors that say in which layer of a model they fell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unisync.errors import ArgumentError, ArgumentTypeError, NotAnArrayError, ShapeError, UnisyncError

_NOTE = "The error fell in the layer"


def sizes(layer: Any, **values: Any) -> None:
    """Raises unless each value is a positive integer (or a tuple of such)."""
    for name, value in values.items():
        _integers(layer, name, value, 1, "a positive integer")


def counts(layer: Any, **values: Any) -> None:
    """Raises unless each value is an integer of at least zero (or a tuple of such)."""
    for name, value in values.items():
        _integers(layer, name, value, 0, "an integer ≥ 0")


def _integers(layer: Any, name: str, value: Any, least: int, what: str) -> None:
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise ArgumentTypeError(
                f"`{name}` of {type(layer).__name__} must be {what}, got {value!r}. Try: {name}={max(least, 1)}."
            )
        if number < least:
            raise ArgumentError(
                f"`{name}` of {type(layer).__name__} must be {what}, got {value!r}. Try: {name}={max(least, 1)}."
            )


def fraction(layer: Any, **values: float) -> None:
    """Raises unless each value lies in [0, 1]."""
    for name, value in values.items():
        if not 0.0 <= value <= 1.0:
            raise ArgumentError(
                f"`{name}` of {type(layer).__name__} must lie in [0, 1], got {value!r}. Try: {name}=0.1."
            )


def divides(layer: Any, part: str, whole: str) -> None:
    """Raises unless the layer's attribute `part` divides its attribute `whole`."""
    small, large = getattr(layer, part), getattr(layer, whole)
    if large % small:
        below = next(n for n in range(small, 0, -1) if large % n == 0)
        raise ArgumentError(
            f"`{part}` of {type(layer).__name__} must divide `{whole}`, got {small} and {large}. Try: {part}={below}."
        )


def axis_size(layer: Any, x: Any, axis: int, size: int, expected: str, cure: str = "") -> None:
    """Raises a ShapeError unless x has `size` elements along the axis; an unknown size (None) passes.

    Shapes are static, so the check works on tracers and costs a look-up.
    """
    try:
        found = x.shape[axis]
    except IndexError:
        found = -1
    except AttributeError:
        raise _not_an_array(layer, x) from None
    if found != size and found is not None:
        raise shape_error(layer, expected, x.shape, cure)


def rank(layer: Any, x: Any, ndim: int, expected: str, cure: str = "") -> None:
    """Raises a ShapeError unless x has `ndim` axes."""
    try:
        found = len(x.shape)
    except AttributeError:
        raise _not_an_array(layer, x) from None
    if found != ndim:
        raise shape_error(layer, expected, x.shape, cure)


def _not_an_array(layer: Any, x: Any) -> NotAnArrayError:
    return layer_error(NotAnArrayError, layer, f"`x` must be an array, got {type(x).__name__}. Try: us.asarray(x).")  # type: ignore[return-value]


def shape_error(layer: Any, expected: str, shape: Any, cure: str = "") -> ShapeError:
    """The error of a layer for an input of another shape than it expects."""
    text = f"`x` must have shape {expected}, got {shape_text(shape)}."
    return layer_error(ShapeError, layer, f"{text} Try: {cure}." if cure else text)  # type: ignore[return-value]


def layer_error(cls: type[UnisyncError], layer: Any, text: str) -> UnisyncError:
    """An error that names the layer, and to which `locate` adds the way from the model to it."""
    error = cls(f"{layer!r}: {text}")
    vars(error)["layer_text"] = text
    vars(error)["layer_place"] = ((), layer)
    return error


def shape_text(shape: Any) -> str:
    """A shape of any framework as a tuple prints, with None for what is unknown."""
    try:
        return str(tuple(None if n is None else int(n) for n in shape))
    except (TypeError, ValueError):  # symbolic sizes
        return str(shape)


def locate(error: Exception, parent: Any, key: str, layer: Any) -> None:
    """Adds one step of the way from the model to the layer in which an error fell, e.g. "Sequential/4 Linear(80, 10)".

    It goes into the message of a layer's own error, and into a note on any other.
    """
    attributes = vars(error)
    keys, innermost = attributes.get("layer_place", ((), layer))
    keys = (key, *keys)
    attributes["layer_place"] = keys, innermost
    place = f"{type(parent).__name__}/{'/'.join(keys)} {innermost!r}"
    if "layer_text" in attributes:
        error.args = (f"{place}: {attributes['layer_text']}",)
        return
    notes = attributes.setdefault("__notes__", [])
    notes[:] = [note for note in notes if not note.startswith(_NOTE)]
    notes.append(f"{_NOTE} {place}.")


def bad_params(layer: Any, params: Any, error: Exception) -> Exception:
    """What to raise for an error in a layer's forward: a clear one if the params are at fault, else the same."""
    if not isinstance(params, Mapping):
        return layer_error(
            ArgumentTypeError,
            layer,
            f"`params` must be the dict that model.init returned, got {type(params).__name__}. "
            "Try: y = model(params, x).",
        )
    name = error.args[0] if isinstance(error, KeyError) and error.args else None
    if not isinstance(name, str) or name in params:
        return error
    return layer_error(
        ArgumentError,
        layer,
        f"`params` must hold {name!r}, got only {sorted(params)}. Try: params, state = model.init(seed), "
        "with the model that you call.",
    )

"""Checks of hyperparameters: each error says the range and a usual value."""

from __future__ import annotations

import math
from typing import Any

from unisync.errors import ArgumentError, ArgumentTypeError


def non_negative(name: str, value: Any, usual: Any) -> float:
    """The value if it is a finite number ≥ 0."""
    return _within(name, value, 0.0, math.inf, "≥ 0", usual)


def positive(name: str, value: Any, usual: Any) -> float:
    """The value if it is a finite number > 0."""
    return _within(name, value, math.ulp(0.0), math.inf, "> 0", usual)


def fraction(name: str, value: Any, usual: Any) -> float:
    """The value if it is in [0, 1)."""
    return _within(name, value, 0.0, 1.0, "in [0, 1)", usual)


def at_least_one(name: str, value: Any, usual: Any) -> int:
    """The value if it is a whole number ≥ 1."""
    if isinstance(value, bool) or value != int(number(name, value, usual)) or value < 1:
        raise ArgumentError(f"`{name}` must be a whole number ≥ 1, got {value!r}. Try: {name}={usual}.")
    return int(value)


def number(name: str, value: Any, usual: Any) -> float:
    """The value if it is a finite Python (or NumPy) number."""
    return _within(name, value, -math.inf, math.inf, "a finite number", usual)


def rate(value: Any, usual: Any) -> Any:
    """A learning rate: a schedule (function of the count of updates) or a number ≥ 0."""
    return value if callable(value) else non_negative("learning_rate", value, usual)


def _within(name: str, value: Any, low: float, high: float, text: str, usual: Any) -> Any:
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        as_float = float(value)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"`{name}` must be a number {text}, got {type(value).__name__}. Try: {name}={usual}."
        ) from error
    if not (math.isfinite(as_float) and low <= as_float < high):
        raise ArgumentError(f"`{name}` must be {text}, got {value!r}. Try: {name}={usual}.")
    return value

"""The parts of autograd that the NumPy backend builds on: traced arrays and how to look inside them."""

from __future__ import annotations

from typing import Any

from autograd.numpy.numpy_boxes import ArrayBox as Box
from autograd.tracer import getval

__all__ = ["Box", "getval", "is_traced"]


def is_traced(x: Any) -> bool:
    """Whether x is an array that a gradient is being traced through."""
    return type(x) is Box

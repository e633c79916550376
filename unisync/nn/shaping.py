"""Layers without parameters that reshape, average, or apply a function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from unisync.errors import ArgumentTypeError
from unisync.functional import manipulation, statistical
from unisync.nn import _checks
from unisync.nn.layer import Layer, Params


@final
@dataclass(frozen=True, repr=False)
class Flatten(Layer):
    """Joins the axes from `start_axis` on into one, in row-major order.

    An NHWC image flattens with its channels innermost, where torch's NCHW has them outermost;
    `from_torch_state_dict` reorders the weights of the `Linear` that follows.

    Args:
        start_axis: the first axis to join.

    Example:
        >>> us.nn.Flatten()({}, us.ones((5, 2, 2, 3))).shape
        (5, 12)
    """

    start_axis: int = 1

    def __post_init__(self) -> None:
        _checks.counts(self, start_axis=self.start_axis)

    def forward(self, params: Params, x: Any) -> Any:
        shape = tuple(x.shape)
        kept, joined = shape[: self.start_axis], shape[self.start_axis :]
        if not joined:
            least = ", ".join(["_"] * (self.start_axis + 1))
            raise _checks.shape_error(self, f"({least}, ...)", shape, "an input with a batch axis")
        length = -1 if None in joined else math.prod(joined)
        return manipulation.reshape(x, (*(-1 if n is None else n for n in kept), length))


@final
@dataclass(frozen=True, repr=False)
class Mean(Layer):
    """The mean over axes, which go: `Mean(1)` pools a sequence, `Mean((1, 2))` an NHWC image.

    Args:
        axis: the axis or axes.

    Example:
        >>> us.nn.Mean((1, 2))({}, us.ones((5, 4, 4, 3))).shape
        (5, 3)
    """

    axis: int | tuple[int, ...]

    def forward(self, params: Params, x: Any) -> Any:
        return statistical.mean(x, axis=self.axis)


@final
@dataclass(frozen=True, repr=False)
class Function(Layer):
    """A function of one array as a layer.

    Args:
        fn: the function; written in `us.*` functions it runs on every backend.

    Example:
        >>> us.nn.Function(us.square)({}, us.asarray([3.0]))
        array([9.], dtype=float32)
    """

    fn: Callable[[Any], Any]

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise ArgumentTypeError(f"`fn` must be a function, got {self.fn!r}. Try: us.nn.Function(us.square).")

    def forward(self, params: Params, x: Any) -> Any:
        return self.fn(x)

    def __repr__(self) -> str:
        return f"Function({getattr(self.fn, '__name__', self.fn)})"

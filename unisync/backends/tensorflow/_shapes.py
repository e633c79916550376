"""Shapes and axes: Python integers where they are known when a function is traced, tensors where not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from unisync.errors import ShapeError


def rank(x: Any) -> int:
    """The number of axes of x, which must be known."""
    found = x.shape.rank
    if found is None:
        raise ShapeError(
            "`x` must have a known number of axes, got a tensor of unknown rank. "
            "Try: x.set_shape(...), or an input_signature that gives the axes."
        )
    return found


def shape_of(x: Any) -> list[Any]:
    """The lengths of x's axes: ints, and int32 scalars for those unknown while tracing."""
    static = x.shape.as_list() if x.shape.rank is not None else [None] * rank(x)
    if None not in static:
        return static
    dynamic = tf.shape(x)
    return [dynamic[i] if n is None else n for i, n in enumerate(static)]


def axes_of(x: Any, axis: int | Sequence[int] | None) -> list[int]:
    """The axes as a list of positions ≥ 0; all for None."""
    n = rank(x)
    if axis is None:
        return list(range(n))
    axes = [axis] if isinstance(axis, int) else list(axis)
    return [position(a, n) for a in axes]


def position(axis: int, n: int) -> int:
    """An axis counted from the front, of n.

    Raises:
        ShapeError: there is no such axis.
    """
    if not -n <= axis < n:
        raise ShapeError(f"`axis` must be in [{-n}, {n}), got {axis}. Try: an axis that the array has.")
    return axis % n


def reduction_axes(x: Any, axis: int | Sequence[int] | None) -> Any:
    """What a tf.reduce_* takes as axis; the empty tuple reduces nothing."""
    if isinstance(axis, tuple) and not axis:
        return tf.constant([], tf.int32)  # TensorFlow would read [] as floats
    return axis


def count(x: Any, axis: int | Sequence[int] | None) -> Any:
    """How many elements a reduction over the axes puts together: an int, or an int32 scalar."""
    lengths = [shape_of(x)[a] for a in axes_of(x, axis)]
    if all(isinstance(n, int) for n in lengths):
        return math.prod(lengths)
    return tf.reduce_prod(tf.stack(lengths))


def as_shape(shape: Any) -> Any:
    """A shape argument as TensorFlow takes it: an int is one axis."""
    return [shape] if isinstance(shape, int) else shape


def common_shape(*shapes: list[Any]) -> list[Any]:
    """The shape that shapes (as of `shape_of`) broadcast to."""
    n = max(map(len, shapes), default=0)
    padded = [[1] * (n - len(s)) + list(s) for s in shapes]
    result = []
    for lengths in zip(*padded, strict=True):
        longest: Any = 1
        for length in lengths:
            if isinstance(length, int) and isinstance(longest, int):
                if 1 not in (length, longest) and length != longest:
                    raise ShapeError(f"shapes must broadcast, got {' and '.join(str(tuple(s)) for s in shapes)}.")
                longest = length if longest == 1 else longest
            elif isinstance(length, int):
                longest = longest if length == 1 else length
            elif isinstance(longest, int):
                longest = length if longest == 1 else longest
            else:
                longest = tf.maximum(length, longest)
        result.append(longest)
    return result

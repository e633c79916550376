"""Gradients by tf.GradientTape, and the transformations of functions."""

from __future__ import annotations

import functools as _functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from unisync import tree as _tree
from unisync._types import Tree
from unisync.backends.tensorflow import _depth
from unisync.backends.tensorflow._jit import jit as jit
from unisync.backends.tensorflow._recompute import recompute as recompute
from unisync.backends.tensorflow._scan import scan as scan
from unisync.backends.tensorflow.creation import asarray as _asarray
from unisync.errors import ArgumentError, ArgumentTypeError, ShapeError


def value_and_grad(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @_functools.wraps(fn)
    def differentiated(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        inputs, structure = _inputs(tuple(args[i] for i in positions), positions)
        arguments = list(args)
        for i, argument in zip(positions, _tree.unflatten(structure, inputs), strict=True):
            arguments[i] = argument
        with tf.GradientTape(watch_accessed_variables=False) as tape, _depth.Differentiating():
            tape.watch(inputs)
            result = fn(*arguments, **kwargs)
            value, aux = _parted(result) if has_aux else (result, None)
            value = _checked(value)
        gradients = _tree.unflatten(structure, _gradients(tape, [value], inputs))
        return ((value, aux) if has_aux else value), (gradients[0] if isinstance(argnums, int) else gradients)

    return differentiated


def _inputs(trees: tuple[Tree, ...], positions: Sequence[int]) -> tuple[list[Any], Any]:
    """The arrays to differentiate, as tensors of their own, and the trees' structure.

    A tape knows tensors by identity: without a copy (of the handle alone) a use of the same tensor through a closure
    would count as a use of the argument.
    """
    leaves, structure = _tree.flatten(trees)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, (float, np.ndarray, np.floating)):
            leaf = _asarray(leaf)
        if not isinstance(leaf, (tf.Tensor, tf.Variable, tf.IndexedSlices)) or not leaf.dtype.is_floating:
            raise _not_differentiable(trees, i, positions)
        leaves[i] = tf.identity(leaf)
    return leaves, structure


def _not_differentiable(trees: tuple[Tree, ...], index: int, positions: Sequence[int]) -> ArgumentTypeError:
    leaf, path = _tree.leaves(trees)[index], _tree.paths(trees)[index]
    position, _, rest = path.partition("/")
    where = f"argument {positions[int(position)]}" + (f' at "{rest}"' if rest else "")
    kind = getattr(leaf.dtype, "name", leaf.dtype) if hasattr(leaf, "dtype") else type(leaf).__name__
    return ArgumentTypeError(
        f"`argnums` must select floating-point arrays, got {kind} in {where}. "
        "Try: us.astype(x, us.float32), or pass it as another argument."
    )


def _parted(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentTypeError(
            f"`fn` must return (value, aux) with has_aux=True, got {type(result).__name__}. Try: has_aux=False."
        )
    return result


def _checked(value: Any) -> Any:
    value = _asarray(value)
    if value.shape.rank != 0:
        raise ShapeError(
            f"`fn` must return a scalar, got an array of shape {tuple(value.shape)}. Try: us.sum or us.mean."
        )
    if not value.dtype.is_floating:
        raise ArgumentTypeError(f"`fn` must return a floating-point scalar, got {value.dtype.name}. Try: us.astype.")
    return value


def _gradients(tape: Any, outputs: list[Any], inputs: list[Any], cotangents: list[Any] | None = None) -> list[Any]:
    """The gradients of the outputs, dense, with zeros where there is no path."""
    found = tape.gradient(outputs, inputs, cotangents) if outputs and inputs else [None] * len(inputs)
    return [tf.zeros_like(x) if g is None else _dense(g, x) for g, x in zip(found, inputs, strict=True)]


def _dense(g: Any, x: Any) -> Any:
    """The gradient of an embedding's rows as that of the whole."""
    if not isinstance(g, tf.IndexedSlices):
        return g
    rows = x.shape[0] if x.shape[0] is not None else tf.shape(x)[0]
    return tf.math.unsorted_segment_sum(g.values, g.indices, rows)


def vjp(fn: Callable[..., Any], *primals: Tree) -> tuple[Tree, Callable[[Tree], tuple[Any, ...]]]:
    inputs, structure = _inputs(primals, range(len(primals)))
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape, _depth.Differentiating():
        tape.watch(inputs)
        value = _tree.map(_asarray, fn(*_tree.unflatten(structure, inputs)))
    outputs, form = _tree.flatten(value)

    def pullback(cotangent: Tree) -> tuple[Any, ...]:
        cotangents, given = _tree.flatten(cotangent)
        if given != form:
            raise ArgumentError(
                f"`cotangent` must have the structure of the value, {form}, got {given}. Try: us.tree.map."
            )
        pairs = [(y, _cotangent(c, y)) for y, c in zip(outputs, cotangents, strict=True) if y.dtype.is_floating]
        gradients = _gradients(tape, [y for y, _ in pairs], inputs, [c for _, c in pairs])
        return _tree.unflatten(structure, gradients)

    return value, pullback


def _cotangent(cotangent: Any, output: Any) -> Any:
    cotangent = tf.cast(_asarray(cotangent), output.dtype)
    if not cotangent.shape.is_compatible_with(output.shape):
        raise ShapeError(f"`cotangent` must have the value's shape {output.shape}, got {cotangent.shape}.")
    return cotangent


def stop_gradient(x: Tree, /) -> Tree:
    if isinstance(x, tf.Tensor):
        return tf.stop_gradient(x)
    arrays = (tf.Tensor, tf.Variable, tf.IndexedSlices)
    return _tree.map(lambda leaf: tf.stop_gradient(leaf) if isinstance(leaf, arrays) else leaf, x)

"""Recomputation in the backward pass, also of functions that close over what is being differentiated.

tf.recompute_grad gives no gradient to tensors that the function closes over (only to tf.Variables), and says nothing.
Here the function is traced once into a scratch graph to learn which tensors it closes over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from unisync import tree
from unisync.backends.tensorflow import _fast
from unisync.backends.tensorflow.creation import asarray


def recompute(fn: Callable[..., Any], /) -> Callable[..., Any]:
    @functools.wraps(fn)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly() and not _fast.taped():
            return fn(*args, **kwargs)
        leaves, structure = tree.flatten((args, kwargs))
        places = [i for i, x in enumerate(leaves) if isinstance(x, (tf.Tensor, tf.Variable, tf.IndexedSlices))]
        inputs = [tf.convert_to_tensor(leaves[i]) for i in places]
        form: list[Any] = []

        def flat(*tensors: Any) -> list[Any]:
            for i, x in zip(places, tensors, strict=True):
                leaves[i] = x
            arguments, keywords = tree.unflatten(structure, list(leaves))
            outputs, form[:] = _flattened(fn(*arguments, **keywords))
            return outputs

        closed_over = _closed_over(flat, inputs)
        outputs = _dropping(flat, len(inputs))(*inputs, *closed_over)
        return tree.unflatten(form[0], list(outputs))

    return recomputed


def _flattened(result: Any) -> tuple[list[Any], list[Any]]:
    outputs, structure = tree.flatten(result)
    return [asarray(x) for x in outputs], [structure]


class Scratch(tf.__internal__.FuncGraph):
    """A graph that keeps the tensors of outside that are used in it."""

    def __init__(self) -> None:
        super().__init__("scratch")
        self.outside: dict[int, Any] = {}

    def capture(self, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(tensor, _fast.EagerTensor) or tensor.graph is not self:
            self.outside.setdefault(id(tensor), tensor)
        return super().capture(tensor, *args, **kwargs)


def _closed_over(flat: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    scratch = Scratch()
    with scratch.as_default():
        flat(*(tf.compat.v1.placeholder(x.dtype, x.shape) for x in inputs))
    return [x for x in scratch.outside.values() if x.dtype.is_floating or x.dtype.is_complex]


def _dropping(flat: Callable[..., Any], n: int) -> Callable[..., Any]:
    """flat as a function of its n inputs and what it closes over, which keeps none of its inner results."""

    @tf.custom_gradient
    def dropping(*tensors: Any) -> Any:
        outputs = flat(*tensors[:n])

        def gradient(*cotangents: Any, variables: Any = ()) -> Any:
            inputs = [_after(x, cotangents[0]) for x in tensors[:n]]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([*inputs, *tensors[n:], *variables])
                again = flat(*inputs)
            found = tape.gradient(again, [*inputs, *tensors[n:], *variables], list(cotangents))
            count = len(tensors)
            return (found[:count], found[count:]) if variables else found

        return outputs, gradient

    return dropping


def _after(x: Any, cotangent: Any) -> Any:
    """x, but not before the cotangent is there: else a function's optimizer merges the second pass with the first."""
    if not x.dtype.is_floating or tf.executing_eagerly():
        return tf.identity(x)
    # As in tf.recompute_grad: a zero that depends on the cotangent, in a way that no optimizer sees through.
    first = tf.cast(tf.reduce_max(tf.reshape(cotangent, [-1])[:1]), tf.bool)
    return x + tf.where(first == first, tf.constant(0, x.dtype), tf.constant(float("nan"), x.dtype))

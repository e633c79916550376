"""Compilation by tf.function over flat lists of tensors, with the cost of a call kept near the framework's own.

tf.function handles arguments in Python: 0.7 ms a call with 60 tensors. Here the tree is flattened by optree, the
program looked up by the leaves' shapes and dtypes, and run on the flat list: under 0.1 ms.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from unisync import tree
from unisync.backends.tensorflow import _fast
from unisync.backends.tensorflow._dtypes import mark_number
from unisync.backends.tensorflow.creation import asarray
from unisync.errors import ArgumentTypeError


def jit(
    fn: Callable[..., Any], /, *, donate_argnums: Sequence[int] = (), torch_compile: bool = False
) -> Callable[..., Any]:
    programs: dict[Any, _Program] = {}
    tracing = threading.RLock()
    number_inputs = True

    def trace(key: Any, structure: Any, leaves: list[Any], inputs: Inputs) -> Any:
        """The program of `key`, and the tensors to run it on."""
        nonlocal number_inputs
        with tracing:
            if key not in programs:
                try:
                    programs[key] = _Program(fn, structure, inputs, len(leaves))
                except Exception:
                    if not inputs.numbers:
                        raise
                    # fn needs a number where Python or an operator does: a new number then compiles anew.
                    inputs = inputs_of(leaves, number_inputs=False)
                    key = inputs.key(structure)
                    programs[key] = programs.get(key) or _Program(fn, structure, inputs, len(leaves))
                    number_inputs = False
            return programs[key], inputs.tensors

    @functools.wraps(fn)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        if not tf.executing_eagerly():
            return fn(*args, **kwargs)  # becomes part of the function that is being traced
        leaves, structure = tree.flatten((args, kwargs))
        try:
            key = structure, tuple(map(_fast.shape_of, leaves)), tuple(map(_fast.dtype_of, leaves))
            inputs = None
        except (TypeError, AttributeError):  # a leaf is not an eager tensor
            inputs = inputs_of(leaves, number_inputs)
            key = inputs.key(structure)
        program = programs.get(key)
        tensors = leaves if inputs is None else inputs.tensors
        if program is None:
            program, tensors = trace(key, structure, leaves, inputs or inputs_of(leaves, number_inputs))
        return program(tensors)

    return compiled


@dataclass(frozen=True, slots=True)
class Inputs:
    """The leaves of a call: tensors, which of them were Python numbers, and the constants by position."""

    tensors: list[Any]
    numbers: frozenset[int]
    constants: dict[int, Any]

    def key(self, structure: Any) -> tuple[Any, ...]:
        """What calls of one program have in common."""
        key = structure, tuple(map(_fast.shape_of, self.tensors)), tuple(map(_fast.dtype_of, self.tensors))
        return (*key, hashable(self.constants)) if self.constants else key


ARRAYS = (tf.Tensor, tf.Variable, tf.IndexedSlices, np.ndarray, np.generic)


def inputs_of(leaves: list[Any], number_inputs: bool) -> Inputs:
    """Numbers become inputs, so that a count that grows does not compile anew each time; booleans are constants, so
    that Python may branch on them."""
    tensors, numbers, constants = [], set(), {}
    for i, leaf in enumerate(leaves):
        if type(leaf) is _fast.EagerTensor:
            tensors.append(leaf)
        elif isinstance(leaf, ARRAYS):
            tensors.append(asarray(leaf))
        elif number_inputs and type(leaf) in (int, float):
            numbers.add(len(tensors))
            tensors.append(leaf)
        else:
            constants[i] = leaf
    if numbers:
        # As exact as the arrays that they may meet.
        wide = any(type(x) is _fast.EagerTensor and x.dtype == tf.float64 for x in tensors)
        for i in numbers:
            float_dtype = tf.float64 if wide else tf.float32
            tensors[i] = tf.constant(tensors[i], tf.int64 if type(tensors[i]) is int else float_dtype)
    return Inputs(tensors, frozenset(numbers), constants)


def hashable(constants: dict[int, Any]) -> tuple[Any, ...]:
    key = tuple((i, type(value), value) for i, value in constants.items())
    try:
        hash(key)
    except TypeError:
        bad = next(value for value in constants.values() if type(value).__hash__ is None)
        raise ArgumentTypeError(
            f"arguments of a compiled function must be arrays, numbers, or constants that can be hashed, got "
            f"{type(bad).__name__}. Try: a tuple, or a closure."
        ) from None
    return key


class _Program:
    """One tf.function graph: of one structure, its constants, and the inputs' shapes and dtypes."""

    def __init__(self, fn: Callable[..., Any], structure: Any, inputs: Inputs, n: int) -> None:
        self.constants_out: dict[int, Any] = {}
        self.structure_out: Any = None
        places = [i for i in range(n) if i not in inputs.constants]

        def flat(*tensors: Any) -> list[Any]:
            for i in inputs.numbers:
                mark_number(tensors[i])
            leaves = inputs.constants | dict(zip(places, tensors, strict=True))
            args, kwargs = tree.unflatten(structure, [leaves[i] for i in range(n)])
            results, self.structure_out = tree.flatten(fn(*args, **kwargs))
            outputs = (*ARRAYS, bool, int, float, complex)
            self.constants_out = {i: x for i, x in enumerate(results) if not isinstance(x, outputs)}
            return [asarray(x) for i, x in enumerate(results) if i not in self.constants_out]

        specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs.tensors]
        self.run = _fast.runner(tf.function(flat, autograph=False).get_concrete_function(*specs))

    def __call__(self, tensors: list[Any]) -> Any:
        results = self.run(tensors)
        if self.constants_out:
            for i, value in sorted(self.constants_out.items()):
                results.insert(i, value)
        return tree.unflatten(self.structure_out, results)

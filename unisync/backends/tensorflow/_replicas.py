"""Functions that run once per replica: their programs, and per-replica trees kept as flat lists between calls."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import optree
import tensorflow as tf

from unisync import tree
from unisync._events import Event
from unisync._per_replica import PerReplica
from unisync._types import Tree
from unisync.backends._collectives import checked_result
from unisync.backends.tensorflow import _fast, _jit
from unisync.backends.tensorflow._dtypes import mark_number
from unisync.backends.tensorflow.creation import asarray
from unisync.errors import ArgumentTypeError, CollectiveError, TraceError


class Layout:
    """The structures, shapes and dtypes of per-replica trees; two that are equal are compared in full only once.

    Attributes:
        structures: each replica's.
        begins: where each replica's leaves begin, and the end of the last.
        numbers: which of the tensors were Python numbers.
        constants: leaves that are no tensors, by position.
    """

    __slots__ = ("_children", "_hash", "_key", "begins", "constants", "numbers", "structures")

    def __init__(
        self,
        structures: tuple[Any, ...],
        shapes_dtypes: tuple[Any, ...],
        numbers: frozenset[int] = frozenset(),
        constants: dict[int, Any] | None = None,
    ) -> None:
        self.structures, self.numbers, self.constants = structures, numbers, constants or {}
        self.begins = tuple(itertools.accumulate((s.num_leaves for s in structures), initial=0))
        self._key = structures, shapes_dtypes
        self._hash = hash(self._key)
        self._children: list[tuple[Layout, list[slice]]] | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        if self._key is not other._key:
            if self._key != other._key:
                return False
            other._key = self._key
        return True

    def tree(self, tensors: list[Any], replica: int) -> Tree:
        """One replica's tree, out of the tensors of all."""
        if self.constants:
            tensors = _with_constants(tensors, self.constants)
        return tree.unflatten(self.structures[replica], tensors[self.begins[replica] : self.begins[replica + 1]])

    def children(self) -> list[tuple[Layout, list[slice]]]:
        """For tuples: the layout of each of their items, and where its tensors are."""
        if self._children is None:
            per_replica = [optree.treespec_children(s) for s in self.structures]
            _, (shapes, dtypes) = self._key
            found, at = [], list(self.begins[:-1])
            for items in zip(*per_replica, strict=True):
                cuts = [slice(a, a + item.num_leaves) for a, item in zip(at, items, strict=True)]
                at = [cut.stop for cut in cuts]
                known = tuple(x for c in cuts for x in shapes[c]), tuple(x for c in cuts for x in dtypes[c])
                found.append((Layout(items, known), cuts))
            self._children = found
        return self._children


class Form:
    """Per-replica trees as one flat list of tensors: what `PerReplica.native` holds.

    Iterating gives the forms of the items, if the trees are tuples.
    """

    __slots__ = ("layout", "tensors")

    def __init__(self, layout: Layout, tensors: list[Any]) -> None:
        self.layout, self.tensors = layout, tensors

    def __iter__(self) -> Iterator[Form]:
        for layout, cuts in self.layout.children():
            yield Form(layout, [x for cut in cuts for x in self.tensors[cut]])

    def per_replica(self) -> PerReplica:
        """These trees as users see them."""
        if self.layout.constants or self.layout.numbers:
            return PerReplica([_take(self, i) for i in range(len(self.layout.structures))])
        return PerReplica(native=self, size=len(self.layout.structures), take=_take)


def _take(form: Form, replica: int) -> Tree:
    return form.layout.tree(form.tensors, replica)


def _with_constants(tensors: list[Any], constants: dict[int, Any]) -> list[Any]:
    leaves = list(tensors)
    for i, value in sorted(constants.items()):
        leaves.insert(i, value)
    return leaves


def form_of(trees: Any, number_inputs: bool = True) -> Form:
    """The flat form of a PerReplica, or of one tree per replica."""
    if type(trees) is PerReplica and type(trees.native) is Form:
        return trees.native
    leaves, structures = [], []
    for each in trees:
        found, structure = tree.flatten(each)
        leaves += found
        structures.append(structure)
    inputs = _jit.inputs_of(leaves, number_inputs)
    _, *key = inputs.key(None)
    return Form(Layout(tuple(structures), tuple(key), inputs.numbers, inputs.constants), inputs.tensors)


class Spmd:
    """A function of per-replica trees: fn run by every replica, one program per structure, shapes and dtypes."""

    def __init__(self, engine: Any, fn: Callable[..., Tree]) -> None:
        self._engine, self._fn = engine, fn
        self.name = getattr(fn, "__qualname__", type(fn).__name__)
        self.programs: dict[Any, Program] = {}
        self._tracing = threading.RLock()
        self._number_inputs = True

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PerReplica:
        engine = self._engine
        engine.check_alive()
        if not tf.executing_eagerly():
            raise TraceError(
                "a function of us.spmd must be called outside us.jit and tf.function: it is compiled as a whole. "
                "Try: us.jit inside it, or none."
            )
        key, arguments, tensors = self._prepared(args, kwargs)
        program = self.programs.get(key)
        if program is None:
            program, tensors = self._traced(key, arguments, tensors, args, kwargs)
        return engine.run(self.name, program, tensors)

    def _prepared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Arguments, list[Any]]:
        leaves, structure = tree.flatten((args, kwargs))
        layouts: list[Layout | None] = []
        shared: list[Any] = []
        tensors: list[Any] = []
        for leaf in leaves:
            if type(leaf) is PerReplica:
                form = form_of(leaf, self._number_inputs)
                layouts.append(form.layout)
                tensors += form.tensors
            else:
                layouts.append(None)
                shared.append(leaf)
        inputs = _jit.inputs_of(shared, self._number_inputs)
        arguments = Arguments(structure, tuple(layouts), inputs)
        return (inputs.key(structure), arguments.layouts), arguments, inputs.tensors + tensors

    def _traced(self, key: Any, arguments: Arguments, tensors: list[Any], args: Any, kwargs: Any) -> Any:
        """The program of a call, and the tensors to run it on."""
        with self._tracing:
            if key not in self.programs:
                try:
                    self.programs[key] = Program(self._engine, self._fn, arguments, tensors)
                except CollectiveError:
                    raise
                except Exception:
                    if not arguments.have_numbers():
                        raise
                    # fn needs a number where Python or an operator does: a new number then compiles anew.
                    self._number_inputs = False
                    key, arguments, tensors = self._prepared(args, kwargs)
                    if key not in self.programs:
                        self.programs[key] = Program(self._engine, self._fn, arguments, tensors)
            return self.programs[key], tensors


class Arguments:
    """How the arguments of a call are made from tensors: first those that all replicas share, then each replica's."""

    __slots__ = ("inputs", "layouts", "structure")

    def __init__(self, structure: Any, layouts: tuple[Layout | None, ...], inputs: _jit.Inputs) -> None:
        self.structure, self.layouts, self.inputs = structure, layouts, inputs

    def have_numbers(self) -> bool:
        return bool(self.inputs.numbers) or any(x.numbers for x in self.layouts if x is not None)

    def of_replicas(self, tensors: list[Any], size: int) -> list[tuple[Any, Any]]:
        """(args, kwargs) of each replica."""
        n = len(self.inputs.tensors)
        _mark(tensors, self.inputs.numbers)
        shared = iter(_with_constants(tensors[:n], self.inputs.constants))
        columns = []
        for layout in self.layouts:
            if layout is None:
                columns.append([next(shared)] * size)
                continue
            mine = tensors[n : n + layout.begins[-1] - len(layout.constants)]
            n += len(mine)
            _mark(mine, layout.numbers)
            if len(layout.structures) != size:
                raise ArgumentTypeError(
                    f"a us.PerReplica must have one tree per replica, {size}, got {len(layout.structures)}. "
                    "Try: world.scatter or world.replicate."
                )
            columns.append([layout.tree(mine, i) for i in range(size)])
        return [tree.unflatten(self.structure, [column[i] for column in columns]) for i in range(size)]


def _mark(tensors: list[Any], numbers: frozenset[int]) -> None:
    for i in numbers:
        mark_number(tensors[i])


_OUTPUTS = (*_jit.ARRAYS, bool, int, float, complex)


class Program:
    """One graph with all replicas."""

    def __init__(self, engine: Any, fn: Callable[..., Tree], arguments: Arguments, tensors: list[Any]) -> None:
        size = len(engine.devices)
        devices = [None if engine.one_device else device for device in engine.devices]
        results: list[Any] = [None] * size
        rings: list[Any] = []

        def flat(*inputs: Any) -> list[Any]:
            calls = arguments.of_replicas(list(inputs), size)

            def replica(i: int) -> None:
                args, kwargs = calls[i]
                leaves, structure = tree.flatten(checked_result(fn(*args, **kwargs)))
                arrays = [isinstance(x, _OUTPUTS) for x in leaves]
                leaves = [
                    _on(asarray(x), devices[i]) if is_array else x for x, is_array in zip(leaves, arrays, strict=True)
                ]
                results[i] = leaves, arrays, structure

            round_ = engine.round()
            round_.run(engine, replica)
            rings[:] = round_.rings
            return [x for leaves, arrays, _ in results for x, is_array in zip(leaves, arrays, strict=True) if is_array]

        specs = [tf.TensorSpec(x.shape, x.dtype) for x in tensors]
        concrete = tf.function(flat, autograph=False).get_concrete_function(*specs)
        self._run = _fast.runner(concrete, may_inline=engine.one_device)
        self._rings = rings
        self._layout, self._static = _layout_of(concrete.outputs, results)
        results.clear()  # they hold the graph, and the graph holds them

    def __call__(self, tensors: list[Any]) -> PerReplica:
        form = Form(self._layout, self._run(tensors))
        return (
            form.per_replica()
            if self._static
            else PerReplica([_take(form, i) for i in range(len(self._layout.structures))])
        )

    def events(self) -> list[list[Event]]:
        """Each replica's collectives, as they were traced."""
        return [list(ring.events) for ring in self._rings]


def _on(x: Any, device: str | None) -> Any:
    """x on a replica's device, moved there by an op that the optimizer of graphs does not take away."""
    return x if device is None or x.device == device else tf.ensure_shape(x, x.shape)


def _layout_of(outputs: list[Any], results: list[Any]) -> tuple[Layout, bool]:
    """The layout of a program's results, and whether their shapes are known."""
    leaves = [x for found, _, _ in results for x in found]
    arrays = [is_array for _, found, _ in results for is_array in found]
    constants = {i: x for i, (x, is_array) in enumerate(zip(leaves, arrays, strict=True)) if not is_array}
    static = not constants and all(x.shape.is_fully_defined() for x in outputs)
    shapes = tuple(tuple(x.shape.as_list()) for x in outputs) if static else ()
    dtypes = tuple(x.dtype.as_datatype_enum for x in outputs) if static else ()
    return Layout(tuple(structure for _, _, structure in results), (shapes, dtypes), constants=constants), static

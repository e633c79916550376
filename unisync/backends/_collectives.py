"""Collectives of trees over any engine: who calls, groups, dtype rules, packing and stamps, written once.

An engine carries single arrays of the dtypes that it knows. Here trees are packed by dtype into flat buffers, half
precision and bool are widened, and every call is noted in the replica's ring.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from unisync import _context, _dispatch, _types as t, tree
from unisync._context import Scope
from unisync._events import site
from unisync._per_replica import PerReplica
from unisync._types import DType, Tree
from unisync.backends._engine import Done, Engine, Groups, Handle
from unisync.backends._groups import check_groups
from unisync.backends._packing import buckets, cut, flat, layout, packed, separate_buckets, size_bytes
from unisync.errors import ArgumentError, ArgumentTypeError, MixedBackendsError, ShapeError, StateError, unknown

Op = Literal["sum", "mean", "max", "min", "prod"]
OPS: tuple[str, ...] = ("sum", "mean", "max", "min", "prod")

_WIDER: dict[DType, DType] = {
    t.bool: t.int8, t.float16: t.float32, t.bfloat16: t.float32,
    t.uint8: t.int32, t.uint16: t.int32, t.uint32: t.int64,
}  # fmt: skip
"""In what dtype those that not every engine reduces are reduced."""


def all_reduce(x: Tree, op: Op, groups: Any, async_op: bool) -> Any:
    here = _here()
    if op not in OPS:
        raise unknown("op", op, OPS)
    if here is not None and not async_op and _dispatch.of.get(type(x)) is here.engine.backend:
        partition = check_groups(groups, here.engine.size)
        if _members(here.engine, partition) > 1 and math.prod(x.shape):  # one array: what a tree needs took 4 µs
            _check_op(op, here.engine.backend.dtype_of(x))
            return _reduce_one(here, x, "", op, partition)
    leaves, structure = tree.flatten(x)
    m = _backend(here, leaves)
    leaves = [_array(m, leaf) for leaf in leaves]
    for leaf in leaves:
        _check_op(op, m.dtype_of(leaf))
    partition = check_groups(groups, 1 if here is None else here.engine.size)
    if here is None or not leaves or _members(here.engine, partition) == 1:
        whole = tree.unflatten(structure, leaves)
        return Done(whole) if async_op else whole
    if async_op:
        return _Later(here, leaves, structure, op, partition)
    if here.engine.separate and len(leaves) > 1 and not any(map(here.engine.traced, leaves)):
        label = _label("all_reduce", op, partition, layout(leaves))
        return tree.unflatten(structure, _separately(here, label, leaves, op, partition))
    return tree.unflatten(structure, packed(m, leaves, lambda x, held: _reduce_one(here, x, held, op, partition)))


def _reduce_one(here: Scope, x: Any, held: str, op: str, groups: Groups | None) -> Any:
    m = here.engine.backend
    wide, native = _widened(m, x, op)
    label = _label("all_reduce", op, groups, held)
    result = noted(here, label, x, lambda: _reduced(here.engine, wide, native, groups))
    return _narrowed(m, result, x)


def _separately(here: Scope, label: str, leaves: list[Any], op: str, groups: Groups | None) -> list[Any]:
    """all_reduce of leaves in one meeting, of which only the small ones are packed."""
    m = here.engine.backend
    places = separate_buckets(m, leaves)
    arrays = [leaves[b[0]] if len(b) == 1 else flat(m, [leaves[i] for i in b]) for b in places]
    wide = [_widened(m, x, op) for x in arrays]
    event = _begin_several(here, label, arrays)
    reduced = here.engine.all_reduce_separate([x for x, _ in wide], [native for _, native in wide], groups)
    here.ring.end(event, *here.engine.waited())
    results: list[Any] = [None] * len(leaves)
    for bucket, array, result in zip(places, arrays, reduced, strict=True):
        narrow = _narrowed(m, result, array)
        shapes = [tuple(leaves[i].shape) for i in bucket]
        for i, part in zip(bucket, [narrow] if len(bucket) == 1 else cut(m, narrow, shapes, 1), strict=True):
            results[i] = part
    return results


def _reduced(engine: Engine, x: Any, op: Any, groups: Groups | None) -> Any:
    return engine.all_reduce_mean(x, groups) if op == "mean" else engine.all_reduce(x, op, groups)


def _check_op(op: str, dtype: DType) -> None:
    exact = dtype == t.bool or dtype in t.KINDS["integral"]
    if op == "mean" and exact:
        raise ArgumentTypeError(f"`x` must be of a floating-point dtype for op='mean', got {dtype}. Try: op='sum'.")
    if op in ("max", "min") and dtype in t.KINDS["complex floating"]:
        raise ArgumentTypeError(f"`x` must be of a real dtype for op={op!r}, got {dtype}. Try: us.abs(x), or op='sum'.")


def _widened(m: Any, x: Any, op: str) -> tuple[Any, str]:
    dtype = m.dtype_of(x)
    wide = _WIDER.get(dtype)
    if wide is None:
        return x, op
    if dtype == t.bool:  # a logical or, or a logical and
        op = "max" if op in ("sum", "max") else "min"
    return m.astype(x, wide), op


def _narrowed(m: Any, result: Any, x: Any) -> Any:
    dtype = m.dtype_of(x)
    return m.astype(result, dtype) if dtype in _WIDER else result


class _Later(Handle):
    """The all-reduce of a tree under way: one handle of the engine's for each bucket."""

    def __init__(self, here: Scope, leaves: list[Any], structure: Any, op: str, groups: Groups | None) -> None:
        self._scope, self._structure, self._result = here, structure, None
        self._waiting = True
        m, engine = here.engine.backend, here.engine
        size = _members(engine, groups)
        self._parts: list[tuple[Handle, Any, Callable[[], list[Any]]]] = []
        self._places: list[list[int]] = []
        for bucket in buckets(m, leaves):
            parts = [leaves[i] for i in bucket]
            array = parts[0] if len(parts) == 1 else flat(m, parts)
            wide, native = _widened(m, array, op)
            held = layout(parts) if len(parts) > 1 else ""
            event = _begin(here, _label("all_reduce", f"{op}, async", groups, held), array)
            started = "sum" if native == "mean" else native
            # No numbers, no message, which not every engine can send.
            handle = engine.start_all_reduce(wide, started, groups) if math.prod(array.shape) else Done(wide)
            finish = functools.partial(self._finish, handle, event, array, parts, size if native == "mean" else None)
            self._parts.append((handle, event, finish))
            self._places.append(bucket)

    def _finish(self, handle: Handle, event: Any, array: Any, parts: list[Any], size: int | None) -> list[Any]:
        m = self._scope.engine.backend
        result = handle.wait()
        self._scope.ring.end(event, *self._scope.engine.waited())
        if size is not None:
            result = m.divide(result, size)
        result = _narrowed(m, result, array)
        return [result] if len(parts) == 1 else cut(m, result, [tuple(p.shape) for p in parts], 1)

    def wait(self) -> Any:
        if self._waiting:
            found: dict[int, Any] = {}
            for bucket, (_, _, finish) in zip(self._places, self._parts, strict=True):
                found.update(zip(bucket, finish(), strict=True))
            self._result = tree.unflatten(self._structure, [found[i] for i in range(len(found))])
            self._waiting, self._parts = False, []
        return self._result

    def is_completed(self) -> bool:
        return all(handle.is_completed() for handle, _, _ in self._parts)


def all_gather(x: Tree, groups: Any) -> Tree:
    here, m, leaves, structure, partition, members = _prepared(x, groups)
    leaves = [m.reshape(leaf, (1,)) if not tuple(leaf.shape) else leaf for leaf in leaves]
    if here is None or members == 1:
        return tree.unflatten(structure, leaves)

    def gather(array: Any, _: str = "") -> Any:  # layouts have been compared
        return noted(here, _label("all_gather", "", partition), array, lambda: here.engine.all_gather(array, partition))

    if len(leaves) == 1 or not here.engine.same_shapes([tuple(leaf.shape) for leaf in leaves], partition):
        return tree.unflatten(structure, [gather(leaf) for leaf in leaves])
    shapes = [(members * leaf.shape[0], *leaf.shape[1:]) for leaf in leaves]
    return tree.unflatten(structure, packed(m, leaves, gather, shapes, rows_out=members))


def reduce_scatter(x: Tree, op: str, groups: Any) -> Tree:
    if op not in ("sum", "mean"):
        raise unknown("op", op, ("sum", "mean"))
    here, m, leaves, structure, partition, members = _prepared(x, groups)
    for leaf in leaves:
        _check_op(op, m.dtype_of(leaf))
    shapes = [_divided(leaf, members) for leaf in leaves]
    if here is None or members == 1:
        return tree.unflatten(structure, leaves)

    def scatter(array: Any, held: str) -> Any:
        if m.dtype_of(array) == t.bool:  # only "sum", which is a logical or, not a sum that could wrap
            wide = m.astype(array, t.int32)
        else:
            wide, _ = _widened(m, array, op)
        label = _label("reduce_scatter", op, partition, held)
        result = noted(here, label, array, lambda: here.engine.reduce_scatter(wide, partition))
        return _narrowed(m, m.divide(result, members) if op == "mean" else result, array)

    return tree.unflatten(structure, packed(m, leaves, scatter, shapes, rows_in=members))


def _divided(leaf: Any, members: int) -> tuple[int, ...]:
    """The shape of one of `members` equal slices along axis 0."""
    shape = tuple(leaf.shape)
    if not shape or shape[0] % members:
        raise ShapeError(
            f"`x` must have a first axis that the group of {members} divides, got shape {shape}. "
            "Try: pad x along axis 0."
        )
    return (shape[0] // members, *shape[1:])


def broadcast(x: Tree, root: int, groups: Any) -> Tree:
    here, m, leaves, structure, partition, members = _prepared(x, groups)
    _check_root(root, members)
    if here is None or members == 1:
        return tree.unflatten(structure, leaves)

    def send(array: Any, held: str) -> Any:
        label = _label("broadcast", str(root), partition, held)
        return noted(here, label, array, lambda: here.engine.broadcast(array, root, partition))

    return tree.unflatten(structure, packed(m, leaves, send))


def _check_root(root: int, members: int) -> None:
    if not isinstance(root, (int, np.integer)) or isinstance(root, bool) or not 0 <= root < members:
        raise ArgumentError(
            f"`root` must be a position in the group, 0 to {members - 1}, got {root!r}. "
            "Try: root=0; in groups it counts within each group."
        )


def all_to_all(x: Tree, groups: Any) -> Tree:
    here, m, leaves, structure, partition, members = _prepared(x, groups)
    for leaf in leaves:
        _divided(leaf, members)
    if here is None or members == 1:
        return tree.unflatten(structure, leaves)

    def exchange(array: Any, held: str) -> Any:
        label = _label("all_to_all", "", partition, held)
        return noted(here, label, array, lambda: here.engine.all_to_all(array, partition))

    return tree.unflatten(structure, packed(m, leaves, exchange, rows_in=members, rows_out=members))


def permute(x: Tree, pairs: Sequence[tuple[int, int]]) -> Tree:
    here, m, leaves, structure, _, _ = _prepared(x, None)
    checked = _check_pairs(pairs, 1 if here is None else here.engine.size)
    if here is None or here.engine.size == 1:
        kept = leaves if checked else [m.zeros_like(leaf) for leaf in leaves]
        return tree.unflatten(structure, kept)

    def move(array: Any, held: str) -> Any:
        return noted(
            here, _label("permute", str(list(checked)), None, held), array, lambda: here.engine.permute(array, checked)
        )

    return tree.unflatten(structure, packed(m, leaves, move))


def _check_pairs(pairs: Any, size: int) -> tuple[tuple[int, int], ...]:
    try:
        checked = tuple((operator.index(source), operator.index(target)) for source, target in pairs)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"`pairs` must be a list of (source, target) replicas, got {pairs!r}. Try: [(0, 1), (1, 0)]."
        ) from error
    sources, targets = [s for s, _ in checked], [g for _, g in checked]
    for what, numbers in (("sources", sources), ("targets", targets)):
        if any(not 0 <= n < size for n in numbers) or len(set(numbers)) != len(numbers):
            raise ArgumentError(
                f"`pairs` must have {what} of 0 to {size - 1}, each at most once, got {list(checked)}. "
                "Try: us.broadcast to reach several replicas."
            )
    return checked


def send(x: Tree, to: int) -> None:
    here, _, leaves, _, _, _ = _prepared(x, None)
    scope = _partner(here, "to", to)
    for leaf in leaves:
        noted(scope, f"send(to={to})", leaf, lambda leaf=leaf: scope.engine.send(leaf, to), counted=False)


def recv(like: Tree, source: int) -> Tree:
    here, _, leaves, structure, _, _ = _prepared(like, None)
    scope = _partner(here, "source", source)
    received = [
        noted(scope, f"recv(source={source})", leaf, lambda leaf=leaf: scope.engine.recv(leaf, source), counted=False)
        for leaf in leaves
    ]
    return tree.unflatten(structure, received)


def _partner(here: Scope | None, argument: str, replica: int) -> Scope:
    size = 1 if here is None else here.engine.size
    if isinstance(replica, bool) or not isinstance(replica, (int, np.integer)):
        raise ArgumentTypeError(f"`{argument}` must be a whole number, got {replica!r}. Try: {argument}=0.")
    if here is None or not 0 <= replica < size or (type(here.index) is int and replica == here.index):
        raise ArgumentError(
            f"`{argument}` must be another replica of the {size} in the world, got {replica!r}. "
            "Try: us.init_distributed(replicas=2)."
        )
    return here


def barrier() -> None:
    here = _here()
    if here is not None and here.engine.size > 1:
        noted(here, "barrier", None, here.engine.barrier)


def replica_index() -> Any:
    here = _here()
    return 0 if here is None else here.engine.replica_index()


def all_gather_object(value: Any, groups: Any) -> list[Any]:
    here = _here()
    partition = check_groups(groups, 1 if here is None else here.engine.size)
    if here is None or _members(here.engine, partition) == 1:
        return [value]
    return noted(
        here,
        _label("all_gather_object", "", partition),
        None,
        lambda: here.engine.all_gather_object(value, partition),
    )


def broadcast_object(value: Any, root: int, groups: Any) -> Any:
    here = _here()
    partition = check_groups(groups, 1 if here is None else here.engine.size)
    members = 1 if here is None else _members(here.engine, partition)
    _check_root(root, members)
    if here is None or members == 1:
        return value
    label = _label("broadcast_object", str(root), partition)
    return noted(here, label, None, lambda: here.engine.broadcast_object(value, root, partition))


# Who calls, and with what


def _here() -> Scope | None:
    """The replica that calls; None where it is the only one.

    Raises:
        StateError: the code runs outside `spmd`, and this process has several replicas.
    """
    scope = _context.scope()
    if scope is not None:
        return scope
    world = _context.world()
    if world is not None and world.size > 1:
        if world.own_scope is not None:  # a launched world: this process is one replica
            return world.own_scope
        raise StateError(
            f"a collective must be called by a replica, got a call outside us.spmd in a world of "
            f"{world.size} replicas. Try: us.spmd(fn)(...), with the collective inside fn."
        )
    if world is None:
        _context.check_joined()
    return None


def _prepared(x: Tree, groups: Any) -> tuple[Scope | None, Any, list[Any], Any, Groups | None, int]:
    here = _here()
    leaves, structure = tree.flatten(x)
    m = _backend(here, leaves)
    partition = check_groups(groups, 1 if here is None else here.engine.size)
    members = 1 if here is None else _members(here.engine, partition)
    return here, m, [_array(m, leaf) for leaf in leaves], structure, partition, members


def _backend(here: Scope | None, leaves: list[Any]) -> Any:
    if here is not None:
        return here.engine.backend
    arrays = [leaf for leaf in leaves if not isinstance(leaf, (np.ndarray, np.generic)) and _dispatch.is_array(leaf)]
    return _dispatch.namespace(*(arrays or leaves)[:1])


def _array(m: Any, leaf: Any) -> Any:
    """The leaf as an array of backend m: host arrays and Python numbers become one."""
    kind = type(leaf)
    if kind in (bool, int, float, complex):
        return m.asarray(leaf)
    found = _dispatch.of[kind]
    if found is m:
        return leaf
    if isinstance(leaf, (np.ndarray, np.generic)):
        return m.asarray(leaf)
    raise MixedBackendsError(
        f"`x` must hold arrays of {m.NAME}, in whose world it is sent, got one of {found.NAME}. "
        f'Try: us.convert(x, "{m.NAME}").'
    )


def checked_result(result: Tree) -> Tree:
    """What a replica's function returned, in which there must be no per-replica value."""
    if any(type(leaf) is PerReplica for leaf in tree.leaves(result)):
        raise ArgumentTypeError(
            "a function of us.spmd must return one replica's trees, got a us.PerReplica. Try: pass it to the function "
            "as an argument, of which each replica then gets its own tree."
        )
    return result


def _members(engine: Engine, groups: Groups | None) -> int:
    return engine.size if groups is None else len(groups[0])


# Stamps


def _label(op: str, detail: str, groups: Groups | None, held: str = "") -> str:
    """What the ring calls a collective: all that must be the same on all replicas, besides shape and dtype."""
    if held:
        detail = f"{detail}, {held}" if detail else held
    if groups is None:
        return f"{op}({detail})" if detail else op
    return f"{op}({detail}{', ' * bool(detail)}groups={[list(group) for group in groups]})"


def noted(scope: Scope, label: str, x: Any, call: Callable[[], Any], counted: bool = True) -> Any:
    """call(), noted in the replica's ring; one that raises stays there as not finished."""
    event = _begin(scope, label, x, counted)
    result = call()
    scope.ring.end(event, *scope.engine.waited())
    return result


ALL_REPLICAS = -1
"""The replica number of events in a program that all replicas share."""


def _begin_several(scope: Scope, label: str, arrays: list[Any]) -> Any:
    """As `_begin`, of arrays that travel in one message: how many numbers, and of what dtypes."""
    dtypes = [scope.engine.backend.dtype_of(x) for x in arrays]
    shapes = [tuple(x.shape) for x in arrays]
    size = sum(size_bytes(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True))
    numbers = (sum(map(math.prod, shapes)),)
    dtype = "+".join(dict.fromkeys(dtypes))
    return scope.ring.begin(scope.index, label, site(), numbers, dtype, size)


def _begin(scope: Scope, label: str, x: Any, counted: bool = True) -> Any:
    replica = scope.index if type(scope.index) is int else ALL_REPLICAS
    if x is None:
        return scope.ring.begin(replica, label, site(), (), "", 0, counted)
    shape, dtype = tuple(x.shape), scope.engine.backend.dtype_of(x)
    return scope.ring.begin(replica, label, site(), shape, str(dtype), size_bytes(shape, dtype), counted)

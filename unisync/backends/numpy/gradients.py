"""Gradients through the tape; nothing is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisync import tree
from unisync.backends.numpy import _dtypes, _tape, manipulation
from unisync.backends.numpy._tape import Box as _Box
from unisync.errors import ArgumentError, ArgumentTypeError, ShapeError


def value_and_grad(fn, argnums=0, has_aux=False):
    def differentiated(*args, **kwargs):
        positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        leaves, structure = tree.flatten(tuple(args[i] for i in positions))
        leaves = _checked(leaves, structure)
        trace, roots = _tape.start(leaves)
        traced = list(args)
        for i, arg in zip(positions, tree.unflatten(structure, list(roots)), strict=True):
            traced[i] = arg
        result = fn(*traced, **kwargs)
        value, aux = _value_and_aux(result, has_aux)
        gradients = _gradients(trace, roots, leaves, [value], [_one(value)])
        gradients = tree.unflatten(structure, gradients)
        value = _left(value, trace)
        if has_aux:
            value = (value, tree.map(lambda x: _left(x, trace), aux))
        return value, gradients[0] if isinstance(argnums, int) else gradients

    return differentiated


def _checked(leaves: list[Any], structure: Any) -> list[Any]:
    """The leaves as arrays that may be traced.

    Raises:
        ArgumentTypeError: one is not of a real floating-point dtype; names its path.
    """
    checked = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, float) and not isinstance(leaf, np.generic):
            leaf = np.asarray(leaf, dtype=_dtypes.FLOAT)
        dtype = getattr(leaf, "dtype", None)
        if not isinstance(dtype, np.dtype) or not _dtypes.is_float(dtype):
            path = tree.paths(tree.unflatten(structure, list(range(len(leaves)))))[i]
            got = type(leaf).__name__ if dtype is None else f"{dtype}"
            raise ArgumentTypeError(
                f"`{path}` must be a floating-point array to be differentiated, got {got}. "
                "Try: us.astype(x, us.float32), or leave it out of argnums."
            )
        checked.append(leaf if type(leaf) in (np.ndarray, _Box) else np.asarray(leaf))
    return checked


def _value_and_aux(result: Any, has_aux: bool) -> tuple[Any, Any]:
    value, aux = result, None
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:
            raise ArgumentTypeError(
                f"`fn` must return (value, aux) with has_aux=True, got {type(result).__name__}. Try: has_aux=False."
            )
        value, aux = result
    if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
        value = np.asarray(value, dtype=_dtypes.FLOAT)
    if not isinstance(value, (np.ndarray, np.generic, _Box)):
        raise ArgumentTypeError(f"`fn` must return a scalar array, got {type(value).__name__}. Try: has_aux=True.")
    if value.shape != ():
        raise ShapeError(f"`fn` must return a scalar of shape (), got {tuple(value.shape)}. Try: us.mean(value).")
    if not _dtypes.is_real_float(_dtypes.dtype_of(value)):
        raise ArgumentTypeError(
            f"`fn` must return a real floating-point scalar, got {_dtypes.dtype_of(value)}. Try: us.astype."
        )
    return value, aux


def _one(value: Any) -> Any:
    return np.ones((), dtype=_dtypes.dtype_of(value))


def _left(x: Any, trace: int) -> Any:
    """x as it is outside of the trace."""
    return x._value if _tape.belongs(x, trace) else x


def _gradients(trace: int, roots: list[Any], leaves: list[Any], outputs: list[Any], cotangents: list[Any]) -> list[Any]:
    reached = [(x._node, g) for x, g in zip(outputs, cotangents, strict=True) if _tape.belongs(x, trace)]
    found = _tape.backward([node for node, _ in reached], [g for _, g in reached])
    return [_gradient(found.get(root._node), leaf) for root, leaf in zip(roots, leaves, strict=True)]


def _gradient(found: tuple[Any, bool] | None, leaf: Any) -> Any:
    if found is None:
        return np.zeros(leaf.shape, dtype=_dtypes.dtype_of(leaf))
    g = found[0]
    if type(g) is _Box:
        return g
    g = np.asarray(g, dtype=_dtypes.dtype_of(leaf))
    # A view that repeats one number, as the gradient of a sum is, cannot be written to.
    return g if g.flags.writeable else g.copy()


def vjp(fn, *primals):
    leaves, structure = tree.flatten(primals)
    leaves = _checked(leaves, structure)
    trace, roots = _tape.start(leaves)
    value = fn(*tree.unflatten(structure, list(roots)))
    outputs, form = tree.flatten(value)

    def pullback(cotangent):
        given, given_form = tree.flatten(cotangent)
        if given_form != form:
            raise ArgumentError(f"`cotangent` must have the structure of the value, {form}, got {given_form}.")
        given = [_cotangent(g, x) for g, x in zip(given, outputs, strict=True)]
        return tree.unflatten(structure, _gradients(trace, roots, leaves, outputs, given))

    return tree.unflatten(form, [_left(x, trace) for x in outputs]), pullback


def _cotangent(g: Any, output: Any) -> Any:
    if type(output) is not _Box:
        return None
    g = g if type(g) is _Box else np.asarray(g, dtype=output.dtype)
    if g.shape != output.shape:
        raise ShapeError(f"`cotangent` must have the value's shape {output.shape}, got {g.shape}.")
    return g


def stop_gradient(x, /):
    return tree.map(_tape.getval, x)


def recompute(fn, /):
    def recomputed(*args, **kwargs):
        begin = _tape.node((), _tape._nothing, None).serial
        result = fn(*args, **kwargs)
        leaves, structure = tree.flatten(result)
        trace = max((x._trace for x in leaves if type(x) is _Box), default=None)
        if trace is None:
            return result
        places = [i for i, x in enumerate(leaves) if _tape.belongs(x, trace) and x._node.serial > begin]
        sources = _sources([leaves[i]._node for i in places], begin)
        segment = _tape.node(sources, _rerun(fn, args, kwargs, places, sources), None)
        for i in places:
            leaves[i] = _output(leaves[i], trace, segment, i)
        return tree.unflatten(structure, leaves)

    return recomputed


def _sources(ends: list[Any], begin: int) -> list[Any]:
    """The nodes older than `begin` from which the ends were computed, whether as arguments or through a closure."""
    sources, seen, stack = [], set(), list(ends)
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if n.serial < begin:
            sources.append(n)
        else:
            stack.extend(n.parents)
    return sources


def _rerun(fn: Any, args: Any, kwargs: Any, places: list[int], sources: list[Any]) -> Any:
    """The pullback of a segment: runs fn again on the same traced values, and goes back as far as the sources."""
    stop = frozenset(sources)

    def pullback(parts: _tape.Parts) -> list[Any]:
        leaves = tree.leaves(fn(*args, **kwargs))
        nodes = {i: leaves[i]._node for i in places}
        found = _tape.backward([nodes[i] for i, _ in parts.items], [g for _, g in parts.items], stop)
        return [found[s][0] if s in found else None for s in sources]

    return pullback


def _output(x: Any, trace: int, segment: Any, place: int) -> Any:
    """x without the tape behind it."""
    return _Box(x._value, trace, _tape.node((segment,), lambda g: (_tape.Parts([(place, g)]),), x._node.dtype))


def jit(fn, /, *, donate_argnums=(), torch_compile=False):
    return fn


def scan(fn, init, xs, length=None, *, reverse=False):
    leaves, structure = tree.flatten(xs)
    n = _length(leaves, length)
    carry, ys = init, []
    for i in range(n - 1, -1, -1) if reverse else range(n):
        before, (carry, y) = carry, fn(carry, tree.unflatten(structure, [x[i] for x in leaves]))
        if not ys:
            _check_carry(before, carry)
        ys.append(y)
    if not ys:
        _, y = fn(init, tree.unflatten(structure, [np.zeros(x.shape[1:], dtype=_dtypes.dtype_of(x)) for x in leaves]))
        return init, tree.map(lambda a: np.zeros((0, *a.shape), dtype=_dtypes.dtype_of(a)), y)
    if reverse:
        ys.reverse()
    return carry, tree.map(lambda *parts: manipulation.stack([_array(p) for p in parts]), *ys)


def _array(x: Any) -> Any:
    from unisync.backends.numpy.creation import asarray

    return x if hasattr(x, "dtype") else asarray(x)


def _length(leaves: list[Any], length: int | None) -> int:
    lengths = {x.shape[0] if x.shape else -1 for x in leaves} | (set() if length is None else {length})
    if len(lengths) != 1 or min(lengths) < 0:
        got = ", ".join(str(x.shape) for x in leaves) or "no arrays"
        raise ArgumentError(
            f"`xs` must be arrays with one length of their first axis, `length` if that is given, "
            f"got {got} and length={length}. Try: us.scan(fn, init, None, length=10)."
        )
    return lengths.pop()


def _check_carry(before: Any, after: Any) -> None:
    def form(carry: Any) -> Any:
        leaves, structure = tree.flatten(carry)
        return structure, [(np.shape(_tape.getval(x)), _dtypes.dtype_of(x)) for x in leaves]

    if form(before) != form(after):
        raise ArgumentTypeError(
            "`fn` must return a carry of the structure, shapes and dtypes of `init`, "
            f"got {form(after)[1]} after {form(before)[1]}. Try: us.astype or us.reshape in fn."
        )

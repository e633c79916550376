"""Gradients by leaves: the arrays to differentiate become leaves of torch's graph, and torch.autograd.grad walks it.

At the outermost level leaves are detached and results carry no graph. Inside another gradient they stay connected to
what is being differentiated there, and the graph of the gradient itself is kept.
"""

from __future__ import annotations

import functools as _functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as _np
import torch
from torch.utils.checkpoint import checkpoint as _checkpoint

from unisync import tree as _tree
from unisync._types import Tree
from unisync.backends.torch._depth import depth as _depth
from unisync.backends.torch.creation import asarray as _asarray
from unisync.errors import ArgumentError, ArgumentTypeError, ShapeError


def value_and_grad(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def differentiated(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        outer = _depth.gradients
        leaves, traced, structure = _leaves(tuple(args[i] for i in positions), outer > 0, positions)
        arguments = list(args)
        for i, tree in zip(positions, _tree.unflatten(structure, traced), strict=True):
            arguments[i] = tree
        with _Differentiating():
            result = fn(*arguments, **kwargs)
            value, aux = result if has_aux else (result, None)
            value = _checked(value)
            gradients = _gradients([value], traced, None, outer > 0)
        if outer == 0:
            value = value.detach()
            gradients = [_of_layout(g, x) for g, x in zip(gradients, leaves, strict=True)]
            if has_aux:
                aux = stop_gradient(aux)
        gradient = _tree.unflatten(structure, gradients)
        return ((value, aux) if has_aux else value), (gradient[0] if isinstance(argnums, int) else gradient)

    return _untraced(differentiated)


def _untraced(fn: Callable[..., Any]) -> Callable[..., Any]:
    """fn, which torch.compile leaves to eager torch unless it is set to trace torch.autograd.grad, as `jit` sets it.

    It would break the graph in the midst of fn otherwise, across which the structure of a tree gets lost.
    """

    @_functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() and not getattr(torch._dynamo.config, _TRACE_GRADIENTS, False):
            return torch.compiler.disable(fn)(*args, **kwargs)
        return fn(*args, **kwargs)

    return call


_TRACE_GRADIENTS = "trace_autograd_ops"  # of torch._dynamo.config, since torch 2.10; off by default


class _Differentiating:
    """One level of differentiation around a block, with torch's recording of the graph switched on."""

    __slots__ = ("recording",)

    def __enter__(self) -> None:
        _depth.gradients += 1
        self.recording = torch.is_grad_enabled()
        if not self.recording:
            torch._C._set_grad_enabled(True)

    def __exit__(self, *exception: object) -> None:
        _depth.gradients -= 1
        if not self.recording:
            torch._C._set_grad_enabled(False)


def _leaves(trees: tuple[Tree, ...], nested: bool, positions: Sequence[int]) -> tuple[list[Any], list[Any], Any]:
    """The arrays of the trees, their stand-ins in the graph, and the trees' structure."""
    leaves, structure = _tree.flatten(trees)
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            leaves[i] = leaf = _asarray(leaf) if isinstance(leaf, (float, _np.ndarray, _np.floating)) else leaf
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            raise _not_differentiable(trees, i, positions)
    if nested:
        traced = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in leaves]
    else:
        traced = [x.detach().requires_grad_() for x in leaves]
    return leaves, traced, structure


def _not_differentiable(trees: tuple[Tree, ...], index: int, positions: Sequence[int]) -> ArgumentTypeError:
    leaf, path = _tree.leaves(trees)[index], _tree.paths(trees)[index]
    position, _, rest = path.partition("/")
    where = f"argument {positions[int(position)]}" + (f' at "{rest}"' if rest else "")
    kind = str(leaf.dtype).removeprefix("torch.") if hasattr(leaf, "dtype") else type(leaf).__name__
    return ArgumentTypeError(
        f"`argnums` must select floating-point arrays, got {kind} in {where}. "
        "Try: us.astype(x, us.float32), or pass it as another argument."
    )


def _checked(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        value = _asarray(value)
    if value.ndim != 0:
        raise ShapeError(
            f"`fn` must return a scalar, got an array of shape {tuple(value.shape)}. Try: us.sum or us.mean."
        )
    if not value.is_floating_point():
        raise ArgumentTypeError(f"`fn` must return a floating-point scalar, got {value.dtype}. Try: us.astype.")
    return value


def _gradients(outputs: list[Any], inputs: list[Any], cotangents: list[Any] | None, create: bool, retain: bool = False):
    """The gradients of the outputs, with zeros where there is no path."""
    pairs = [(y, None if cotangents is None else cotangents[i]) for i, y in enumerate(outputs) if y.requires_grad]
    if not pairs or not inputs:
        return [torch.zeros_like(x) for x in inputs]
    found = torch.autograd.grad(
        [y for y, _ in pairs],
        inputs,
        None if cotangents is None else [c for _, c in pairs],
        retain_graph=create or retain,
        create_graph=create,
        allow_unused=True,
    )
    return [torch.zeros_like(x, requires_grad=False) if g is None else g for g, x in zip(found, inputs, strict=True)]


def _of_layout(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """g in the memory layout of x, which a fused update of both needs (.backward() does the same:
    https://pytorch.org/docs/stable/autograd.html#default-gradient-layouts)."""
    strides = x.stride()
    if g.stride() == strides:
        return g
    if g.is_contiguous() and x.is_contiguous():  # they differ in the strides of axes of length 1 only
        return g.as_strided(x.shape, strides)
    return torch.empty_like(x, requires_grad=False).copy_(g)


def vjp(fn: Callable[..., Any], *primals: Tree) -> tuple[Tree, Callable[[Tree], tuple[Any, ...]]]:
    outer = _depth.gradients
    leaves, traced, structure = _leaves(primals, outer > 0, range(len(primals)))
    with _Differentiating():
        value = fn(*_tree.unflatten(structure, traced))
    outputs, shape = _tree.flatten(value)

    def pullback(cotangent: Tree) -> tuple[Any, ...]:
        cotangents, given = _tree.flatten(cotangent)
        if given != shape:
            raise ArgumentError(
                f"`cotangent` must have the structure of the value, {shape}, got {given}. Try: us.tree.map."
            )
        create = _depth.gradients > 0
        cotangents = [c if isinstance(c, torch.Tensor) else _asarray(c) for c in cotangents]
        gradients = _gradients(outputs, traced, cotangents, create, retain=True)
        if not create:
            gradients = [_of_layout(g, x) for g, x in zip(gradients, leaves, strict=True)]
        return _tree.unflatten(structure, gradients)

    return (stop_gradient(value) if outer == 0 else value), pullback


def stop_gradient(x: Tree, /) -> Tree:
    if isinstance(x, torch.Tensor):
        return x.detach()
    return _tree.map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, x)


def recompute(fn: Callable[..., Any], /) -> Callable[..., Any]:
    @_functools.wraps(fn)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        # Random numbers come from keys: torch's own generator need not be stored and wound back.
        return _checkpoint(fn, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    return recomputed


def jit(
    fn: Callable[..., Any], /, *, donate_argnums: Sequence[int] = (), torch_compile: bool = False
) -> Callable[..., Any]:
    if not torch_compile:
        return fn
    compiled, config = torch.compile(fn), torch._dynamo.config
    if not hasattr(config, _TRACE_GRADIENTS):
        return compiled
    settings = {_TRACE_GRADIENTS: True}

    @_functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with config.patch(settings):
            return compiled(*args, **kwargs)

    return call


def scan(
    fn: Callable[[Tree, Tree], tuple[Tree, Tree]],
    init: Tree,
    xs: Tree,
    length: int | None = None,
    *,
    reverse: bool = False,
) -> tuple[Tree, Tree]:
    leaves, structure = _tree.flatten(xs)
    rounds = _rounds(leaves, length)
    slices = [leaf.unbind() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    carry, ys = init, []
    for i in reversed(range(rounds)) if reverse else range(rounds):
        carry, y = fn(carry, _tree.unflatten(structure, [column[i] for column in slices]))
        ys.append(y)
    if reverse:
        ys.reverse()
    if rounds == 0:  # one round for the shapes alone
        with torch.no_grad():
            _, y = fn(init, _tree.unflatten(structure, [_asarray(leaf).new_zeros(leaf.shape[1:]) for leaf in leaves]))
        return carry, _tree.map(lambda leaf: _asarray(leaf).new_empty((0, *_asarray(leaf).shape)), y)
    return carry, _tree.map(lambda *column: torch.stack([_asarray(y) for y in column]), *ys)


def _rounds(leaves: list[Any], length: int | None) -> int:
    found = {leaf.shape[0] for leaf in leaves} | (set() if length is None else {length})
    if not found:
        raise ArgumentError("`length` must be given where `xs` has no arrays, got None. Try: length=10.")
    if len(found) > 1:
        raise ArgumentError(
            f"`xs` must have one first axis, equal to `length` if given, got {sorted(found)}. Try: check xs."
        )
    return found.pop()

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
    flattener, aux_flattener = _tree.Flattener(), _tree.Flattener()

    def differentiated(compiling: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        nested = _depth.gradients > 0
        trees = tuple([args[i] for i in positions])
        # torch.compile traces through optree alone, not through what a flattener remembers.
        leaves, traced, structure = _leaves(trees, nested, _tree if compiling else flattener)
        arguments = list(args)
        for i, tree in zip(positions, _tree.unflatten(structure, traced), strict=True):
            arguments[i] = tree
        with _Differentiating():
            result = fn(*arguments, **kwargs)
            value, aux = _value_and_aux(result, has_aux)
            gradients = _gradients_of_scalar(value, traced, nested, compiling)
        if not nested:
            value = value.detach()
            # Written out, since most are of the layout: what stands between large kernels runs from cold caches.
            gradients = [
                g if g.stride() == x.stride() else _of_layout(g, x) for g, x in zip(gradients, leaves, strict=True)
            ]
            if has_aux:
                aux = _detached(aux, _tree if compiling else aux_flattener)
        gradient = _tree.unflatten(structure, gradients)
        return ((value, aux) if has_aux else value), (gradient[0] if isinstance(argnums, int) else gradient)

    return _untraced(differentiated)


def _backward_pass(
    fn: Callable[..., Any], params: Tree, args: Sequence[Any], flattener: _tree.Flattener, before: Callable[..., None]
) -> tuple[Any, Any, list[Any], Any]:
    """fn(params, *args) = (value, aux), and a backward pass from value that gives the gradients to the leaves' hooks.

    `before` is called with the params' leaves, their stand-ins in the graph, and aux, between the two passes.
    Returns (value, aux, leaves, structure of (params,)).
    """
    leaves, traced, structure = _leaves((params,), False, flattener)
    with _Differentiating():
        value, aux = _value_and_aux(fn(_tree.unflatten(structure, traced)[0], *args), True)
        aux = _detached(aux, _tree)
        with torch.no_grad():
            before(leaves, traced, aux)
        if value.requires_grad:
            value.backward(inputs=traced)
    return value.detach(), aux, leaves, structure


def _untraced(fn: Callable[..., Any]) -> Callable[..., Any]:
    """fn(whether it is traced, args, kwargs), which torch.compile leaves to eager torch unless it is set to trace
    torch.autograd.grad, as `jit` sets it.

    It would break the graph in the midst of fn otherwise, across which the structure of a tree gets lost.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            return fn(False, args, kwargs)
        if getattr(torch._dynamo.config, _TRACE_GRADIENTS, False):
            return fn(True, args, kwargs)
        eager: Any = torch.compiler.disable(fn)
        return eager(False, args, kwargs)

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


def _leaves(trees: tuple[Tree, ...], nested: bool, flattener: Any) -> tuple[list[Any], list[Any], Any]:
    """The arrays of the trees, their stand-ins in the graph, and the trees' structure.

    Raises:
        ArgumentTypeError: an array is not of a real floating-point dtype; names its path.
    """
    leaves, structure = flattener.flatten(trees)
    if not nested and False not in [type(x) is torch.Tensor and x.is_floating_point() for x in leaves]:
        return leaves, [x.detach().requires_grad_() for x in leaves], structure
    for i, leaf in enumerate(leaves):
        if type(leaf) is torch.Tensor and leaf.is_floating_point():
            continue
        if not isinstance(leaf, torch.Tensor):
            leaf = _asarray(leaf) if isinstance(leaf, (float, _np.ndarray, _np.generic)) else leaf
            leaves[i] = leaf
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            got = str(leaf.dtype).removeprefix("torch.") if hasattr(leaf, "dtype") else type(leaf).__name__
            raise ArgumentTypeError(
                f"`{_tree.paths(trees)[i]}` must be a floating-point array to be differentiated, got {got}. "
                "Try: us.astype(x, us.float32), or leave it out of argnums."
            )
    if nested:
        traced = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in leaves]
    else:
        traced = [x.detach().requires_grad_() for x in leaves]
    return leaves, traced, structure


def _value_and_aux(result: Any, has_aux: bool) -> tuple[torch.Tensor, Any]:
    if has_aux and type(result) is tuple and len(result) == 2:
        value, aux = result
        if type(value) is torch.Tensor and value.ndim == 0 and value.is_floating_point():
            return value, aux
    value, aux = result, None
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:
            raise ArgumentTypeError(
                f"`fn` must return (value, aux) with has_aux=True, got {type(result).__name__}. Try: has_aux=False."
            )
        value, aux = result
    if not isinstance(value, torch.Tensor):
        if not isinstance(value, (bool, int, float, _np.ndarray, _np.generic)):
            raise ArgumentTypeError(f"`fn` must return a scalar array, got {type(value).__name__}. Try: has_aux=True.")
        value = _asarray(float(value) if isinstance(value, (bool, int)) else value)
    if value.ndim != 0:
        raise ShapeError(f"`fn` must return a scalar of shape (), got {tuple(value.shape)}. Try: us.mean(value).")
    if not value.is_floating_point():
        got = str(value.dtype).removeprefix("torch.")
        raise ArgumentTypeError(f"`fn` must return a real floating-point scalar, got {got}. Try: us.astype.")
    return value, aux


def _gradients_of_scalar(value: torch.Tensor, inputs: list[Any], create: bool, compiling: bool) -> list[Any]:
    if not value.requires_grad or not inputs:
        return [torch.zeros_like(x) for x in inputs]
    walk = None if create or compiling else _engine()
    if walk is None:
        found = torch.autograd.grad(value, inputs, retain_graph=create, create_graph=create, allow_unused=True)
    else:
        found = walk((value,), (torch.ones_like(value),), False, False, tuple(inputs), True, accumulate_grad=False)
    return [torch.zeros_like(x, requires_grad=False) if g is None else g for g, x in zip(found, inputs, strict=True)]


@_functools.cache
def _engine() -> Any:
    """What torch.autograd.grad calls after 30 Python calls of checks, which take 10 of 550 µs in a step of a small
    model; None where torch has it no more as it is known here."""
    try:
        walk = torch.autograd.Variable._execution_engine.run_backward  # type: ignore[attr-defined]
        x = torch.ones(2, requires_grad=True)
        with torch.enable_grad():
            value = (3 * x).sum()
        found = walk((value,), (torch.ones_like(value),), False, False, (x, torch.ones(1, requires_grad=True)), True,
                     accumulate_grad=False)  # fmt: skip
        return walk if found[0].tolist() == [3.0, 3.0] and found[1] is None and x.grad is None else None
    except Exception:
        return None


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
    leaves, traced, structure = _leaves(primals, outer > 0, _tree.Flattener())
    with _Differentiating():
        value = fn(*_tree.unflatten(structure, traced))
    outputs, form = _tree.flatten(value)

    def pullback(cotangent: Tree) -> tuple[Any, ...]:
        given, given_form = _tree.flatten(cotangent)
        if given_form != form:
            raise ArgumentError(f"`cotangent` must have the structure of the value, {form}, got {given_form}.")
        given = [_cotangent(g, y) for g, y in zip(given, outputs, strict=True)]
        create = _depth.gradients > 0
        gradients = _gradients(outputs, traced, given, create, retain=True)
        if not create:
            gradients = [_of_layout(g, x) for g, x in zip(gradients, leaves, strict=True)]
        return _tree.unflatten(structure, gradients)

    return (stop_gradient(value) if outer == 0 else value), pullback


def _cotangent(g: Any, output: Any) -> torch.Tensor:
    g = _asarray(g, dtype=output.dtype)
    if g.shape != output.shape:
        raise ShapeError(f"`cotangent` must have the value's shape {tuple(output.shape)}, got {tuple(g.shape)}.")
    return g


def stop_gradient(x: Tree, /) -> Tree:
    return x.detach() if isinstance(x, torch.Tensor) else _detached(x, _tree)


def _detached(x: Tree, flattener: Any) -> Tree:
    leaves, structure = flattener.flatten(x)
    if not leaves:
        return x
    return _tree.unflatten(structure, [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])


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
    rounds = _length(leaves, length)
    columns = [leaf.unbind() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    carry, ys = init, []
    for i in reversed(range(rounds)) if reverse else range(rounds):
        before, (carry, y) = carry, fn(carry, _tree.unflatten(structure, [column[i] for column in columns]))
        if not ys:
            _check_carry(before, carry)
        ys.append(y)
    if not ys:  # one round for the shapes alone
        _, y = fn(init, _tree.unflatten(structure, [_asarray(leaf).new_zeros(leaf.shape[1:]) for leaf in leaves]))
        return init, _tree.map(lambda leaf: _asarray(leaf).new_zeros((0, *_asarray(leaf).shape)), y)
    if reverse:
        ys.reverse()
    return carry, _tree.map(lambda *column: torch.stack([_asarray(y) for y in column]), *ys)


def _length(leaves: list[Any], length: int | None) -> int:
    lengths = {x.shape[0] if x.shape else -1 for x in leaves} | (set() if length is None else {length})
    if len(lengths) != 1 or min(lengths) < 0:
        got = ", ".join(str(tuple(x.shape)) for x in leaves) or "no arrays"
        raise ArgumentError(
            f"`xs` must be arrays with one length of their first axis, `length` if that is given, "
            f"got {got} and length={length}. Try: us.scan(fn, init, None, length=10)."
        )
    return lengths.pop()


def _check_carry(before: Any, after: Any) -> None:
    (old, structure), (new, new_structure) = _tree.flatten(before), _tree.flatten(after)
    if structure != new_structure or any(map(_differ, old, new)):
        raise ArgumentTypeError(
            "`fn` must return a carry of the structure, shapes and dtypes of `init`, "
            f"got {_forms(new)} after {_forms(old)}. Try: us.astype or us.reshape in fn."
        )


def _differ(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False  # a Python number becomes what the first round makes of it
    return a.shape != b.shape or a.dtype is not b.dtype


def _forms(leaves: list[Any]) -> list[Any]:
    return [(tuple(x.shape), str(x.dtype)) if hasattr(x, "dtype") else type(x).__name__ for x in leaves]

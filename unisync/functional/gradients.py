"""Gradients, compilation, recurrences and recomputation, of one meaning on every backend.

The backend of a transformed function is that of the first array among its arguments (else the current one).
Arguments and results may be trees. Gradients come back in the structure and dtype of what was differentiated, with
zeros for what the result does not depend on; they nest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from unisync import tree
from unisync._dispatch import current_namespace, is_array, of
from unisync._key import Key
from unisync._types import F, Tree


def value_and_grad(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """A function that returns fn's value and its gradient.

    Args:
        fn: function whose value is a real floating-point scalar array (shape ()), or (scalar, aux) if has_aux.
        argnums: the position(s) of the argument(s) to differentiate: trees of floating-point arrays.
        has_aux: whether fn returns (scalar, aux); aux is a tree that is not differentiated.

    Returns:
        Function of fn's arguments that returns (value, gradient); value is (scalar, aux) if has_aux, and gradient a
        tuple if argnums is a sequence.

    Raises:
        ShapeError: the value is not a scalar.
        ArgumentTypeError: a leaf to differentiate is not of a floating-point dtype.

    Example:
        >>> f = us.value_and_grad(lambda x: us.sum(x * x))
        >>> value, gradient = f(us.asarray([1.0, 2.0]))
        >>> float(value), gradient
        (5.0, array([2., 4.], dtype=float32))
    """

    natives: dict[str, Callable[..., Any]] = {}

    @functools.wraps(fn)
    def differentiated(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        m = backend_of(args, kwargs)
        if m.NAME not in natives:
            natives[m.NAME] = m.value_and_grad(fn, argnums, has_aux)
        return natives[m.NAME](*args, **kwargs)

    return differentiated


def grad(fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns fn's gradient, or (gradient, aux) if has_aux. Otherwise as `value_and_grad`.

    Example:
        >>> us.grad(lambda x: us.sum(x**3))(us.asarray([1.0, 2.0]))
        array([ 3., 12.], dtype=float32)
    """
    both = value_and_grad(fn, argnums, has_aux)

    @functools.wraps(fn)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return gradient


def vjp(fn: Callable[..., Any], *primals: Tree) -> tuple[Tree, Callable[[Tree], tuple[Any, ...]]]:
    """fn's value at the primals, and the function from its cotangent to those of the primals.

    Args:
        fn: function from trees of arrays to a tree of arrays.
        primals: its arguments, trees of floating-point arrays.

    Returns:
        (value, pullback): pullback takes a tree like the value and returns one tree per primal. It may be called
        more than once.

    Example:
        >>> value, pullback = us.vjp(lambda x: x * x, us.asarray([1.0, 2.0]))
        >>> pullback(us.asarray([1.0, 10.0]))
        (array([ 2., 40.], dtype=float32),)
    """
    return backend_of(primals).vjp(fn, *primals)


def stop_gradient(x: Tree, /) -> Tree:
    """x as a constant: no gradient flows through it.

    Args:
        x: array or tree of arrays.

    Returns:
        The same numbers.

    Example:
        >>> us.grad(lambda x: us.sum(x * us.stop_gradient(x)))(us.asarray([3.0]))
        array([3.], dtype=float32)
    """
    return backend_of((x,)).stop_gradient(x)


def recompute(fn: F, /) -> F:
    """fn with its inner activations dropped after the forward pass and computed again in the backward pass.

    Saves memory for the price of a second forward pass. The gradient is the same.

    Args:
        fn: function of trees of arrays; must give the same result when called again.

    Returns:
        Function of the same arguments and value.

    Example:
        >>> us.grad(us.recompute(lambda x: us.sum(us.exp(x))))(us.asarray([0.0]))
        array([1.], dtype=float32)
    """

    @functools.wraps(fn)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        return backend_of(args, kwargs).recompute(fn)(*args, **kwargs)

    return recomputed  # type: ignore[return-value]


def jit(fn: F, /, *, donate_argnums: Sequence[int] = (), torch_compile: bool = False) -> F:
    """fn compiled by the framework: jax.jit, tf.function, torch.compile (opt-in); NumPy runs it as it is.

    fn must be traceable: its Python code runs once for each structure, shape and dtype of its arguments, and side
    effects are undefined. Array leaves are inputs; what else stands in the arguments (strings, None, functions) is a
    constant.

    Args:
        fn: function of trees of arrays.
        donate_argnums: positions of arguments whose memory may be used for the results (jax); do not use these
            arrays again, on any backend.
        torch_compile: whether to compile on torch too; off by default, since a compile takes tens of seconds and
            eager torch is often as fast.

    Returns:
        Function of the same arguments and value.

    Example:
        >>> us.jit(lambda x: us.exp(x) + 1)(us.asarray([0.0]))
        array([2.], dtype=float32)
    """
    compiled: dict[str, Callable[..., Any]] = {}

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        m = backend_of(args, kwargs)
        if m.NAME not in compiled:
            compiled[m.NAME] = m.jit(fn, donate_argnums=tuple(donate_argnums), torch_compile=torch_compile)
        return compiled[m.NAME](*args, **kwargs)

    return call  # type: ignore[return-value]


def scan(
    fn: Callable[[Tree, Tree], tuple[Tree, Tree]],
    init: Tree,
    xs: Tree,
    length: int | None = None,
    *,
    reverse: bool = False,
) -> tuple[Tree, Tree]:
    """A recurrence over the first axis: carry, y = fn(carry, x) for each x in turn.

    One loop in the compiled function on jax and tensorflow, a Python loop on numpy and torch. Differentiable.

    Args:
        fn: (carry, x) → (carry, y); the carry keeps its structure, shapes and dtypes.
        init: the first carry: a tree of arrays.
        xs: a tree of arrays with one first axis, or None.
        length: how many rounds; needed only if xs has no arrays.
        reverse: whether to go from the last x to the first; ys stay in the order of xs.

    Returns:
        (the last carry, the ys stacked along a new first axis).

    Raises:
        ArgumentError: there is neither an array in xs nor a length, or they differ.

    Example:
        >>> us.scan(lambda c, x: (c + x, c + x), us.asarray(0), us.asarray([1, 2, 3]))[1]
        array([1, 3, 6])
    """
    return backend_of((init, xs)).scan(fn, init, xs, length, reverse=reverse)


def backend_of(*trees: Tree) -> Any:
    """The backend module of the arrays in the trees; NumPy arrays are host data beside another backend's.

    With no array but those of random keys, the current backend.
    """
    for t in trees:  # the usual case, without flattening: the first leaf is a framework's array
        leaf = _first(t)
        if type(leaf) in of and is_array(leaf) and not isinstance(leaf, (np.ndarray, np.generic)):
            return of[type(leaf)]
    host = False
    for t in trees:
        for leaf in tree.leaves(t):
            if is_array(leaf):
                if not isinstance(leaf, (np.ndarray, np.generic)):
                    return of[type(leaf)]
                host = True
    current = current_namespace()
    if not host or current is of[np.ndarray]:
        return current
    for leaf in optree.tree_leaves(trees, is_leaf=lambda node: type(node) is Key, namespace=tree.NAMESPACE):  # type: ignore[arg-type]
        if isinstance(leaf, (np.ndarray, np.generic)):
            return of[np.ndarray]
    return current


def _first(t: Tree) -> Any:
    """The first leaf of nested dicts, lists and tuples, or the node where the way down ends."""
    while True:
        if type(t) is dict and t:
            t = next(iter(t.values()))
        elif (type(t) is tuple or type(t) is list) and t:
            t = t[0]
        else:
            return t

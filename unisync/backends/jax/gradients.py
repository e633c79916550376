"""Gradients, compilation and loops: jax's own transformations, with the checks that all backends share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisync._key import Key as _Key, flatten_key as _flatten_key, unflatten_key as _unflatten_key
from unisync.backends.jax import _constants, _dtypes
from unisync.errors import ArgumentError, ArgumentTypeError, ShapeError

jax.tree_util.register_pytree_node(_Key, _flatten_key, _unflatten_key)  # type: ignore[arg-type]


def value_and_grad(fn, argnums=0, has_aux=False):
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def scalar(*args, **kwargs):
        return _checked_value(fn(*args, **kwargs), has_aux)

    native = jax.value_and_grad(scalar, argnums if isinstance(argnums, int) else positions, has_aux)

    def differentiated(*args, **kwargs):
        given = list(args)
        for i, tree in zip(positions, _checked(tuple(args[i] for i in positions)), strict=True):
            given[i] = tree
        return native(*given, **kwargs)

    return differentiated


def _checked(trees: tuple[Any, ...]) -> tuple[Any, ...]:
    """The trees, with Python floats made arrays.

    Raises:
        ArgumentTypeError: a leaf is not of a real floating-point dtype; names its path.
    """
    leaves, structure = jax.tree_util.tree_flatten(trees)
    if any(type(leaf) is float for leaf in leaves):
        leaves = [jnp.asarray(leaf, _dtypes.FLOAT) if type(leaf) is float else leaf for leaf in leaves]
        trees = jax.tree_util.tree_unflatten(structure, leaves)
    for i, leaf in enumerate(leaves):
        dtype = getattr(leaf, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            path = jax.tree_util.tree_flatten_with_path(trees)[0][i][0]
            got = type(leaf).__name__ if dtype is None else str(dtype)
            raise ArgumentTypeError(
                f"`{jax.tree_util.keystr(path, simple=True, separator='/')}` must be a floating-point array to be "
                f"differentiated, got {got}. Try: us.astype(x, us.float32), or leave it out of argnums."
            )
    return trees


def _checked_value(result: Any, has_aux: bool) -> Any:
    value, aux = result, None
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:
            raise ArgumentTypeError(
                f"`fn` must return (value, aux) with has_aux=True, got {type(result).__name__}. Try: has_aux=False."
            )
        value, aux = result
    if type(value) in (bool, int, float):
        value = jnp.asarray(value, _dtypes.FLOAT)
    if not _constants.is_array(value):
        raise ArgumentTypeError(f"`fn` must return a scalar array, got {type(value).__name__}. Try: has_aux=True.")
    if value.shape != ():
        raise ShapeError(f"`fn` must return a scalar of shape (), got {tuple(value.shape)}. Try: us.mean(value).")
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise ArgumentTypeError(f"`fn` must return a real floating-point scalar, got {value.dtype}. Try: us.astype.")
    return (value, aux) if has_aux else value


def vjp(fn, *primals):
    value, native = jax.vjp(fn, *_checked(primals))
    outputs, form = jax.tree_util.tree_flatten(value)

    def pullback(cotangent):
        given, given_form = jax.tree_util.tree_flatten(cotangent)
        if given_form != form:
            raise ArgumentError(f"`cotangent` must have the structure of the value, {form}, got {given_form}.")
        given = [_cotangent(g, x) for g, x in zip(given, outputs, strict=True)]
        return native(jax.tree_util.tree_unflatten(form, given))

    return value, pullback


def _cotangent(g: Any, output: Any) -> Any:
    if output.dtype.kind in _dtypes.INTEGER_KINDS:
        return np.zeros(output.shape, jax.dtypes.float0)  # jax's cotangent of an integer
    g = jnp.asarray(g, output.dtype)
    if g.shape != output.shape:
        raise ShapeError(f"`cotangent` must have the value's shape {output.shape}, got {g.shape}.")
    return g


def stop_gradient(x, /):
    return jax.tree_util.tree_map(lambda leaf: jax.lax.stop_gradient(leaf) if isinstance(leaf, jax.Array) else leaf, x)


def recompute(fn, /):
    def recomputed(*args, **kwargs):
        arrays, rest = _constants.split((args, kwargs), _constants.is_array)

        def of_arrays(arrays):
            args, kwargs = _constants.join(rest, arrays)
            return fn(*args, **kwargs)

        return jax.checkpoint(of_arrays)(arrays)

    return recomputed


def jit(fn, /, *, donate_argnums=(), torch_compile=False):
    native = jax.jit(fn, donate_argnums=tuple(donate_argnums))
    beside_constants: Any = None

    def call(*args, **kwargs):
        nonlocal beside_constants
        if beside_constants is not None:
            return beside_constants(*args, **kwargs)
        # Straight into jax.jit, whose C++ flattens the arguments. It refuses a string or an object with a TypeError
        # before fn runs, and a flag that fn branches on while it runs; only then are constants looked for.
        try:
            return native(*args, **kwargs)
        except TypeError:
            if all(map(_constants.is_input, jax.tree_util.tree_leaves((args, kwargs)))):
                raise
        compiled = _beside_constants(fn, donate_argnums)
        result = compiled(*args, **kwargs)
        beside_constants = compiled
        return result

    return call


def _beside_constants(fn: Any, donate_argnums: Any) -> Any:
    """fn compiled once for each set of constants among its arguments."""

    def run(rests, *inputs):
        *args, kwargs = (_constants.join(rest, kept) for rest, kept in zip(rests, inputs, strict=True))
        return fn(*args, **kwargs)

    native = jax.jit(run, static_argnums=0, donate_argnums=tuple(i + 1 for i in donate_argnums))

    def call(*args, **kwargs):
        inputs, rests = zip(*(_constants.split(arg, _constants.is_input) for arg in (*args, kwargs)), strict=True)
        try:
            hash(rests)
        except TypeError as error:
            raise ArgumentTypeError(
                f"constants among the arguments of a compiled function must be hashable: {error}. "
                "Try: a frozen dataclass, or a closure."
            ) from error
        return native(rests, *inputs)

    return call


def scan(fn, init, xs, length=None, *, reverse=False):
    leaves = jax.tree_util.tree_leaves(xs)
    lengths = {x.shape[0] if x.shape else -1 for x in leaves} | (set() if length is None else {length})
    if len(lengths) != 1 or min(lengths) < 0:
        got = ", ".join(str(x.shape) for x in leaves) or "no arrays"
        raise ArgumentError(
            f"`xs` must be arrays with one length of their first axis, `length` if that is given, "
            f"got {got} and length={length}. Try: us.scan(fn, init, None, length=10)."
        )

    def step(carry, x):
        after, y = fn(carry, x)
        _check_carry(carry, after)
        return after, y

    return jax.lax.scan(step, init, xs, lengths.pop(), reverse=reverse)


def _check_carry(before: Any, after: Any) -> None:
    leaves, structure = jax.tree_util.tree_flatten(before)
    changed, changed_structure = jax.tree_util.tree_flatten(after)
    if structure == changed_structure:
        pairs = zip(leaves, map(jnp.asarray, changed), strict=True)
        # A weakly typed carry, from a Python number, becomes what the first round makes of it.
        if all(b.shape == a.shape and (b.weak_type or b.dtype == a.dtype) for b, a in pairs):
            return
    raise ArgumentTypeError(
        "`fn` must return a carry of the structure, shapes and dtypes of `init`, "
        f"got {_forms(changed)} after {_forms(leaves)}. Try: us.astype or us.reshape in fn."
    )


def _forms(leaves: list[Any]) -> list[tuple[Any, str]]:
    return [(jnp.shape(x), str(jnp.result_type(x))) for x in leaves]

"""What in a function's arguments is no array, set aside while jax looks at the arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

_ARRAYS = (jax.Array, np.ndarray, np.generic)
_NUMBERS = (int, float, complex)


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an array, of jax or on the host."""
    return isinstance(leaf, _ARRAYS)


def is_input(leaf: Any) -> bool:
    """Whether a compiled function takes a leaf as input: arrays and numbers, but not flags, which code branches on."""
    return isinstance(leaf, _ARRAYS) or (isinstance(leaf, _NUMBERS) and not isinstance(leaf, bool))


def split(tree: Any, is_kept: Callable[[Any], bool]) -> tuple[list[Any], tuple[Any, ...]]:
    """The leaves to keep, and the rest of the tree: its structure and other leaves, hashable if these are."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    kept = [leaf for leaf in leaves if is_kept(leaf)]
    # With their types, since 1 and True are equal in Python.
    return kept, (structure, tuple(None if is_kept(leaf) else (type(leaf), leaf) for leaf in leaves))


def join(rest: tuple[Any, ...], kept: Iterable[Any]) -> Any:
    """The inverse of `split`, for leaves that may have been replaced."""
    structure, entries = rest
    leaves = iter(kept)
    return jax.tree_util.tree_unflatten(structure, [next(leaves) if e is None else e[1] for e in entries])

"""From saved trees to trees of native arrays in the structure that a model or optimizer expects."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisync import tree as trees
from unisync._dispatch import is_array
from unisync._types import Tree
from unisync.errors import CheckpointError
from unisync.functional.creation import asarray
from unisync.functional.random import Key


def fit(saved: Tree, expected: Tree, name: str) -> Tree:
    """The saved numbers as a tree like `expected`: its structure, its leaves' backend, device and kinds.

    Leaves are matched by path, so that a tree saved on one backend fits another's. An array keeps the dtype that it
    was saved in; a Python number stays one.

    Args:
        saved: a tree of NumPy arrays and numbers, of `read`.
        expected: a tree of native arrays and numbers.
        name: what the trees are called, for errors.

    Raises:
        CheckpointError: leaves are missing, too many, or of another shape; names them.
    """
    structure = trees.structure(expected)
    paths, leaves = _named(expected), trees.leaves(expected)
    found = dict(zip(_named(saved), trees.leaves(saved), strict=True))
    missing, extra = [p for p in paths if p not in found], sorted(found.keys() - set(paths))
    if missing or extra:
        what = [f"{label} {', '.join(odd[:5])}" for label, odd in (("no", missing), ("also", extra)) if odd]
        raise CheckpointError(
            f"the {name} must be those of this model, got {' and '.join(what)}. "
            "Try: trees of the same names as trainer.params, or the model, loss and optimizer of the checkpoint."
        )
    return trees.unflatten(
        structure, [_fit_leaf(found[path], leaf, f"{name}/{path}") for path, leaf in zip(paths, leaves, strict=True)]
    )


def native(saved: Tree, like: Any) -> Tree:
    """The saved tree with its arrays made native, of the backend and on the device of `like`."""
    return trees.map(lambda leaf: _array(leaf, like) if isinstance(leaf, np.ndarray) else leaf, saved)


def _named(tree: Tree) -> list[str]:
    return trees.paths(tree)


def _fit_leaf(saved: Any, leaf: Any, path: str) -> Any:
    if not is_array(leaf):
        return type(leaf)(saved) if isinstance(leaf, (bool, int, float)) else saved
    if isinstance(saved, Key):
        return saved
    if np.shape(saved) != tuple(leaf.shape):
        raise CheckpointError(
            f"{path} must have shape {tuple(leaf.shape)}, got {np.shape(saved)}. "
            "Try: params of the same sizes, or the model of the checkpoint."
        )
    return _array(np.asarray(saved) if not isinstance(saved, np.ndarray) else saved, leaf)


def _array(saved: np.ndarray, like: Any) -> Any:
    dtype = getattr(saved, "saved_dtype", None)
    return asarray(np.array(saved, subok=False), dtype=dtype, like=like)

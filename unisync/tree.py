"""Trees: nested dicts, lists, tuples and named tuples of arrays. A thin face on optree.

`None` is an empty tree; dicts are walked in sorted key order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree
from optree import PyTreeSpec as Structure

from unisync._types import Tree

NAMESPACE = "unisync"
"""The optree namespace in which unisync registers its own node types."""


def flatten(tree: Tree) -> tuple[list[Any], Structure]:
    """The leaves of a tree in order, and its structure.

    Example:
        >>> us.tree.flatten({"b": 2, "a": [0, 1]})[0]
        [0, 1, 2]
    """
    return optree.tree_flatten(tree, namespace=NAMESPACE)  # type: ignore[return-value]


def unflatten(structure: Structure, leaves: list[Any]) -> Tree:
    """The tree of a structure with the given leaves.

    Example:
        >>> leaves, structure = us.tree.flatten({"a": [0, 1]})
        >>> us.tree.unflatten(structure, [5, 6])
        {'a': [5, 6]}
    """
    return optree.tree_unflatten(structure, leaves)


def leaves(tree: Tree) -> list[Any]:
    """The leaves of a tree in order.

    Example:
        >>> us.tree.leaves({"b": 2, "a": [0, None, 1]})
        [0, 1, 2]
    """
    return optree.tree_leaves(tree, namespace=NAMESPACE)


def structure(tree: Tree) -> Structure:
    """The structure of a tree; equal for trees of the same shape.

    Example:
        >>> us.tree.structure({"a": 1}) == us.tree.structure({"a": 2})
        True
    """
    return optree.tree_structure(tree, namespace=NAMESPACE)


def map(function: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """The tree of function(leaf, *leaves of the other trees at the same place).

    Raises:
        ValueError: the trees differ in structure.

    Example:
        >>> us.tree.map(lambda a, b: a + b, {"x": 1}, {"x": 10})
        {'x': 11}
    """
    return optree.tree_map(function, tree, *rest, namespace=NAMESPACE)


def paths(tree: Tree) -> list[str]:
    """The path of each leaf: keys joined by "/".

    Example:
        >>> us.tree.paths({"a": {"w": 1}, "b": [2, 3]})
        ['a/w', 'b/0', 'b/1']
    """
    return ["/".join(str(key) for key in path) for path in optree.tree_paths(tree, namespace=NAMESPACE)]


def map_with_path(function: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """As `map`, with the leaf's path (keys joined by "/") as the first argument.

    Example:
        >>> us.tree.map_with_path(lambda path, leaf: f"{path}={leaf}", {"a": {"w": 1}})
        {'a': {'w': 'a/w=1'}}
    """
    named = unflatten(structure(tree), paths(tree))
    return map(function, named, tree, *rest)

"""Trees: nested dicts, lists, tuples and named tuples of arrays. A thin face on optree.

`None` is an empty tree; dicts are walked in sorted key order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

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


@final
class Flattener:
    """Flattens trees that are nearly always of one structure: to follow the one met last is ten times as fast as to
    find it anew.

    Example:
        >>> flattener = us.tree.Flattener()
        >>> flattener.flatten({"b": 2, "a": 1})[0], flattener.flatten({"b": 4, "a": 3})[0]
        ([1, 2], [3, 4])
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[Structure, frozenset[type]] | None = None

    def flatten(self, tree: Tree) -> tuple[list[Any], Structure]:
        """As `us.tree.flatten`."""
        if self._last is not None:
            structure, types = self._last
            try:
                found = structure.flatten_up_to(tree)
            except ValueError:  # it is of another structure
                pass
            else:
                if types.issuperset([type(leaf) for leaf in found]):  # not so where a leaf has become a tree
                    return found, structure
        found, structure = flatten(tree)
        self._last = structure, frozenset([type(leaf) for leaf in found])
        return found, structure

    def map(self, function: Callable[[Any], Any], tree: Tree) -> Tree:
        """As `us.tree.map`."""
        found, structure = self.flatten(tree)
        return unflatten(structure, [function(leaf) for leaf in found])

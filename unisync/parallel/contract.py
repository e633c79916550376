"""The check before the first step: do all replicas start from the same numbers?"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from unisync import tree
from unisync._dispatch import is_array, of
from unisync._types import Tree
from unisync.errors import CollectiveMismatchError


class Entry(NamedTuple):
    """One leaf of a replica's tree, as replicas compare it."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    checksum: int


def entries(values: Tree, *, shapes_only: bool = False) -> list[Entry]:
    """Shape, dtype and checksum of each leaf; with checksum 0 if only shapes are asked for."""
    return [_entry(path, leaf, shapes_only) for path, leaf in zip(tree.paths(values), tree.leaves(values), strict=True)]


def check(name: str, replicas: Iterable[Tree]) -> None:
    """Raise unless all replicas hold the same tree.

    Args:
        name: what the trees are called, for the error.
        replicas: the tree of each replica.

    Raises:
        CollectiveMismatchError: one differs from the first; names the replica, the leaf, and in what.
    """
    compare(name, [entries(values) for values in replicas])


def check_processes(name: str, values: Tree, carrier: Any, *, shapes_only: bool = False) -> None:
    """As `check`, where each replica is a process; all call it.

    Args:
        name: what the tree is called.
        values: this process's tree.
        carrier: the engine.
        shapes_only: whether values may differ.
    """
    compare(name, carrier.all_gather_object(entries(values, shapes_only=shapes_only), None))


def check_seeds(seed: Tree, carrier: Any) -> None:
    """Raise unless all processes draw from one seed, which settles the order of the data too.

    Raises:
        CollectiveMismatchError: one does not.
    """
    found = carrier.all_gather_object(entries(seed), None)
    for number, other in enumerate(found):
        if other != found[0]:
            raise CollectiveMismatchError(
                f"`seed` must be the same in all processes, but replica {number} has another than replica 0. "
                "Try: one seed for all; each replica draws numbers of its own from it."
            )


def compare(name: str, replicas: list[list[Entry]]) -> None:
    """As `check`, of the entries of each replica."""
    first = replicas[0]
    for number, found in enumerate(replicas[1:], 1):
        if found == first:
            continue
        paths, expected = [entry.path for entry in found], [entry.path for entry in first]
        if paths != expected:
            odd = sorted(set(paths) ^ set(expected))[:3] or paths[:3]
            what = f"replica {number} has other entries than replica 0 at {odd}"
        else:
            a, b = next((a, b) for a, b in zip(first, found, strict=True) if a != b)
            what = f"replica {number} has {_text(b)} at {b.path!r}, replica 0 has {_text(a)}"
            if (a.shape, a.dtype) == (b.shape, b.dtype):
                what = f"replica {number} has other values than replica 0 at {b.path!r} {_text(b)}"
        raise CollectiveMismatchError(
            f"the {name} of all replicas must be the same before the first step, but {what}. "
            "Try: us.parallelize(model, ...) without params=, or params=world.first(params)."
        )


def _entry(path: str, leaf: Any, shapes_only: bool) -> Entry:
    if not is_array(leaf):
        return Entry(path, (), type(leaf).__name__, zlib.crc32(repr(leaf).encode()))
    m = of[type(leaf)]
    if shapes_only:
        return Entry(path, tuple(leaf.shape), str(m.dtype_of(leaf)), 0)
    content = np.ascontiguousarray(m.to_numpy(leaf)).reshape(-1).view(np.uint8)
    return Entry(path, tuple(leaf.shape), str(m.dtype_of(leaf)), zlib.crc32(content.data))


def _text(entry: Entry) -> str:
    return f"{entry.dtype}{list(entry.shape)}"

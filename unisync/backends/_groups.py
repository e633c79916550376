"""Groups of replicas: what users write, checked."""

from __future__ import annotations

import functools
import operator
from typing import Any

from unisync.backends._engine import Groups
from unisync.errors import ArgumentError, ArgumentTypeError


def check_groups(groups: Any, size: int) -> Groups | None:
    """Groups as a checked partition of all replicas; None if it is one group of all in their order.

    Raises:
        ArgumentTypeError: it is not a list of lists of replicas.
        ArgumentError: a replica is missing, repeated or does not exist, or the groups differ in size.
    """
    if groups is None:
        return None
    try:
        given = tuple(tuple(map(operator.index, group)) for group in groups)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"`groups` must be a list of lists of replicas, got {groups!r}. Try: [[0, 1], [2, 3]]."
        ) from error
    return _partition(given, size)


@functools.lru_cache(maxsize=256)
def _partition(groups: Groups, size: int) -> Groups | None:
    listed = [list(group) for group in groups]
    if sorted(replica for group in groups for replica in group) != list(range(size)):
        raise ArgumentError(
            f"`groups` must hold each of the {size} replicas, 0 to {size - 1}, exactly once, got {listed}. "
            f"Try: {_halves(size)}."
        )
    if len({len(group) for group in groups}) != 1:
        raise ArgumentError(f"`groups` must all have one size, got {listed}. Try: {_halves(size)}.")
    return None if groups == (tuple(range(size)),) else groups


def _halves(size: int) -> list[list[int]]:
    ranks = list(range(size))
    return [ranks] if size % 2 or size == 2 else [ranks[: size // 2], ranks[size // 2 :]]

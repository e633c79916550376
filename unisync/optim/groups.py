"""Different treatment of different params, chosen by path patterns: frozen layers and groups."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from unisync._types import Tree
from unisync.errors import ArgumentError
from unisync.optim._patterns import as_patterns, matches, paths
from unisync.optim.base import (
    Part,
    Transform,
    Updates,
    expand,
    from_part,
    part_of,
    pick,
    restrict,
    substructure,
)


def freeze(patterns: str | Sequence[str]) -> Transform:
    """Params that stay as they are. In a chain they are hidden from every transform of it, wherever freeze stands:
    no momentum is kept for them, no weight decay moves them, and a global norm leaves them out.

    Args:
        patterns: path pattern(s): "0/*", "**/bias", or the name of a layer. `*` stands for any text, "/" included.

    Raises:
        ArgumentError: at `init` or `update`, a pattern matches no param; lists the paths.

    Example:
        >>> optimizer = us.optim.chain(us.optim.freeze("body"), us.optim.sgd(1.0, momentum=0.9))
        >>> params = {"body": {"weight": us.ones(1)}, "head": {"weight": us.ones(1)}}
        >>> optimizer.update(params, optimizer.init(params), params)[0]
        {'body': {'weight': array([0.], dtype=float32)}, 'head': {'weight': array([-1.], dtype=float32)}}
    """
    frozen = as_patterns(patterns, "patterns")
    return from_part(Part(lambda params: (), lambda updates, state: (updates, state), frozen))


def partition(groups: Mapping[str, Transform], default: Transform | None = None) -> Transform:
    """Groups of params, each with its own optimizer.

    Args:
        groups: {path pattern: transform}. The first pattern that matches a param's path wins.
        default: the transform of the params that no pattern matches.

    Returns:
        Transform; its state is the tuple of the groups' states in order, the default's last. In a group's state None
        stands for the params of other groups.

    Raises:
        ArgumentError: at `init` or `update`, a pattern matches no param, or a param matches no pattern and there is no
            default; lists the paths.

    Example:
        >>> optimizer = us.optim.partition({"**/bias": us.optim.sgd(1.0)}, default=us.optim.sgd(0.1))
        >>> params = {"weight": us.ones(1), "bias": us.ones(1)}
        >>> optimizer.update(params, optimizer.init(params), params)[0]
        {'weight': array([-0.1], dtype=float32), 'bias': array([-1.], dtype=float32)}
    """
    patterns = tuple(groups)
    transforms = [*groups.values()] if default is None else [*groups.values(), default]
    parts = tuple(_whole(part_of(t)) for t in transforms)

    def init(params: Updates) -> Tree:
        split = _split(params.structure, patterns, default is not None)
        return tuple(part.init(pick(params, *places)) for part, places in zip(parts, split, strict=True))

    def update(updates: Updates, state: Tree) -> tuple[Updates, Tree]:
        leaves: list[Any] = [None] * len(updates.leaves)
        states = []
        split = _split(updates.structure, patterns, default is not None)
        for part, (places, structure), own in zip(parts, split, state, strict=True):
            group, own = part.update(pick(updates, places, structure), own)
            states.append(own)
            for i, leaf in zip(places, group.values(), strict=True):
                leaves[i] = leaf
        return updates.replaced(leaves), tuple(states)

    return from_part(Part(init, update, keeps=any(part.keeps for part in parts)))


def _whole(part: Part) -> Part:
    """The part with its frozen leaves filled in, for use on a group."""
    if not part.frozen:
        return part

    def update(updates: Updates, state: Tree) -> tuple[Updates, Tree]:
        result, state = part.update(restrict(updates, part.frozen), state)
        return updates.replaced(expand(result.values(), updates, part.frozen, None)), state

    return Part(lambda params: part.init(restrict(params, part.frozen)), update, keeps=part.keeps)


@functools.lru_cache(maxsize=256)
def _split(structure: Any, patterns: tuple[str, ...], has_default: bool) -> tuple[tuple[tuple[int, ...], Any], ...]:
    """For each pattern, and then the default: (the positions of its leaves, the structure of their tree)."""
    left = dict.fromkeys(range(structure.num_leaves))
    split = []
    for pattern in patterns:
        places = tuple(i for i in matches(structure, pattern) if i in left)
        if not places:
            raise ArgumentError(
                f"`groups` must be in order of preference, got {pattern!r} after patterns that match all of its params "
                "already. Try: put it before them."
            )
        for i in places:
            del left[i]
        split.append(places)
    if has_default:
        split.append(tuple(left))
    elif left:
        names = paths(structure)
        raise ArgumentError(
            f"`groups` must match every param if there is no default, got none for "
            f"{', '.join(names[i] for i in left)}. Try: partition(groups, default=us.optim.sgd(0.1))."
        )
    return tuple((places, substructure(structure, places)) for places in split)

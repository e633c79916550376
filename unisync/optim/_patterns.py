"""Which leaves of a tree a path pattern such as "0/*" or "**/bias" means."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from unisync import tree
from unisync.errors import ArgumentError, ArgumentTypeError, nearest


@functools.lru_cache(maxsize=256)
def paths(structure: Any) -> tuple[str, ...]:
    """The paths of a structure's leaves: keys joined by "/"."""
    return tuple(tree.paths(tree.unflatten(structure, list(range(structure.num_leaves)))))


@functools.lru_cache(maxsize=1024)
def matches(structure: Any, pattern: str) -> tuple[int, ...]:
    """The positions of the leaves that a pattern matches.

    `*` stands for any text, "/" included; a leading or inner `**/` for any number of keys, none included; the name of
    a node for all that it holds.

    Raises:
        ArgumentError: it matches none; the message lists the paths.
    """
    names = paths(structure)
    found = tuple(i for i, path in enumerate(names) if match(path, pattern))
    if not found:
        listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise ArgumentError(
            f"`pattern` must match a parameter, got {pattern!r}, which matches none of: {listed or '(no params)'}. "
            f"Try: {nearest(pattern, names) if names else '**'!r}."
        )
    return found


def match(path: str, pattern: str) -> bool:
    """Whether a pattern matches a path.

    Example:
        >>> from unisync.optim._patterns import match
        >>> match("0/weight", "0/*"), match("0/weight", "0"), match("bias", "**/bias"), match("10/weight", "0/*")
        (True, True, True, False)
    """
    return any(fnmatchcase(path, p) or fnmatchcase(path, f"{p}/*") for p in (pattern, pattern.replace("**/", "")))


def as_patterns(given: str | Sequence[str], name: str) -> tuple[str, ...]:
    """One pattern or several as a tuple.

    Raises:
        ArgumentTypeError: they are not strings.
    """
    patterns = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(p, str) for p in patterns):
        raise ArgumentTypeError(f'`{name}` must be path patterns, got {given!r}. Try: "0/*" or ["0/*", "**/bias"].')
    return patterns

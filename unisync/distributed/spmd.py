"""spmd: one function, run once per replica of the current world."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from unisync import _context, tree
from unisync._per_replica import PerReplica
from unisync.errors import ArgumentTypeError, StateError


def spmd(fn: Callable[..., Any], /) -> Callable[..., PerReplica]:
    """fn as a function that runs once per replica of the current world, all at the same time.

    Inside fn every value is the replica's own, and collectives (`us.all_reduce`, ...) may be called. fn must be
    traceable, as for `us.jit`: some engines run it once to compile it, and Python side effects are undefined there.

    Args:
        fn: function of trees of arrays, to a tree of arrays.

    Returns:
        The function of per-replica trees. An argument that is a `us.PerReplica` gives each replica its own tree; any
        other is given to all. The result is a `us.PerReplica`.

    Raises:
        StateError: when called, if there is no world.

    Example:
        >>> with us.init_distributed(replicas=2) as world:
        ...     means = us.spmd(us.all_reduce)(world.scatter(us.asarray([1.0, 3.0])))
        ...     print(world.first(means))
        [2.]
    """
    known: list[Any] = [None, None]  # the engine met last, and fn run by it

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> PerReplica:
        world = _context.world()
        if world is None:
            raise StateError(
                "a function of us.spmd must run in a world, got none. Try: us.init_distributed(replicas=2)."
            )
        if _context.scope() is not None:
            raise StateError("us.spmd must be called outside replicas, got a call inside us.spmd. Try: call fn itself.")
        engine = world._engine
        for i, value in enumerate(args):
            if type(value) is not PerReplica or value._size != world.local_replicas:
                _check(i, value, world)
        if kwargs:
            for name, value in kwargs.items():
                _check(name, value, world)
        if known[0] is not engine:
            known[:] = engine, engine.spmd(fn)
        return known[1](*args, **kwargs)

    return run


def _check(name: int | str, value: Any, world: Any) -> None:
    if type(value) is PerReplica:
        if len(value) != world.local_replicas:
            raise ArgumentTypeError(
                f"argument {name!r} must have one tree for each of the {world.local_replicas} replicas of the world, "
                f"got {len(value)}. Try: world.scatter or world.replicate of the current world."
            )
    elif isinstance(value, (dict, list, tuple)) and any(type(leaf) is PerReplica for leaf in tree.leaves(value)):
        raise ArgumentTypeError(
            f"argument {name!r} must be a us.PerReplica or hold none, got a {type(value).__name__} with one inside. "
            "Try: pass it as an argument of its own, or world.scatter the whole tree."
        )

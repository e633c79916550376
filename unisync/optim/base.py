"""What an optimizer is: a transform of updates, chains of transforms, and how updates reach the params.

A transform is `init` and a pure `update` on trees. Those of this package are written as parts, which work on the list
of a tree's leaves: a chain flattens the trees once, hands the list from part to part, and builds the result once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from unisync import tree
from unisync._dispatch import current_namespace, namespace
from unisync._types import Tree
from unisync.errors import ArgumentError, ArgumentTypeError, StateError
from unisync.optim._patterns import matches


@final
@dataclass(frozen=True, slots=True)
class Transform:
    """A transform of updates: gradients in, updates to add to the params out.

    Your own is two functions of trees; `chain` joins it with the others:

        us.optim.Transform(init=lambda params: (), update=lambda grads, state, params=None: (grads, state))

    Attributes:
        init: params → state, a tree of arrays and Python numbers.
        update: (grads, state, params=None) → (updates, state), without side effects. The updates have the structure,
            shapes and dtypes of the gradients.
        part: the same on lists of leaves; None for a transform written on trees.

    Source: the interface is optax's GradientTransformation (https://optax.readthedocs.io).

    Example:
        >>> params = {"weight": us.asarray([1.0, 2.0])}
        >>> optimizer = us.optim.sgd(0.5)
        >>> state = optimizer.init(params)
        >>> updates, state = optimizer.update({"weight": us.asarray([1.0, -1.0])}, state, params)
        >>> us.optim.apply_updates(params, updates)
        {'weight': array([0.5, 2.5], dtype=float32)}
    """

    init: Callable[[Tree], Tree]
    update: Callable[..., tuple[Tree, Tree]]
    part: Part | None = None

    def step(self, grads: Tree, state: Tree, params: Tree, *, donate: bool = False) -> tuple[Tree, Tree]:
        """The params after one update, and the new state: `update` and `apply_updates` in one, with fewer passes
        over memory.

        Args:
            grads: tree of gradients, of the structure of the params.
            state: what `init` or the last step returned.
            params: tree of arrays.
            donate: whether nobody needs params and state any more, and no memory is there twice. Where that is
                faster (NumPy, torch), they are then updated in place.

        Returns:
            (params, state). Frozen params are returned as they are, without a copy.

        Example:
            >>> params = {"weight": us.asarray([1.0, 2.0])}
            >>> optimizer = us.optim.sgd(0.5)
            >>> params, state = optimizer.step({"weight": us.asarray([1.0, -1.0])}, optimizer.init(params), params)
            >>> params
            {'weight': array([0.5, 2.5], dtype=float32)}
        """
        return step(self, grads, state, params, donate)


@final
class Choice:
    """A step that counts only where a flag holds, which is known on the device alone.

    What is read from an updated array is read after the choice: XLA then updates it in place. Chosen between the new
    trees and the old ones in the end, each array of the state would be copied first, and a step of a small model takes
    a tenth longer.

    Attributes:
        ok: array of shape ().
        made: the arrays that were chosen: each stands where that one stood which it replaces.
    """

    __slots__ = ("made", "ok")

    def __init__(self, ok: Any) -> None:
        self.ok = ok
        self.made: list[Any] = []


class Updates:
    """What passes from part to part: the leaves of the updates and what belongs to them. Never changed once made.

    A factor and divisors that are still to be applied cost no pass over memory until somebody needs the numbers and
    calls `values()`: a step of a whole chain ends in one fused params + factor · leaves / divisors.
    """

    __slots__ = ("choice", "divisors", "donated", "factor", "leaves", "m", "params", "structure")

    def __init__(
        self,
        leaves: list[Any],
        params: list[Any] | None,
        structure: Any,
        m: Any,
        factor: Any = None,
        divisors: list[Any] | None = None,
        donated: bool = False,
        choice: Choice | None = None,
    ) -> None:
        self.leaves = leaves
        self.params = params
        self.structure = structure
        self.m = m  # the backend module of the leaves
        self.factor = factor  # None: one
        self.divisors = divisors  # None: ones
        self.donated = donated  # whether the arrays of params and state may be written over
        self.choice = choice  # None: the update is made, whatever its numbers

    def values(self) -> list[Any]:
        """The numbers: factor · leaves / divisors."""
        leaves = self.unscaled()
        return leaves if self.factor is None else self.m.multi_scale(leaves, self.factor)

    def unscaled(self) -> list[Any]:
        """leaves / divisors."""
        return self.leaves if self.divisors is None else self.m.multi_divide(self.leaves, self.divisors)

    def added_to(self, params: list[Any]) -> list[Any]:
        """params + values, in as few passes over memory as there are."""
        factor = 1.0 if self.factor is None else self.factor
        spare = self.spare(params)
        if self.divisors is None:
            return self.chosen(self.m.multi_add(params, self.leaves, alpha=factor, reuse=spare), params)
        return self.chosen(self.m.multi_addcdiv(params, self.leaves, self.divisors, value=factor, reuse=spare), params)

    def spare(self, arrays: list[Any]) -> list[Any] | None:
        """Arrays of params or state as the `reuse` of the operation that reads them last."""
        return arrays if self.donated else None

    def chosen(self, new: list[Any], old: list[Any]) -> list[Any]:
        """What stands in the place of arrays of params or state after the step, to be read in their stead."""
        choice = self.choice
        if choice is None:
            return new
        leaves = self.m.multi_where(choice.ok, new, old)
        choice.made += leaves
        return leaves

    def replaced(self, leaves: list[Any], factor: Any = None, divisors: list[Any] | None = None) -> Updates:
        """The same place in the tree with other numbers."""
        return Updates(leaves, self.params, self.structure, self.m, factor, divisors, self.donated, self.choice)

    def scaled(self, factor: Any) -> Updates:
        """The updates times a Python number or 0-d array."""
        factor = factor if self.factor is None else self.factor * factor
        return self.replaced(self.leaves, factor, self.divisors)

    def needed_params(self, who: str) -> list[Any]:
        """The params' leaves.

        Raises:
            ArgumentError: update was called without them.
        """
        if self.params is None:
            raise ArgumentError(f"`params` must be given: {who} uses them. Try: update(grads, state, params).")
        return self.params

    def tree(self, leaves: list[Any]) -> Tree:
        """A tree of the updates' structure."""
        return tree.unflatten(self.structure, leaves)

    def read(self, state: Tree) -> list[Any]:
        """The leaves of a tree of the updates' structure.

        Raises:
            StateError: its structure is another one.
        """
        try:
            # 13 times faster than flattening anew: it follows the known structure.
            return self.structure.flatten_up_to(state)
        except ValueError as error:
            raise StateError(
                f"`state` must be of the same params as the gradients, got another structure ({error}). "
                "Try: state = optimizer.init(params)."
            ) from error


@final
@dataclass(frozen=True, slots=True)
class Part:
    """A transform on lists of leaves.

    Attributes:
        init: Updates whose leaves and params are both the params → state.
        update: (Updates, state) → (Updates, state).
        frozen: path patterns of leaves that are hidden from all parts of the chain and get no update.
        keeps: whether it may hold on to arrays that it is given, so that none may be updated in place, or chosen where
            it stands.
    """

    init: Callable[[Updates], Tree]
    update: Callable[[Updates, Tree], tuple[Updates, Tree]]
    frozen: tuple[str, ...] = ()
    keeps: bool = False


def chain(*transforms: Transform) -> Transform:
    """Transforms one after the other, each given the updates of the one before.

    Args:
        transforms: built-in ones and your own in any order. `freeze` counts for the whole chain, wherever it stands.

    Returns:
        Transform; its state is the tuple of theirs.

    Example:
        >>> optimizer = us.optim.chain(us.optim.clip_by_global_norm(1.0), us.optim.scale(-0.5))
        >>> grads = {"weight": us.asarray([0.6, 0.0])}
        >>> optimizer.update(grads, optimizer.init(grads))[0]
        {'weight': array([-0.3, -0. ], dtype=float32)}
    """
    parts = tuple(part_of(t) for t in transforms)

    def init(params: Updates) -> Tree:
        return tuple(part.init(params) for part in parts)

    def update(updates: Updates, state: Tree) -> tuple[Updates, Tree]:
        if len(state) != len(parts):
            raise StateError(
                f"`state` must hold one state for each of {len(parts)} transforms, got {len(state)}. "
                "Try: state = optimizer.init(params)."
            )
        states = []
        for part, own in zip(parts, state, strict=True):
            updates, own = part.update(updates, own)
            states.append(own)
        return updates, tuple(states)

    frozen = tuple(p for part in parts for p in part.frozen)
    return from_part(Part(init, update, frozen, any(part.keeps for part in parts)))


def identity() -> Transform:
    """The transform that returns the updates as they are.

    Example:
        >>> us.optim.identity().update({"weight": us.ones(1)}, ())
        ({'weight': array([1.], dtype=float32)}, ())
    """
    return stateless(lambda updates: updates)


def apply_updates(params: Tree, updates: Tree) -> Tree:
    """params + updates, in the params' dtypes.

    Args:
        params: tree of arrays.
        updates: tree of the same structure and shapes.

    Returns:
        Tree of the params' structure.

    Raises:
        ArgumentError: the structures differ.

    Example:
        >>> us.optim.apply_updates({"weight": us.ones(2)}, {"weight": us.asarray([1.0, -1.0])})
        {'weight': array([2., 0.], dtype=float32)}
    """
    leaves, structure = _flattener.flatten(params)
    if not leaves:
        return params
    return tree.unflatten(structure, namespace(leaves[0]).multi_add(leaves, _follow(structure, updates, "updates")))


def step(
    transform: Transform, grads: Tree, state: Tree, params: Tree, donate: bool = False, choice: Choice | None = None
) -> tuple[Tree, Tree]:
    """See `Transform.step`. With a choice, what it has not made (of counts, of your own transforms) is left to do."""
    part = transform.part
    if part is None:
        updates, state = transform.update(grads, state, params)
        return apply_updates(params, updates), state
    whole = _enter(grads, params, donate and not part.keeps, None if part.keeps else choice)
    seen = restrict(whole, part.frozen)
    result, state = part.update(seen, state)
    leaves = result.added_to(seen.needed_params("step"))
    return whole.tree(expand(leaves, whole, part.frozen, whole.params)), state


def from_part(part: Part) -> Transform:
    """The transform on trees of a part on leaves."""

    def init(params: Tree) -> Tree:
        return part.init(restrict(_enter(params, params), part.frozen))

    def update(grads: Tree, state: Tree, params: Tree | None = None) -> tuple[Tree, Tree]:
        whole = _enter(grads, params)
        result, state = part.update(restrict(whole, part.frozen), state)
        return whole.tree(expand(result.values(), whole, part.frozen, None)), state

    return Transform(init, update, part)


def stateless(function: Callable[[Updates], Updates]) -> Transform:
    """The transform of a part without state."""
    return from_part(Part(lambda params: (), lambda updates, state: (function(updates), state)))


def part_of(transform: Transform) -> Part:
    """A transform's part; one written on trees is given trees built from the leaves.

    Raises:
        ArgumentTypeError: it is no Transform.
    """
    if not isinstance(transform, Transform):
        raise ArgumentTypeError(
            f"`transforms` must be made by us.optim or be a us.optim.Transform, got {type(transform).__name__}. "
            "Try: us.optim.sgd(0.1)."
        )
    if transform.part is not None:
        return transform.part

    def init(params: Updates) -> Tree:
        return transform.init(params.tree(params.leaves))

    def update(updates: Updates, state: Tree) -> tuple[Updates, Tree]:
        params = None if updates.params is None else updates.tree(updates.params)
        result, state = transform.update(updates.tree(updates.values()), state, params)
        return updates.replaced(_follow(updates.structure, result, "updates")), state

    return Part(init, update, keeps=True)


def restrict(updates: Updates, frozen: tuple[str, ...]) -> Updates:
    """The updates without the leaves that the patterns match."""
    if not frozen:
        return updates
    kept, structure = _kept(updates.structure, frozen)
    return pick(updates, kept, structure)


def pick(updates: Updates, places: Sequence[int], structure: Any) -> Updates:
    """The updates' leaves at some places, as a tree of their own."""
    params = None if updates.params is None else [updates.params[i] for i in places]
    leaves, divisors = updates.leaves, updates.divisors
    divisors = None if divisors is None else [divisors[i] for i in places]
    picked = [leaves[i] for i in places]
    return Updates(picked, params, structure, updates.m, updates.factor, divisors, updates.donated, updates.choice)


def expand(leaves: list[Any], whole: Updates, frozen: tuple[str, ...], fill: list[Any] | None) -> list[Any]:
    """The inverse of `restrict` for a list of leaves: the missing ones are taken from fill, or are zeros."""
    if not frozen:
        return leaves
    kept, _ = _kept(whole.structure, frozen)
    given = dict(zip(kept, leaves, strict=True))
    return [
        given[i] if i in given else fill[i] if fill is not None else whole.m.zeros_like(leaf)
        for i, leaf in enumerate(whole.leaves)
    ]


@functools.lru_cache(maxsize=256)
def _kept(structure: Any, frozen: tuple[str, ...]) -> tuple[tuple[int, ...], Any]:
    hidden = {i for pattern in frozen for i in matches(structure, pattern)}
    kept = tuple(i for i in range(structure.num_leaves) if i not in hidden)
    return kept, substructure(structure, kept)


def substructure(structure: Any, kept: Sequence[int]) -> Any:
    """The structure with only some of its leaves; None stands for the others, which is an empty tree."""
    places = set(kept)
    return tree.structure(tree.unflatten(structure, [i if i in places else None for i in range(structure.num_leaves)]))


_flattener = tree.Flattener()


def _enter(grads: Tree, params: Tree | None, donated: bool = False, choice: Choice | None = None) -> Updates:
    leaves, structure = _flattener.flatten(grads)
    m = namespace(leaves[0]) if leaves else current_namespace()
    if params is None:
        return Updates(leaves, None, structure, m)
    if params is grads:
        return Updates(leaves, leaves, structure, m)
    own = _follow(structure, params, "params")
    if own:
        m = namespace(leaves[0], own[0])
        if [x.dtype for x in leaves] != [x.dtype for x in own]:  # so that the state stays in the params' dtypes
            leaves = [g if g.dtype == p.dtype else m.astype(g, p.dtype) for g, p in zip(leaves, own, strict=True)]
    return Updates(leaves, own, structure, m, None, None, donated, choice)


def _follow(structure: Any, other: Tree, name: str) -> list[Any]:
    try:
        return structure.flatten_up_to(other)
    except ValueError as error:
        ours = set(tree.paths(tree.unflatten(structure, [0] * structure.num_leaves)))
        theirs = set(tree.paths(other))
        odd = sorted(ours ^ theirs) or [str(error)]
        raise ArgumentError(
            f"`{name}` must have the structure of the other trees, got one that differs at {', '.join(odd[:5])}. "
            "Try: pass the params that the gradients were taken of."
        ) from error

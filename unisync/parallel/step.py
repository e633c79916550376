"""What one training step computes: gradients, then the update, in one compiled function.

params, state, batch ─ compute_gradients ─ loss, gradients, new state
                                               │
params, optimizer state ───────────────── update_params ─ new params, new optimizer state
                                               │
ok and all finite(loss, gradients) ─────────── keep ─ the new ones if so, else the old ones
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from unisync import _context, tree
from unisync._dispatch import is_array
from unisync._types import Tree
from unisync.errors import ArgumentError
from unisync.parallel.metrics import Metric, batch_means
from unisync.parallel.objective import Objective


@final
@dataclass(frozen=True, slots=True)
class Recipe:
    """What is trained, on what, and how.

    Attributes:
        model: `apply(params, state, x, train, key) -> (outputs, state)`.
        objective: the loss.
        optimizer: `init` and `update`; `step` too, if it has one.
        metrics: what is computed beside the loss.
        observe: called with the outputs while a step is traced, or in each step where nothing is compiled.
    """

    model: Any
    objective: Objective
    optimizer: Any
    metrics: Mapping[str, Metric]
    observe: Callable[[Any], None]


class Stepped(NamedTuple):
    """What a step returns: the next params, state and optimizer state, and arrays of shape () about the batch.

    Attributes:
        ok: whether this and all earlier losses and gradients are finite; else nothing was updated.
        loss: the loss at the params before the update.
        metrics: the metrics there, in the recipe's order.
    """

    params: Tree
    state: Tree
    optimizer_state: Tree
    ok: Any
    loss: Any
    metrics: tuple[Any, ...]


def train_step(recipe: Recipe, m: Any, on_host: bool) -> Callable[..., Stepped]:
    """The step (params, state, optimizer_state, ok, x, y, weights, key) → Stepped of one replica, to be compiled.

    Args:
        recipe: what to compute.
        m: the backend module.
        on_host: see `updating`.
    """
    gradients = gradients_of(recipe, m)
    if on_host:
        return _host_step(recipe, m, gradients)

    def measure(params: Tree, state: Tree, ok: Any, x: Any, y: Any, weights: Any, key: Any) -> Measured:
        (loss, (outputs, new_state)), grads = gradients(params, state, x, y, weights, key)
        return Measured(loss, batch_means(recipe.metrics, outputs, y, weights), new_state, grads, ok)

    return updating(measure, recipe.optimizer, m, on_host)


class Measured(NamedTuple):
    """What is known of a batch before the params change.

    Attributes:
        loss: the loss.
        metrics: the metrics, in the recipe's order.
        state: the model's state after the batch.
        grads: the gradients, as the optimizer is to see them.
        ok: whether all was finite before.
    """

    loss: Any
    metrics: tuple[Any, ...]
    state: Tree
    grads: Tree
    ok: Any


def updating(
    measure: Callable[..., Measured], optimizer: Any, m: Any, on_host: bool, *, in_place: bool = False
) -> Callable[..., Stepped]:
    """The step (params, state, optimizer_state, ok, *batch) → Stepped that applies what is measured if it is finite.

    Args:
        measure: (params, state, ok, *batch) → Measured.
        optimizer: what updates the params.
        m: the backend module.
        on_host: whether a flag is read at no cost as soon as it is computed. Then the choice between new and old is
            an `if`; else it is made on the device, and the host need not wait.
        in_place: whether nobody else has the params and the optimizer state. If the host makes the choice, and the
            optimizer knows how to, they are then updated in place.
    """
    in_place = in_place and on_host and updates_in_place(optimizer)

    def step(params: Tree, state: Tree, optimizer_state: Tree, ok: Any, *batch: Any) -> Stepped:
        loss, metrics, new_state, grads, ok = measure(params, state, ok, *batch)
        ok = m.logical_and(ok, m.multi_all_finite([loss, *tree.leaves(grads)]))
        if on_host and not bool(ok):
            return Stepped(params, state, optimizer_state, ok, loss, metrics)
        if in_place and not _holds(m, new_state, params):
            params, optimizer_state = optimizer.step(grads, optimizer_state, params, donate=True)
            return Stepped(params, new_state, optimizer_state, ok, loss, metrics)
        if on_host:
            params, optimizer_state = update_params(optimizer, grads, optimizer_state, params)
            return Stepped(params, new_state, optimizer_state, ok, loss, metrics)
        new_params, new_optimizer_state, made = _update_where(ok, optimizer, grads, optimizer_state, params)
        new, old = (new_params, new_state, new_optimizer_state), (params, state, optimizer_state)
        params, state, optimizer_state = keep(m, ok, new, old, made)
        return Stepped(params, state, optimizer_state, ok, loss, metrics)

    return step


def _host_step(recipe: Recipe, m: Any, gradients: Callable[..., Any]) -> Callable[..., Stepped]:
    """The step where the host can look at the numbers at once: nothing is computed twice, and nobody but the engine
    having the params and the optimizer state, they are updated in place."""
    flatten = tree.Flattener().flatten
    in_place = updates_in_place(recipe.optimizer)

    def step(
        params: Tree, state: Tree, optimizer_state: Tree, ok: Any, x: Any, y: Any, weights: Any, key: Any
    ) -> Stepped:
        (loss, (outputs, new_state)), grads = gradients(params, state, x, y, weights, key)
        metrics = batch_means(recipe.metrics, outputs, y, weights) if recipe.metrics else ()
        if ok:
            ok = m.multi_all_finite([loss, *flatten(grads)[0]])
        if not ok:
            return Stepped(params, state, optimizer_state, ok, loss, metrics)
        if in_place and not _holds(m, new_state, params):
            params, optimizer_state = recipe.optimizer.step(grads, optimizer_state, params, donate=True)
        else:
            params, optimizer_state = update_params(recipe.optimizer, grads, optimizer_state, params)
        return Stepped(params, new_state, optimizer_state, ok, loss, metrics)

    return step


def updates_in_place(optimizer: Any) -> bool:
    """Whether it is one of ours, whose `step` knows how to."""
    from unisync.optim import Transform

    return isinstance(optimizer, Transform)


def _holds(m: Any, state: Tree, params: Tree) -> bool:
    """Whether the model has put params, or views of them, into its state."""
    leaves = [leaf for leaf in tree.leaves(state) if is_array(leaf)] if state else None
    return bool(leaves) and m.shares_memory(leaves, tree.leaves(params))


def gradients_of(recipe: Recipe, m: Any) -> Callable[..., Any]:
    """(params, state, x, y, weights, key) → ((loss, (outputs, or None without metrics, new state)), gradients)."""

    def objective(params: Tree, state: Tree, x: Any, y: Any, weights: Any, key: Any) -> Any:
        outputs, new_state = forward(recipe.model, params, state, x, weights, True, key)
        recipe.observe(outputs)
        return recipe.objective(outputs, y, weights), (outputs if recipe.metrics else None, new_state)

    return m.value_and_grad(objective, 0, True)


def forward(model: Any, params: Tree, state: Tree, x: Any, weights: Any, train: bool, key: Any) -> tuple[Any, Tree]:
    """The outputs and the new state; layers are told which rows are padding."""
    if weights is None:
        return model.apply(params, state, x, train, key)
    with _context.weighing(weights):
        return model.apply(params, state, x, train, key)


def update_params(optimizer: Any, grads: Tree, optimizer_state: Tree, params: Tree) -> tuple[Tree, Tree]:
    """The params after one update, and the new optimizer state."""
    fused = getattr(optimizer, "step", None)
    if fused is not None:
        return fused(grads, optimizer_state, params)
    from unisync.optim import apply_updates

    updates, optimizer_state = optimizer.update(grads, optimizer_state, params)
    return apply_updates(params, updates), optimizer_state


def _update_where(ok: Any, optimizer: Any, grads: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree, list[Any]]:
    """(params, optimizer state, those of their arrays that are the new ones where ok holds and else the old ones)."""
    if not updates_in_place(optimizer):
        return *update_params(optimizer, grads, state, params), []
    from unisync.optim import base

    choice = base.Choice(ok)
    return *base.step(optimizer, grads, state, params, choice=choice), choice.made


def keep(m: Any, ok: Any, new: Tree, old: Tree, made: Sequence[Any] = ()) -> Tree:
    """The new trees where ok holds, else the old ones, chosen on the device. Python numbers are always the new ones.

    Args:
        m: the backend module.
        ok: array of shape ().
        new: trees.
        old: trees of the same structure.
        made: arrays of the new trees that were chosen already.

    Raises:
        ArgumentError: the structure changed in the step.
    """
    leaves, structure = tree.flatten(new)
    before, structure_before = tree.flatten(old)
    if structure != structure_before:
        odd = sorted(set(tree.paths(new)) ^ set(tree.paths(old)))
        raise ArgumentError(
            f"a model's state and an optimizer's must keep their structure, got one that changed at {odd[:3]}. "
            "Try: make all entries in init."
        )
    done = set(map(id, made))
    pairs = enumerate(zip(leaves, before, strict=True))
    places = [i for i, (a, b) in pairs if a is not b and id(a) not in done and is_array(a)]
    chosen = m.multi_where(ok, [leaves[i] for i in places], [before[i] for i in places])
    for i, leaf in zip(places, chosen, strict=True):
        leaves[i] = leaf
    return tree.unflatten(structure, leaves)


def evaluation_step(recipe: Recipe) -> Callable[..., tuple[Any, ...]]:
    """The step (params, state, x, y, weights) → (loss, *metrics), to be compiled."""

    def step(params: Tree, state: Tree, x: Any, y: Any, weights: Any) -> tuple[Any, ...]:
        outputs, _ = forward(recipe.model, params, state, x, weights, False, None)
        recipe.observe(outputs)
        return recipe.objective(outputs, y, weights), *batch_means(recipe.metrics, outputs, y, weights)

    return step


def prediction_step(model: Any) -> Callable[[Tree, Tree, Any], Any]:
    """The step (params, state, x) → outputs, to be compiled."""

    def step(params: Tree, state: Tree, x: Any) -> Any:
        return forward(model, params, state, x, None, False, None)[0]

    return step

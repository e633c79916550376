"""What a step of one replica among several computes: its part of the batch, then sums over all replicas.

With w_r the weight of replica r's part, the loss of the whole batch is Σ_r (w_r / Σ w) · loss_r, and its gradient is
the same sum of gradients: each replica scales its loss by its share, and an all-reduce adds up the gradients, with loss
and metrics beside them. Where a replica knows only its own batch ("sharded"), it scales by w_r, and all divide by the
sum of the weights, which travels with the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unisync import tree
from unisync._types import Tree
from unisync.functional.collectives import all_reduce
from unisync.parallel.dealing import Part
from unisync.parallel.metrics import batch_means
from unisync.parallel.step import Measured, Recipe, Stepped, forward, updating


def train_step(
    recipe: Recipe,
    m: Any,
    on_host: bool,
    replicas: int,
    *,
    sync: bool,
    sharded: bool = False,
    overlapped: Callable[..., Any] | None = None,
    in_place: bool = False,
) -> Callable[..., Stepped]:
    """The step (params, state, optimizer_state, ok, part, key) → Stepped of one replica, to be run by `spmd`.

    Args:
        recipe: what to compute.
        m: the backend module.
        on_host: see `updating`.
        replicas: how many there are.
        sync: True: every replica updates by the gradient of the whole batch, and returns the whole batch's loss and
            metrics. False: each goes its own way, by the gradient of its part; the losses and metrics that the replicas
            return add up to those of the whole batch.
        sharded: whether a part's share is its weight, not divided by that of all parts. With sync, the last metric is
            then the weight of all parts.
        overlapped: the engine's `overlapped_gradients`.
        in_place: see `updating`.
    """

    def objective(params: Tree, state: Tree, part: Part, key: Any, *ok: Any) -> Any:
        outputs, new_state = forward(recipe.model, params, state, part.x, part.weights, True, key)
        recipe.observe(outputs)
        loss = recipe.objective(outputs, part.y, _counted(m, part))
        portion = _portion(m, loss, part, replicas)
        return (portion if sync else loss), (portion, outputs, new_state)

    def shares(aux: Any, state: Tree, part: Part, key: Any, ok: Any) -> list[Any]:
        """What the replicas add up beside their gradients."""
        loss, outputs, _ = aux
        figures = _figures(m, recipe, loss, outputs, part, replicas)
        dtype = m.dtype_of(figures[0])
        return [*figures, *([m.astype(part.share, dtype)] if sharded else []), m.astype(ok, dtype)]

    gradients = m.value_and_grad(objective, 0, True)
    summed = overlapped(objective, shares, _counts) if sync and overlapped is not None else None

    def measure(params: Tree, state: Tree, ok: Any, part: Part, key: Any) -> Measured:
        if summed is not None:
            (_, (loss, outputs, new_state)), figures, grads = summed(params, state, part, key, ok)
        else:
            (_, (loss, outputs, new_state)), grads = gradients(params, state, part, key)
            grads = _without_padding(m, grads, part)
            if not sync:
                return Measured(
                    loss, tuple(_figures(m, recipe, loss, outputs, part, replicas)[1:]), new_state, grads, ok
                )
            figures, grads = all_reduce((shares((loss, outputs, new_state), state, part, key, ok), grads), op="sum")
        # Copies, since they are read late and would keep the buffer of all gradients alive until then.
        *figures, oks = [m.astype(value, m.dtype_of(value), copy=True) for value in figures]
        ok = oks == replicas
        if sharded:
            figures, grads = _per_weight(m, figures), _divided(m, grads, figures[-1])
        return Measured(figures[0], tuple(figures[1:]), new_state, grads, ok)

    return updating(measure, recipe.optimizer, m, on_host, in_place=in_place)


def evaluation_step(recipe: Recipe, m: Any, replicas: int, *, sharded: bool = False) -> Callable[..., tuple[Any, ...]]:
    """The step (params, state, part) → (loss, *metrics) of the whole batch, the same on all replicas; sharded: with the
    weight of all parts at the end."""

    def step(params: Tree, state: Tree, part: Part) -> tuple[Any, ...]:
        outputs, _ = forward(recipe.model, params, state, part.x, part.weights, False, None)
        recipe.observe(outputs)
        loss = _portion(m, recipe.objective(outputs, part.y, _counted(m, part)), part, replicas)
        figures = _figures(m, recipe, loss, outputs, part, replicas)
        if not sharded:
            return tuple(all_reduce(figures, op="sum"))
        return tuple(_per_weight(m, all_reduce([*figures, m.astype(part.share, m.dtype_of(figures[0]))], op="sum")))

    return step


def _per_weight(m: Any, figures: list[Any]) -> list[Any]:
    """Sums over all parts, each divided by the last, which is the weight of all."""
    *sums, total = figures
    return [*(m.divide(value, total) for value in sums), total]


def _divided(m: Any, grads: Tree, total: Any) -> Tree:
    return tree.map(lambda g: m.divide(g, m.astype(total, m.dtype_of(g))), grads)


def _counted(m: Any, part: Part) -> Any:
    """The weights for means over the part's rows. A part of nothing but padding counts every row: its share is 0,
    and no mean divides by 0."""
    if part.weights is None:
        return None
    return m.where(part.share > 0, part.weights, m.ones_like(part.weights))


def _counts(state: Tree, part: Part, key: Any, ok: Any) -> bool:
    """Whether a part has real rows: what a model makes of others may be infinite."""
    return part.share is None or bool(part.share > 0)


def _portion(m: Any, value: Any, part: Part, replicas: int) -> Any:
    """What a mean over the part contributes to the mean over the whole batch."""
    if part.share is None:
        return value * (1 / replicas)
    scaled = value * m.astype(part.share, m.dtype_of(value))
    return m.where(part.share > 0, scaled, m.zeros_like(scaled))


def _figures(m: Any, recipe: Recipe, loss: Any, outputs: Any, part: Part, replicas: int) -> list[Any]:
    """Contributions of loss and metrics, all of one dtype so that they travel in one buffer."""
    metrics = batch_means(recipe.metrics, outputs, part.y, _counted(m, part))
    portions = [loss, *(_portion(m, value, part, replicas) for value in metrics)]
    dtype = "float64" if m.dtype_of(loss) == "float64" else "float32"
    return [m.astype(value, dtype, copy=False) for value in portions]


def _without_padding(m: Any, grads: Tree, part: Part) -> Tree:
    """The gradients, of a part without real rows zero: what a model makes of such rows may be infinite."""
    if part.share is None:
        return grads
    leaves, structure = tree.flatten(grads)
    kept = m.multi_where(part.share > 0, leaves, [m.zeros_like(leaf) for leaf in leaves])
    return tree.unflatten(structure, kept)

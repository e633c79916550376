"""Parts that scale, clip or decay updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unisync import tree
from unisync._types import Tree
from unisync.errors import ArgumentError
from unisync.optim import _checks as check
from unisync.optim._counts import as_scalar, plain, real, square_root
from unisync.optim._patterns import as_patterns, matches, paths
from unisync.optim.base import Part, Transform, Updates, from_part, stateless

Schedule = Callable[[Any], Any]
"""A function from the count of updates made so far (0 at the first) to a value. The count is a Python int, or inside
compiled functions a 0-d array of a floating-point dtype."""

Mask = str | Sequence[str] | Callable[[str, Any], bool] | Tree | None
"""Which params: path patterns, a function of (path, param), a tree of bools like the params, or None for all."""


def scale(factor: float) -> Transform:
    """Updates times a number.

    Args:
        factor: the number.

    Example:
        >>> us.optim.scale(2.0).update([us.ones(1)], ())[0]
        [array([2.], dtype=float32)]
    """
    check.number("factor", factor, 1.0)
    return stateless(lambda updates: updates.scaled(factor))


def scale_by_learning_rate(learning_rate: float | Schedule) -> Transform:
    """Updates times −learning_rate: the last part of an optimizer, which turns the direction into a descent.

    Args:
        learning_rate: number ≥ 0, or schedule: a function of the count of updates made so far.

    Returns:
        Transform; with a schedule its state is {"count": updates made so far}.

    Example:
        >>> part = us.optim.scale_by_learning_rate(us.optim.piecewise(1.0, {1: 0.1}))
        >>> state = part.init([us.ones(1)])
        >>> first, state = part.update([us.ones(1)], state)
        >>> second, state = part.update([us.ones(1)], state)
        >>> first, second, state
        ([array([-1.], dtype=float32)], [array([-0.1], dtype=float32)], {'count': 2})
    """
    check.rate(learning_rate, 0.1)
    if not callable(learning_rate):
        return stateless(lambda updates: updates.scaled(-learning_rate))

    def update(updates: Updates, state: Tree) -> tuple[Updates, Tree]:
        count = plain(state["count"])
        value = learning_rate(real(count, updates))
        if not isinstance(value, (int, float)):
            value = as_scalar(value, updates)
        return updates.scaled(-value), {"count": count + 1}

    return from_part(Part(lambda params: {"count": 0}, update))


def scale_by_trust_ratio() -> Transform:
    """Each leaf's update times ‖param‖ / ‖update‖; times 1 where either norm is zero.

    Source: You et al., Large Batch Optimization for Deep Learning (https://arxiv.org/abs/1904.00962), algorithm 2.

    Example:
        >>> part = us.optim.scale_by_trust_ratio()
        >>> part.update([us.asarray([3.0, 4.0])], (), [us.asarray([0.0, 1.0])])[0]
        [array([0.6, 0.8], dtype=float32)]
    """

    def update(updates: Updates) -> Updates:
        m, leaves, params = updates.m, updates.values(), updates.needed_params("scale_by_trust_ratio")
        ratios = [_trust_ratio(m, p, u) for p, u in zip(m.multi_norm(params), m.multi_norm(leaves), strict=True)]
        return updates.replaced([m.multiply(u, ratio) for u, ratio in zip(leaves, ratios, strict=True)])

    return stateless(update)


def _trust_ratio(m: Any, param_norm: Any, update_norm: Any) -> Any:
    usable = m.logical_and(param_norm > 0, update_norm > 0)
    return m.where(usable, m.divide(param_norm, m.where(usable, update_norm, 1.0)), 1.0)


def add_decayed_weights(rate: float, mask: Mask = None) -> Transform:
    """Updates + rate · params: L2 regularisation at the head of a chain, decoupled weight decay just before the
    learning rate.

    Args:
        rate: number ≥ 0.
        mask: which params decay: path patterns ("**/weight"), a function of (path, param) (lambda path, param:
            param.ndim > 1), or a tree of bools like the params; None for all.

    Raises:
        ArgumentError: a pattern matches no param.

    Example:
        >>> part = us.optim.add_decayed_weights(0.1, mask="weight")
        >>> params = {"weight": us.ones(1), "bias": us.ones(1)}
        >>> part.update({"weight": us.zeros(1), "bias": us.zeros(1)}, (), params)[0]
        {'weight': array([0.1], dtype=float32), 'bias': array([0.], dtype=float32)}
    """
    check.non_negative("weight_decay", rate, 0.01)
    if isinstance(mask, str) or (isinstance(mask, (list, tuple)) and all(isinstance(p, str) for p in mask)):
        mask = as_patterns(mask, "mask")

    def update(updates: Updates) -> Updates:
        params = updates.needed_params("weight decay")
        places = _masked(mask, updates, params)
        if places is None:
            if isinstance(updates.factor, float) and updates.factor:  # one pass: f · (u + r/f · p) = f · u + r · p
                leaves = updates.m.multi_add(updates.unscaled(), params, alpha=rate / updates.factor)
                return updates.replaced(leaves, updates.factor)
            return updates.replaced(updates.m.multi_add(updates.values(), params, alpha=rate))
        leaves = list(updates.values())
        decayed = updates.m.multi_add([leaves[i] for i in places], [params[i] for i in places], alpha=rate)
        for i, leaf in zip(places, decayed, strict=True):
            leaves[i] = leaf
        return updates.replaced(leaves)

    return stateless(update)


def _masked(mask: Any, updates: Updates, params: list[Any]) -> Sequence[int] | None:
    if mask is None:
        return None
    if callable(mask):
        names = paths(updates.structure)
        return [i for i, (path, param) in enumerate(zip(names, params, strict=True)) if mask(path, param)]
    if isinstance(mask, tuple) and all(isinstance(p, str) for p in mask):
        return sorted({i for pattern in mask for i in matches(updates.structure, pattern)})
    try:
        return [i for i, decays in enumerate(updates.structure.flatten_up_to(mask)) if decays]
    except ValueError as error:
        raise ArgumentError(
            f"`mask` must have the structure of the params, got leaves {', '.join(tree.paths(mask))}. "
            'Try: mask="**/weight".'
        ) from error


def clip_by_global_norm(max_norm: float) -> Transform:
    """Updates scaled down so that the norm of all leaves together is at most max_norm.

    The factor is min(1, max_norm / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_.

    Args:
        max_norm: number > 0.

    Example:
        >>> part = us.optim.clip_by_global_norm(1.0)
        >>> part.update([us.asarray([3.0]), us.asarray([4.0])], ())[0]
        [array([0.5999999], dtype=float32), array([0.79999983], dtype=float32)]
    """
    check.positive("max_norm", max_norm, 1.0)

    def update(updates: Updates) -> Updates:
        leaves = updates.values()
        if not leaves:
            return updates
        return updates.replaced(leaves, updates.m.minimum(max_norm / (global_norm(updates.m, leaves) + 1e-6), 1.0))

    def global_norm(m: Any, leaves: list[Any]) -> Any:
        scalars = Updates(leaves, None, None, m)
        norms = m.stack([as_scalar(norm, scalars) for norm in m.multi_norm(leaves)])
        return square_root(m.sum(norms * norms))

    return stateless(update)


def clip_by_value(limit: float) -> Transform:
    """Updates with each element kept within [−limit, limit].

    Args:
        limit: number > 0.

    Example:
        >>> us.optim.clip_by_value(1.0).update([us.asarray([-3.0, 0.5])], ())[0]
        [array([-1. ,  0.5], dtype=float32)]
    """
    check.positive("limit", limit, 1.0)
    return stateless(lambda updates: updates.replaced([updates.m.clip(x, -limit, limit) for x in updates.values()]))

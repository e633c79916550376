"""Parts that keep running averages of gradients: momentum and the adaptive methods."""

from __future__ import annotations

from typing import Any

from unisync._dispatch import namespace
from unisync._types import Tree
from unisync.errors import ArgumentError
from unisync.optim import _checks as check
from unisync.optim._counts import one_minus_power, plain, real, square_root
from unisync.optim.base import Part, Transform, Updates, from_part


def trace(momentum: float, nesterov: bool = False, dampening: float = 0.0) -> Transform:
    """Momentum: v ← momentum · v + (1 − dampening) · g; the update is v, or with nesterov g + momentum · v.

    The first v is g, as in torch.optim.SGD.

    Args:
        momentum: in [0, 1).
        nesterov: whether to look ahead; needs momentum and no dampening.
        dampening: in [0, 1).

    Returns:
        Transform; state {"momentum": tree like the params}, and "count" if there is dampening.

    Raises:
        ArgumentError: a value is out of its range.

    Example:
        >>> part = us.optim.trace(0.5)
        >>> state = part.init([us.zeros(1)])
        >>> _, state = part.update([us.asarray([1.0])], state)
        >>> part.update([us.asarray([1.0])], state)[0]
        [array([1.5], dtype=float32)]
    """
    check.fraction("momentum", momentum, 0.9)
    check.fraction("dampening", dampening, 0.0)
    if nesterov and (momentum == 0 or dampening != 0):
        raise ArgumentError(
            f"`nesterov` must go with momentum > 0 and dampening = 0, got momentum={momentum}, dampening={dampening}. "
            "Try: momentum=0.9, nesterov=True."
        )

    def init(params: Updates) -> Tree:
        state = {"momentum": _zeros(params)}
        return state | {"count": 0} if dampening else state

    def update(updates: Updates, state: Tree) -> tuple[Updates, Tree]:
        m, g, v = updates.m, updates.values(), updates.read(state["momentum"])
        if not dampening:
            v = updates.chosen(m.multi_add(g, v, alpha=momentum, reuse=updates.spare(v)), v)
            state = {"momentum": updates.tree(v)}
        else:
            count = plain(state["count"])
            v = m.multi_add(m.multi_scale(v, momentum), g, alpha=_first_whole(count, 1.0 - dampening, updates))
            state = {"momentum": updates.tree(v), "count": count + 1}
        return updates.replaced(m.multi_add(g, v, alpha=momentum) if nesterov else v), state

    return from_part(Part(init, update))


def _first_whole(count: Any, weight: float, updates: Updates) -> Any:
    if isinstance(count, int):
        return weight if count else 1.0
    made = real(count, updates)
    return namespace(made).where(made > 0, weight + 0.0 * made, 1.0)


def scale_by_adam(beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> Transform:
    """m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g²; the update is m̂ / (√v̂ + eps) with the bias corrected
    m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ).

    Args:
        beta1: in [0, 1): decay of the mean of gradients.
        beta2: in [0, 1): decay of the mean of their squares.
        eps: number ≥ 0, added outside the root.

    Returns:
        Transform; state {"count", "first_moment", "second_moment"}.

    Source: Kingma, Ba, Adam (https://arxiv.org/abs/1412.6980), algorithm 1; as torch.optim.Adam calculates it.

    Example:
        >>> part = us.optim.scale_by_adam()
        >>> part.update([us.asarray([-3.0])], part.init([us.zeros(1)]))[0]
        [array([-1.], dtype=float32)]
    """
    check.fraction("beta1", beta1, 0.9)
    check.fraction("beta2", beta2, 0.999)
    check.non_negative("eps", eps, 1e-8)

    def update(updates: Updates, state: Tree) -> tuple[Updates, Tree]:
        m, g, count = updates.m, updates.values(), plain(state["count"]) + 1
        first = updates.read(state["first_moment"])
        first = updates.chosen(m.multi_lerp(first, g, weight=1.0 - beta1, reuse=updates.spare(first)), first)
        second = _mean_square(updates, state["second_moment"], g, beta2)
        # √v̂ + eps = (√v + eps · root) / root: the division becomes part of the factor, one pass less over memory.
        root = square_root(one_minus_power(beta2, count, updates))
        divisors = m.multi_sqrt(second, shift=eps * root)
        factor = root / one_minus_power(beta1, count, updates)
        state = {"count": count, "first_moment": updates.tree(first), "second_moment": updates.tree(second)}
        return updates.replaced(first, factor, divisors), state

    return from_part(
        Part(lambda params: {"count": 0, "first_moment": _zeros(params), "second_moment": _zeros(params)}, update)
    )


def scale_by_rms(alpha: float = 0.99, eps: float = 1e-8, centered: bool = False) -> Transform:
    """v ← αv + (1 − α)g²; the update is g / (√v + eps). Centred: √(v − ḡ²) with ḡ the running mean of g.

    Args:
        alpha: in [0, 1): decay of the mean of squares.
        eps: number ≥ 0, added outside the root.
        centered: whether to divide by the standard deviation instead.

    Returns:
        Transform; state {"second_moment"} and, if centered, "first_moment".

    Source: Tieleman, Hinton, Lecture 6.5 (2012); centred: Graves (https://arxiv.org/abs/1308.0850); as in
    torch.optim.RMSprop.

    Example:
        >>> part = us.optim.scale_by_rms(alpha=0.75)
        >>> part.update([us.asarray([4.0])], part.init([us.zeros(1)]))[0]
        [array([2.], dtype=float32)]
    """
    check.fraction("alpha", alpha, 0.99)
    check.non_negative("eps", eps, 1e-8)

    def init(params: Updates) -> Tree:
        state = {"second_moment": _zeros(params)}
        return state | {"first_moment": _zeros(params)} if centered else state

    def update(updates: Updates, state: Tree) -> tuple[Updates, Tree]:
        m, g = updates.m, updates.values()
        second = variance = _mean_square(updates, state["second_moment"], g, alpha)
        new = {"second_moment": updates.tree(second)}
        if centered:
            first = updates.read(state["first_moment"])
            first = m.multi_lerp(first, g, weight=1.0 - alpha, reuse=updates.spare(first))
            variance = m.multi_addcmul(second, first, first, value=-1.0)
            new["first_moment"] = updates.tree(first)
        return updates.replaced(g, divisors=m.multi_sqrt(variance, shift=eps)), new

    return from_part(Part(init, update))


def scale_by_adagrad(initial_accumulator: float = 0.0, eps: float = 1e-10) -> Transform:
    """s ← s + g²; the update is g / (√s + eps).

    Args:
        initial_accumulator: number ≥ 0: what s begins with.
        eps: number ≥ 0, added outside the root.

    Returns:
        Transform; state {"sum_of_squares"}.

    Source: Duchi, Hazan, Singer (2011, https://jmlr.org/papers/v12/duchi11a.html); as torch.optim.Adagrad.

    Example:
        >>> part = us.optim.scale_by_adagrad()
        >>> part.update([us.asarray([4.0])], part.init([us.zeros(1)]))[0]
        [array([1.], dtype=float32)]
    """
    check.non_negative("initial_accumulator", initial_accumulator, 0.0)
    check.non_negative("eps", eps, 1e-10)

    def init(params: Updates) -> Tree:
        return {"sum_of_squares": params.tree([params.m.full_like(p, initial_accumulator) for p in params.leaves])}

    def update(updates: Updates, state: Tree) -> tuple[Updates, Tree]:
        m, g = updates.m, updates.values()
        total = updates.read(state["sum_of_squares"])
        total = updates.chosen(m.multi_addcmul(total, g, g, reuse=updates.spare(total)), total)
        return updates.replaced(g, divisors=m.multi_sqrt(total, shift=eps)), {"sum_of_squares": updates.tree(total)}

    return from_part(Part(init, update))


def scale_by_lion(beta1: float = 0.9, beta2: float = 0.99) -> Transform:
    """The update is sign(β₁m + (1 − β₁)g); then m ← β₂m + (1 − β₂)g.

    Args:
        beta1: in [0, 1): weight of the momentum in the update.
        beta2: in [0, 1): decay of the momentum.

    Returns:
        Transform; state {"momentum"}.

    Source: Chen et al., Symbolic Discovery of Optimization Algorithms (https://arxiv.org/abs/2302.06675), algorithm 2.

    Example:
        >>> part = us.optim.scale_by_lion()
        >>> part.update([us.asarray([0.5, -3.0])], part.init([us.zeros(2)]))[0]
        [array([ 1., -1.], dtype=float32)]
    """
    check.fraction("beta1", beta1, 0.9)
    check.fraction("beta2", beta2, 0.99)

    def update(updates: Updates, state: Tree) -> tuple[Updates, Tree]:
        m, g, v = updates.m, updates.values(), updates.read(state["momentum"])
        leaves = m.multi_sign(m.multi_lerp(v, g, weight=1.0 - beta1))
        v = updates.chosen(m.multi_lerp(v, g, weight=1.0 - beta2, reuse=updates.spare(v)), v)
        return updates.replaced(leaves), {"momentum": updates.tree(v)}

    return from_part(Part(lambda params: {"momentum": _zeros(params)}, update))


def _zeros(params: Updates) -> Tree:
    return params.tree([params.m.zeros_like(p) for p in params.leaves])


def _mean_square(updates: Updates, mean: Tree, g: list[Any], decay: float) -> list[Any]:
    leaves = updates.read(mean)
    means = updates.m.multi_mean_square(leaves, g, decay=decay, reuse=updates.spare(leaves))
    return updates.chosen(means, leaves)

"""Optimizers by name: each is one chain of parts. Defaults and formulas are torch's where torch has the optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from unisync.errors import unknown
from unisync.optim import _checks as check
from unisync.optim.base import Transform, chain, identity
from unisync.optim.moments import scale_by_adagrad, scale_by_adam, scale_by_lion, scale_by_rms, trace
from unisync.optim.scaling import Mask, Schedule, add_decayed_weights, scale_by_learning_rate, scale_by_trust_ratio


def sgd(
    learning_rate: float | Schedule = 1e-3,
    momentum: float = 0.0,
    nesterov: bool = False,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Transform:
    """Stochastic gradient descent, with momentum if asked for; equal to torch.optim.SGD.

    Args:
        learning_rate: number ≥ 0 or schedule.
        momentum: in [0, 1).
        nesterov: whether momentum looks ahead; needs momentum > 0 and dampening = 0.
        dampening: in [0, 1): what to take off the gradient's weight in the momentum.
        weight_decay: number ≥ 0, added to the gradients times the params (L2).
        mask: which params decay: path patterns, function of (path, param), tree of bools; None for all.

    Raises:
        ArgumentError: a value is out of its range.

    Example:
        >>> optimizer = us.optim.sgd(0.5)
        >>> params = {"weight": us.asarray([1.0, 2.0])}
        >>> optimizer.step({"weight": us.asarray([1.0, -1.0])}, optimizer.init(params), params)[0]
        {'weight': array([0.5, 2.5], dtype=float32)}
    """
    check.fraction("momentum", momentum, 0.9)
    return chain(
        _decay(weight_decay, mask),
        trace(momentum, nesterov, dampening) if momentum or nesterov else identity(),
        scale_by_learning_rate(learning_rate),
    )


def adam(
    learning_rate: float | Schedule = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Transform:
    """Adam; equal to torch.optim.Adam, whose weight decay is part of the gradient.

    Args:
        learning_rate: number ≥ 0 or schedule.
        betas: decays of the means of gradients and of their squares, in [0, 1).
        eps: number ≥ 0, added to the root.
        weight_decay: number ≥ 0, added to the gradients times the params (L2); decoupled: `adamw`.
        mask: which params decay: path patterns, function of (path, param), tree of bools; None for all.

    Raises:
        ArgumentError: a value is out of its range.

    Source: Kingma, Ba (https://arxiv.org/abs/1412.6980).

    Example:
        >>> optimizer = us.optim.adam(0.5)
        >>> params = {"weight": us.asarray([1.0, 2.0])}
        >>> optimizer.step({"weight": us.asarray([7.0, -7.0])}, optimizer.init(params), params)[0]
        {'weight': array([0.5, 2.5], dtype=float32)}
    """
    return chain(_decay(weight_decay, mask), scale_by_adam(*betas, eps), scale_by_learning_rate(learning_rate))


def adamw(
    learning_rate: float | Schedule = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    mask: Mask = None,
) -> Transform:
    """Adam with decoupled weight decay; equal to torch.optim.AdamW.

    Args:
        learning_rate: number ≥ 0 or schedule.
        betas: decays of the means of gradients and of their squares, in [0, 1).
        eps: number ≥ 0, added to the root.
        weight_decay: number ≥ 0; params shrink by learning_rate · weight_decay of themselves each update.
        mask: which params decay: path patterns, function of (path, param), tree of bools; None for all.

    Raises:
        ArgumentError: a value is out of its range.

    Source: Loshchilov, Hutter (https://arxiv.org/abs/1711.05101).

    Example:
        >>> optimizer = us.optim.adamw(0.5, weight_decay=1.0)
        >>> params = {"weight": us.asarray([1.0, 2.0])}
        >>> optimizer.step({"weight": us.asarray([7.0, -7.0])}, optimizer.init(params), params)[0]
        {'weight': array([0. , 1.5], dtype=float32)}
    """
    return chain(scale_by_adam(*betas, eps), _decay(weight_decay, mask), scale_by_learning_rate(learning_rate))


def rmsprop(
    learning_rate: float | Schedule = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    centered: bool = False,
    mask: Mask = None,
) -> Transform:
    """RMSprop; equal to torch.optim.RMSprop.

    Args:
        learning_rate: number ≥ 0 or schedule.
        alpha: in [0, 1): decay of the mean of squares.
        eps: number ≥ 0, added to the root.
        weight_decay: number ≥ 0, added to the gradients times the params (L2).
        momentum: in [0, 1).
        centered: whether to divide by the standard deviation of the gradients.
        mask: which params decay: path patterns, function of (path, param), tree of bools; None for all.

    Raises:
        ArgumentError: a value is out of its range.

    Example:
        >>> optimizer = us.optim.rmsprop(0.5, alpha=0.75)
        >>> params = {"weight": us.asarray([1.0, 2.0])}
        >>> optimizer.step({"weight": us.asarray([4.0, -4.0])}, optimizer.init(params), params)[0]
        {'weight': array([0., 3.], dtype=float32)}
    """
    check.fraction("momentum", momentum, 0.9)
    return chain(
        _decay(weight_decay, mask),
        scale_by_rms(alpha, eps, centered),
        trace(momentum) if momentum else identity(),
        scale_by_learning_rate(learning_rate),
    )


def adagrad(
    learning_rate: float | Schedule = 1e-2,
    lr_decay: float = 0.0,
    weight_decay: float = 0.0,
    initial_accumulator: float = 0.0,
    eps: float = 1e-10,
    mask: Mask = None,
) -> Transform:
    """Adagrad; equal to torch.optim.Adagrad.

    Args:
        learning_rate: number ≥ 0 or schedule.
        lr_decay: number ≥ 0: the learning rate is divided by 1 + count · lr_decay.
        weight_decay: number ≥ 0, added to the gradients times the params (L2).
        initial_accumulator: number ≥ 0: what the sums of squares begin with.
        eps: number ≥ 0, added to the root.
        mask: which params decay: path patterns, function of (path, param), tree of bools; None for all.

    Raises:
        ArgumentError: a value is out of its range.

    Example:
        >>> optimizer = us.optim.adagrad(0.5)
        >>> params = {"weight": us.asarray([1.0, 2.0])}
        >>> optimizer.step({"weight": us.asarray([7.0, -7.0])}, optimizer.init(params), params)[0]
        {'weight': array([0.5, 2.5], dtype=float32)}
    """
    check.rate(learning_rate, 0.01)
    check.non_negative("lr_decay", lr_decay, 0.0)
    return chain(
        _decay(weight_decay, mask),
        scale_by_adagrad(initial_accumulator, eps),
        scale_by_learning_rate(_hyperbolic(learning_rate, lr_decay) if lr_decay else learning_rate),
    )


def _hyperbolic(learning_rate: float | Schedule, decay: float) -> Schedule:
    base = learning_rate if callable(learning_rate) else lambda count: learning_rate
    return lambda count: base(count) / (1 + count * decay)


def lion(
    learning_rate: float | Schedule = 1e-4,
    betas: tuple[float, float] = (0.9, 0.99),
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Transform:
    """Lion: the sign of a momentum, with decoupled weight decay.

    Compared with AdamW, the learning rate is to be 3 to 10 times smaller and the weight decay as many times larger.

    Args:
        learning_rate: number ≥ 0 or schedule.
        betas: weight of the momentum in the update, and its decay, in [0, 1).
        weight_decay: number ≥ 0, decoupled.
        mask: which params decay: path patterns, function of (path, param), tree of bools; None for all.

    Raises:
        ArgumentError: a value is out of its range.

    Source: Chen et al. (https://arxiv.org/abs/2302.06675), algorithm 2; defaults of the authors' code.

    Example:
        >>> optimizer = us.optim.lion(0.5)
        >>> params = {"weight": us.asarray([1.0, 2.0])}
        >>> optimizer.step({"weight": us.asarray([7.0, -7.0])}, optimizer.init(params), params)[0]
        {'weight': array([0.5, 2.5], dtype=float32)}
    """
    return chain(scale_by_lion(*betas), _decay(weight_decay, mask), scale_by_learning_rate(learning_rate))


def lamb(
    learning_rate: float | Schedule = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    weight_decay: float = 0.01,
    mask: Mask = None,
) -> Transform:
    """LAMB: Adam whose update of each leaf has the leaf's own norm, for large batches.

    Args:
        learning_rate: number ≥ 0 or schedule.
        betas: decays of the means of gradients and of their squares, in [0, 1).
        eps: number ≥ 0, added to the root.
        weight_decay: number ≥ 0, decoupled; part of the update that is scaled.
        mask: which params decay: path patterns, function of (path, param), tree of bools; None for all.

    Raises:
        ArgumentError: a value is out of its range.

    Source: You et al. (https://arxiv.org/abs/1904.00962), algorithm 2 with φ(z) = z; defaults of its BERT experiments.

    Example:
        >>> optimizer = us.optim.lamb(0.1, weight_decay=0.0)
        >>> params = {"weight": us.asarray([4.0])}
        >>> optimizer.step({"weight": us.asarray([7.0])}, optimizer.init(params), params)[0]
        {'weight': array([3.6], dtype=float32)}
    """
    return chain(
        scale_by_adam(*betas, eps),
        _decay(weight_decay, mask),
        scale_by_trust_ratio(),
        scale_by_learning_rate(learning_rate),
    )


RECIPES: dict[str, Callable[..., Transform]] = {
    recipe.__name__: recipe for recipe in (sgd, adam, adamw, rmsprop, adagrad, lion, lamb)
}
"""Every recipe by its name."""


def by_name(name: str, learning_rate: float | Schedule | None = None, **options: Any) -> Transform:
    """The optimizer of a name, for command lines and configuration files.

    Args:
        name: "sgd", "adam", "adamw", "rmsprop", "adagrad", "lion" or "lamb".
        learning_rate: number ≥ 0 or schedule; None for the recipe's default.
        options: its further arguments.

    Raises:
        UnknownNameError: there is no such optimizer or option; names the nearest.

    Example:
        >>> optimizer = us.optim.by_name("sgd", 0.1, momentum=0.9)
        >>> optimizer.update([us.ones(1)], optimizer.init([us.ones(1)]))[0]
        [array([-0.1], dtype=float32)]
    """
    if name not in RECIPES:
        raise unknown("optimizer", name, RECIPES)
    recipe = RECIPES[name]
    known = [key for key in inspect.signature(recipe).parameters if key != "learning_rate"]
    for key in options:
        if key not in known:
            raise unknown(f"option of {name}", key, known)
    return recipe(**options) if learning_rate is None else recipe(learning_rate, **options)


def _decay(rate: float, mask: Mask) -> Transform:
    part = add_decayed_weights(rate, mask)
    return part if rate else identity()

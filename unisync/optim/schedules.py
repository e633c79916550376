"""Learning rates as functions of the count of updates.

A schedule takes the count of updates made so far, 0 at the first: a Python int gives a Python float, and a native array
(inside compiled functions) a 0-d array. Your own is any such function: `lambda count: 0.1 / (1 + count)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unisync._dispatch import namespace
from unisync.errors import ArgumentError
from unisync.optim import _checks as check


def constant(value: float) -> Callable[[Any], Any]:
    """The same value always.

    Args:
        value: the value.

    Example:
        >>> us.optim.constant(0.1)(1000)
        0.1
    """
    check.number("value", value, 0.1)
    return lambda count: value


def cosine(init: float, steps: int, end: float = 0.0) -> Callable[[Any], Any]:
    """Half a cosine from init at count 0 to end at count `steps`; end from then on.

    Args:
        init: the first value.
        steps: whole number ≥ 1, in updates.
        end: the last value.

    Source: Loshchilov, Hutter, SGDR (https://arxiv.org/abs/1608.03983), equation 5; up to T_max torch's
    CosineAnnealingLR.

    Example:
        >>> schedule = us.optim.cosine(1.0, 4)
        >>> [round(schedule(count), 3) for count in range(6)]
        [1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
    """
    check.number("init", init, 0.1)
    check.at_least_one("steps", steps, 1000)
    check.number("end", end, 0.0)

    def schedule(count: Any) -> Any:
        return end + (init - end) * (0.5 + 0.5 * _cos(math.pi / steps * _clip(_real(count), 0, steps)))

    return schedule


def warmup_cosine(
    peak: float, warmup_steps: int, steps: int, init: float = 0.0, end: float = 0.0
) -> Callable[[Any], Any]:
    """A straight line from init to peak at count `warmup_steps`, then half a cosine to end at count `steps`.

    Args:
        peak: the highest value.
        warmup_steps: whole number ≥ 1, in updates.
        steps: whole number > warmup_steps: updates in all, the warm-up included.
        init: the first value.
        end: the last value, kept from then on.

    Example:
        >>> schedule = us.optim.warmup_cosine(1.0, 2, 4)
        >>> [round(schedule(count), 3) for count in range(6)]
        [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]
    """
    check.number("peak", peak, 0.1)
    check.at_least_one("warmup_steps", warmup_steps, 100)
    check.at_least_one("steps", steps, 1000)
    check.number("init", init, 0.0)
    if steps <= warmup_steps:
        raise ArgumentError(
            f"`steps` must be greater than warmup_steps, which it includes, got {steps} ≤ {warmup_steps}. "
            f"Try: steps={warmup_steps * 10}."
        )
    decay = cosine(peak, steps - warmup_steps, end)

    def schedule(count: Any) -> Any:
        count = _real(count)
        line = init + (peak - init) / warmup_steps * count
        return _where(count < warmup_steps, line, decay(count - warmup_steps))

    return schedule


def piecewise(
    init: float, boundaries: Mapping[int, float] | Sequence[int], factors: Sequence[float] | None = None
) -> Callable[[Any], Any]:
    """init, multiplied by a factor when the count reaches each boundary.

    Args:
        init: the first value.
        boundaries: {count: factor}, or the counts alone, ascending.
        factors: the factors, if boundaries is a sequence.

    Source: torch's MultiStepLR.

    Example:
        >>> schedule = us.optim.piecewise(1.0, {2: 0.5, 3: 0.1})
        >>> [schedule(count) for count in range(5)]
        [1.0, 1.0, 0.5, 0.05, 0.05]
        >>> us.optim.piecewise(1.0, [2, 3], [0.5, 0.1])(2)
        0.5
    """
    check.number("init", init, 0.1)
    if isinstance(boundaries, Mapping) == (factors is not None) or len(boundaries) != len(factors or boundaries):
        raise ArgumentError(
            f"`boundaries` must be {{count: factor}} or come with as many factors, got {boundaries!r} and {factors!r}. "
            "Try: piecewise(0.1, {1000: 0.1, 2000: 0.1})."
        )
    table = sorted(
        boundaries.items() if isinstance(boundaries, Mapping) else zip(boundaries, factors or (), strict=True)
    )
    for boundary, factor in table:
        check.number("boundaries", boundary, "{1000: 0.1}")
        check.number("factors", factor, 0.1)

    def schedule(count: Any) -> Any:
        count = _real(count)
        value = init if _plain(count) else init + 0.0 * count
        for boundary, factor in table:
            value = _where(count >= boundary, value * factor, value)
        return value

    return schedule


def exponential(init: float, decay_rate: float, steps: int = 1, staircase: bool = False) -> Callable[[Any], Any]:
    """init · decay_rate ** (count / steps).

    Args:
        init: the first value.
        decay_rate: number > 0: the factor that every `steps` updates make.
        steps: whole number ≥ 1, in updates.
        staircase: whether to round count / steps down, so that the value falls once every `steps` updates.

    Source: torch's ExponentialLR (steps=1) and StepLR (staircase=True).

    Example:
        >>> schedule = us.optim.exponential(1.0, 0.25, steps=2)
        >>> [schedule(count) for count in range(4)]
        [1.0, 0.5, 0.25, 0.125]
    """
    check.number("init", init, 0.1)
    check.positive("decay_rate", decay_rate, 0.9)
    check.at_least_one("steps", steps, 1000)

    def schedule(count: Any) -> Any:
        rounds = _real(count) / steps
        return init * _power(decay_rate, _floor(rounds) if staircase else rounds)

    return schedule


def _plain(x: Any) -> bool:
    return isinstance(x, (int, float))


def _real(count: Any) -> Any:
    """A count to calculate with: TensorFlow refuses int arrays times Python floats."""
    if _plain(count):
        return count
    m = namespace(count)
    return count if m.dtype_of(count) in ("float32", "float64") else m.astype(count, "float32")


def _cos(x: Any) -> Any:
    return math.cos(x) if _plain(x) else namespace(x).cos(x)


def _floor(x: Any) -> Any:
    return math.floor(x) if _plain(x) else namespace(x).floor(x)


def _power(base: float, x: Any) -> Any:
    return base**x if _plain(x) else namespace(x).exp(x * math.log(base))


def _clip(x: Any, low: float, high: float) -> Any:
    return min(max(x, low), high) if _plain(x) else namespace(x).clip(x, low, high)


def _where(condition: Any, x: Any, y: Any) -> Any:
    if isinstance(condition, bool):
        return x if condition else y
    return namespace(condition).where(condition, x, y)

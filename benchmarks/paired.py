"""Compare ways to do the same thing: interleaved in random order, as ratios, with an interval and an A/A control.

Absolute times on a shared machine prove nothing; the ratio of two runs next to each other in time does. Every
round runs each candidate once, in an order drawn anew; the baseline takes part twice, and the ratio of its two runs
(the control) shows what the machine's noise alone looks like.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

CONTROL = "control (A/A)"


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """One candidate against the baseline over all rounds."""

    name: str
    median_s: float
    ratio: float  # median over rounds of candidate / baseline
    ratio_low: float  # lower end of the 95 % interval of that median
    ratio_high: float
    extra_us: float  # median over rounds of candidate − baseline, microseconds
    extra_low_us: float

    def holds(self, max_ratio: float, max_extra_us: float = 0.0) -> bool:
        """Whether the lower bound of the ratio, or that of the difference, is within the allowance."""
        return self.ratio_low <= max_ratio or self.extra_low_us <= max_extra_us


def compare(
    baseline: str,
    candidates: dict[str, Callable[[], object]],
    *,
    rounds: int = 100,
    calls: int = 1,
    warmup: int = 5,
    seed: int = 0,
) -> list[Comparison]:
    """Time each candidate (which must block until its work is done) against the named baseline.

    Args:
        baseline: which of the candidates the others are divided by.
        candidates: name → function without arguments. One named CONTROL is the control: a second instance of the
            baseline, where to run one function twice as often as the others would keep its data in the caches.
        rounds: how many interleaved rounds.
        calls: how often a candidate is called in one round; its time is the mean.
        warmup: uncounted rounds before.
        seed: of the orders and of the bootstrap.
    """
    runs = {CONTROL: candidates[baseline], **candidates}
    order = random.Random(seed)
    times: dict[str, list[float]] = {name: [] for name in runs}
    gc.collect()
    gc.disable()
    try:
        for round_number in range(warmup + rounds):
            for name in order.sample(list(runs), len(runs)):
                run = runs[name]
                start = time.perf_counter()
                for _ in range(calls):
                    run()
                elapsed = (time.perf_counter() - start) / calls
                if round_number >= warmup:
                    times[name].append(elapsed)
    finally:
        gc.enable()
    base = np.array(times[baseline])
    return [_summarise(name, np.array(times[name]), base, seed) for name in runs]


def _summarise(name: str, own: np.ndarray, base: np.ndarray, seed: int) -> Comparison:
    ratios, extras = own / base, (own - base) * 1e6
    picks = np.random.default_rng(seed).integers(0, len(base), size=(2000, len(base)))
    low, high = np.percentile(np.median(ratios[picks], axis=1), [2.5, 97.5])
    extra_low = np.percentile(np.median(extras[picks], axis=1), 2.5)
    return Comparison(
        name,
        float(np.median(own)),
        float(np.median(ratios)),
        float(low),
        float(high),
        float(np.median(extras)),
        float(extra_low),
    )


def show(title: str, comparisons: list[Comparison]) -> None:
    """Print one comparison as a Markdown table."""
    print(f"\n### {title}\n")
    print("| | median | ratio | 95 % interval | difference |")
    print("|---|--:|--:|--:|--:|")
    for c in comparisons:
        interval = f"{c.ratio_low:.3f} – {c.ratio_high:.3f}"
        print(f"| {c.name} | {_time(c.median_s)} | {c.ratio:.3f} | {interval} | {c.extra_us:+.1f} µs |", flush=True)


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"

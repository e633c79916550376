"""NumPy's engine: threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unisync import _dispatch
from unisync.backends._threads import ThreadEngine, check_name
from unisync.backends.numpy import _blas, _tape
from unisync.backends.numpy._differentiable import differentiable
from unisync.errors import ArgumentError


def make_engine(name: str | None, replicas: int | None, device: Any, timeout_s: float) -> ThreadEngine:
    """The engine of a world of `replicas` (default 1) threads."""
    check_name(name)
    if device is not None and str(device) != "cpu":
        raise ArgumentError(f"`device` must be 'cpu' on NumPy, got {device!r}. Try: leave it out.")
    return NumpyThreads(_dispatch.load("numpy"), ("cpu",) * (replicas or 1), timeout_s)


class NumpyThreads(ThreadEngine):
    """Replicas as threads, differentiated through the tape."""

    def to_host(self, x: Any) -> np.ndarray:
        return np.asarray(x)

    def from_host(self, array: np.ndarray, like: Any) -> Any:
        return array

    def traced(self, x: Any) -> bool:
        return _tape.is_traced(x)

    def differentiable(self, x: Any, forward: Callable[[Any], Any], backward: Callable[[Any], Any] | None) -> Any:
        return differentiable(x, forward, backward, self.name)

    def limit_threads(self, count: int) -> Callable[[], None]:
        return _blas.limit(count)

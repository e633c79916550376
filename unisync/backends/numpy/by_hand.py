"""Collectives between plain threads with NumPy, for `unisync bench`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from unisync._per_replica import PerReplica
from unisync.backends._by_hand import in_threads


def collective(op: str, value: PerReplica, engine: Any) -> AbstractContextManager[Callable[[], list[Any]]]:
    """A function that does the collective on the replicas' arrays, once per call."""
    return in_threads(op, list(value), np.concatenate, np.copy)


def results(returned: list[Any]) -> list[Any]:
    """Each replica's array, from what that function returned."""
    return returned


def wait(value: PerReplica) -> None:
    """Nothing to wait for: NumPy has computed what it has returned."""

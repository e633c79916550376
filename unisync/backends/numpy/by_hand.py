"""Collectives between plain threads with NumPy, and between processes with mpi4py, for `unisync bench`."""

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


def launched(op: str, x: np.ndarray, engine: Any) -> dict[str, Callable[[], np.ndarray]]:
    """Ways of doing a collective of a launched world by mpi4py itself; the first has memory for the result at hand."""
    comm, size = engine.comm, engine.size
    shape = x.shape if op == "all_reduce" else (size * x.shape[0], *x.shape[1:])
    call = comm.Allreduce if op == "all_reduce" else comm.Allgather
    kept = np.empty(shape, x.dtype)

    def to_the_same_memory() -> np.ndarray:
        call(x, kept)
        return kept

    def to_new_memory() -> np.ndarray:
        result = np.empty(shape, x.dtype)
        call(x, result)
        return result

    name = f"comm.{call.__name__}"
    return {f"{name} to the same memory": to_the_same_memory, f"{name} to new memory": to_new_memory}

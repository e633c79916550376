"""Collectives between plain threads with torch, for `unisync bench`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from unisync._per_replica import PerReplica
from unisync.backends._by_hand import in_threads
from unisync.backends.torch.conversion import block_until_ready


def collective(op: str, value: PerReplica, engine: Any) -> AbstractContextManager[Callable[[], list[Any]]]:
    """A function that does the collective on the replicas' arrays, once per call."""
    home = engine.devices[0]  # sums of tensors of several accelerators are made on the first

    def at_home(x: torch.Tensor) -> torch.Tensor:
        return x.to(home)

    return in_threads(op, [at_home(x) for x in value], torch.cat, torch.clone)


def results(returned: list[Any]) -> list[Any]:
    """Each replica's array, from what that function returned."""
    return returned


def wait(value: PerReplica) -> None:
    """Until the arrays of a result are computed."""
    block_until_ready(list(value))

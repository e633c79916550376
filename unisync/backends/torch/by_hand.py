"""Collectives by torch alone, between plain threads and between processes, to compare with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist

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


def launched(op: str, x: torch.Tensor, engine: Any) -> dict[str, Callable[[], torch.Tensor]]:
    """Ways of doing a collective of a launched world by torch.distributed itself; the first returns new memory, as
    unisync's does."""
    group, size = engine.group_of_torch, engine.size
    mine = x.clone()

    def in_place() -> torch.Tensor:
        dist.all_reduce(mine, group=group)
        return mine

    def to_new_memory() -> torch.Tensor:
        result = x.clone()
        dist.all_reduce(result, group=group)
        return result

    def gathered() -> torch.Tensor:
        result = x.new_empty((size * x.shape[0], *x.shape[1:]))
        dist.all_gather(list(result.chunk(size)), x, group=group)
        return result

    return {
        "all_reduce": {"clone, dist.all_reduce": to_new_memory, "dist.all_reduce in place": in_place},
        "all_gather": {"dist.all_gather": gathered},
    }[op]

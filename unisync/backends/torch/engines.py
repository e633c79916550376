"""PyTorch's engine in one process: threads. NumPy adds up on the tensors' own memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from unisync import _dispatch
from unisync.backends._threads import ThreadEngine, check_name
from unisync.backends.torch._graph import differentiable, traced
from unisync.errors import ArgumentError


def make_engine(name: str | None, replicas: int | None, device: Any, timeout_s: float) -> ThreadEngine:
    """The engine of a world of `replicas` threads; default: one per accelerator, on a CPU one."""
    check_name(name)
    return TorchThreads(_dispatch.load("torch"), _devices(replicas, device), timeout_s)


def _devices(replicas: int | None, device: Any) -> tuple[torch.device, ...]:
    try:
        asked = None if device is None else torch.device(device)
    except RuntimeError as error:
        raise ArgumentError(f"`device` must name a torch device, got {device!r}. Try: 'cpu'.") from error
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    kind = asked.type if asked is not None else (found.type if found is not None else "cpu")
    if kind == "cpu":
        return (torch.device("cpu"),) * (replicas or 1)
    count = torch.accelerator.device_count() if found is not None and found.type == kind else 0
    if asked is not None and asked.index is not None and replicas in (None, 1):
        return (asked,)
    if (replicas or 1) > count:
        raise ArgumentError(
            f"`replicas` must be at most the {count} {kind} devices of this machine, got {replicas}. Try: device='cpu'."
        )
    return tuple(torch.device(kind, i) for i in range(replicas or count))


class TorchThreads(ThreadEngine):
    """Replicas as threads, differentiated through torch's own graph, whose backward pass on a CPU runs in the thread
    that asks for it. Tensors on accelerators travel by way of the host."""

    def to_host(self, x: torch.Tensor) -> np.ndarray:
        x = x.detach()
        if x.dtype is torch.bfloat16:  # its bits: NumPy has no such dtype
            x = x.view(torch.int16)
        return x.resolve_conj().resolve_neg().cpu().numpy()

    def from_host(self, array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
        x = torch.from_numpy(array)
        if like.dtype is torch.bfloat16:
            x = x.view(torch.bfloat16)
        return x if like.device.type == "cpu" else x.to(like.device)

    def traced(self, x: torch.Tensor) -> bool:
        return traced(x)

    def differentiable(self, x: Any, forward: Callable[[Any], Any], backward: Callable[[Any], Any] | None) -> Any:
        return differentiable(x, forward, backward)

    def thread_state(self) -> Callable[[], Any]:
        gradients, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        if gradients and not inference:
            return super().thread_state()

        @contextlib.contextmanager
        def same() -> Iterator[None]:
            with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
                yield

        return same

    def limit_threads(self, count: int) -> Callable[[], None]:
        # A thread takes over the number set last when it first computes: set it before the replicas' threads start.
        before = torch.get_num_threads()
        torch.set_num_threads(min(count, before))
        return lambda: torch.set_num_threads(before)

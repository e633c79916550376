"""What torch's engines of launched worlds have in common: the process groups, errors, derivatives and stamps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

import torch

from unisync._events import now_ns
from unisync.backends._derivatives import DifferentiableEngine
from unisync.backends._engine import Groups, Handle
from unisync.backends._launched import LaunchedEngine, Member
from unisync.backends.torch import _dtypes
from unisync.backends.torch._graph import differentiable, traced
from unisync.backends.torch._group import ProcessGroups
from unisync.backends.torch.overlap import Overlapped
from unisync.errors import CollectiveMismatchError


class TorchProcesses(DifferentiableEngine, LaunchedEngine):
    """Replicas as processes, differentiated through torch's own graph."""

    uneven = True

    def __init__(self, backend: Any, member: Member, device: torch.device, timeout_s: float) -> None:
        super().__init__(backend, member, device, timeout_s)
        self._everyone = tuple(range(self.size))
        self._waits: tuple[int | None, int | None] = (None, None)
        self._groups = ProcessGroups(member, self.name, device, timeout_s)

    @property
    def group_of_torch(self) -> Any:
        """The world as torch.distributed knows it."""
        return self._groups.whole

    def traced(self, x: torch.Tensor) -> bool:
        return traced(x)

    def differentiable(self, x: Any, forward: Callable[[Any], Any], backward: Callable[[Any], Any] | None) -> Any:
        return differentiable(x, forward, backward)

    def waited(self) -> tuple[int | None, int | None]:
        return self._waits

    def end(self) -> None:
        super().end()
        self._groups.end()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """New memory on the device, holding anything."""
        return torch.empty(tuple(shape), dtype=dtype, device=self.devices[0])

    def members(self, groups: Groups | None) -> tuple[int, ...]:
        """The group of this process, in its order."""
        return self._everyone if groups is None else self.group(groups)

    def call(self, what: str, x: torch.Tensor, groups: Groups | None) -> str:
        """The call under way in words, which must be the same for all members; `what` if it is not a user's."""
        events = self.ring.events
        label = events[-1].op if events else what
        shape = tuple(x.shape[1:]) if what == "all_gather" else tuple(x.shape)
        rows = "rows of " if what == "all_gather" else ""
        return f"{label} of {rows}{_dtypes.NAMES[x.dtype]}{shape}{'' if groups is None else f' in {groups}'}"

    @abstractmethod
    def start_sum_in_place(self, x: torch.Tensor, label: str) -> Handle:
        """The sum over all replicas, under way, of a contiguous array of one axis that becomes the sum."""

    def overlapped_gradients(
        self, objective: Callable[..., Any], figures: Callable[..., Any], counts: Callable[..., bool]
    ) -> Callable[..., Any]:
        return Overlapped(self, objective, figures, counts, self.start_sum_in_place)

    def guarded(self, label: str, call: Callable[[], Any]) -> Any:
        """call(), whose failure becomes an error that says which rank caused it."""
        begin = now_ns()
        try:
            result = call()
        except (RuntimeError, CollectiveMismatchError) as error:
            # The others see it too, and together they know of both lines: let the coordinator tell.
            explained = self.channel.explain(None if isinstance(error, CollectiveMismatchError) else error, label)
            if isinstance(error, CollectiveMismatchError) and self.channel.verdict is None:
                raise
            raise explained from error
        self._waits = begin, now_ns()
        return result


@final
class Pending(Handle):
    """An all-reduce under way.

    Args:
        engine: whose.
        label: the call, in words.
        wait: waits for it and gives the result.
        is_completed: whether that would return at once.
    """

    __slots__ = ("_engine", "_is_completed", "_label", "_result", "_wait")

    def __init__(
        self, engine: TorchProcesses, label: str, wait: Callable[[], Any], is_completed: Callable[[], bool]
    ) -> None:
        self._engine, self._label, self._is_completed = engine, label, is_completed
        self._wait: Callable[[], Any] | None = wait
        self._result: Any = None

    def wait(self) -> Any:
        if self._wait is not None:
            self._result = self._engine.guarded(self._label, self._wait)
            self._wait = None
        return self._result

    def is_completed(self) -> bool:
        return self._wait is None or self._is_completed()

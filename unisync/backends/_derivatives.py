"""The derivatives of collectives, for engines whose replicas run code of their own: each pullback is a collective too."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from unisync._context import Scope
from unisync._types import bfloat16, float16, float32
from unisync.backends._collectives import noted
from unisync.backends._engine import Engine, Groups, Handle, ReduceOp
from unisync.errors import TraceError


class Differentiated(Engine):
    """Differentiable collectives over those of plain arrays.

    The methods that an engine adds take and return arrays that are not being differentiated; results are new memory.
    """

    @abstractmethod
    def differentiable(self, x: Any, forward: Callable[[Any], Any], backward: Callable[[Any], Any] | None) -> Any:
        """forward(x), whose derivative is `backward` of the cotangent; None: to take one is an error."""

    @abstractmethod
    def calling(self, label: str) -> Scope:
        """The replica that takes the gradient of a collective.

        Raises:
            StateError: none does; names the label.
        """

    @abstractmethod
    def reduce(self, x: Any, op: str, groups: Groups | None) -> Any:
        """The reduction over the group; op may be "mean"."""

    @abstractmethod
    def start_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Handle:
        """The reduction over the group, without waiting for it."""

    @abstractmethod
    def gather(self, x: Any, groups: Groups | None) -> Any:
        """The group's arrays, which may differ in length, along axis 0."""

    @abstractmethod
    def lengths(self, length: int, groups: Groups | None) -> Sequence[int]:
        """The group's numbers, in its order."""

    @abstractmethod
    def position(self, groups: Groups | None) -> int:
        """The place of the calling replica in its group."""

    @abstractmethod
    def scatter_sum(self, x: Any, groups: Groups | None) -> Any:
        """This member's slice along axis 0 of the sum."""

    @abstractmethod
    def spread(self, x: Any, root: int, groups: Groups | None) -> Any:
        """The array of the member at position `root`."""

    @abstractmethod
    def exchange(self, x: Any, groups: Groups | None) -> Any:
        """Slice j along axis 0 to member j."""

    @abstractmethod
    def move(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        """x of each pair's first replica at its second; zeros where nothing arrives."""

    @abstractmethod
    def post(self, x: Any, to: int) -> None:
        """Hand a copy of x to a replica."""

    def all_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Any:
        if not self.traced(x):
            return self.reduce(x, op, groups)
        back = self._back("all_reduce(sum)", lambda g: self.all_reduce(g, "sum", groups)) if op == "sum" else None
        return self.differentiable(x, lambda y: self.reduce(y, op, groups), back)

    def all_reduce_mean(self, x: Any, groups: Groups | None) -> Any:
        if not self.traced(x):
            return self.reduce(x, "mean", groups)
        back = self._back("all_reduce(mean)", lambda g: self.all_reduce_mean(g, groups))
        return self.differentiable(x, lambda y: self.reduce(y, "mean", groups), back)

    def start_all_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Handle:
        if self.traced(x):
            raise TraceError(
                "`async_op` must be False where a gradient is being taken, got True. Try: us.all_reduce(x) without it."
            )
        return self.start_reduce(x, op, groups)

    def all_gather(self, x: Any, groups: Groups | None) -> Any:
        def back(g: Any) -> Any:
            begin = sum(self.lengths(x.shape[0], groups)[: self.position(groups)])
            return self._total(g, groups)[begin : begin + x.shape[0]]

        return self.differentiable(x, lambda y: self.gather(y, groups), self._back("all_gather", back))

    def reduce_scatter(self, x: Any, groups: Groups | None) -> Any:
        back = self._back("reduce_scatter", lambda g: self.all_gather(g, groups))
        return self.differentiable(x, lambda y: self.scatter_sum(y, groups), back)

    def broadcast(self, x: Any, root: int, groups: Groups | None) -> Any:
        def back(g: Any) -> Any:
            total = self._total(g, groups)
            return total if self.position(groups) == root else self.backend.zeros_like(g)

        return self.differentiable(x, lambda y: self.spread(y, root, groups), self._back("broadcast", back))

    def all_to_all(self, x: Any, groups: Groups | None) -> Any:
        back = self._back("all_to_all", lambda g: self.all_to_all(g, groups))
        return self.differentiable(x, lambda y: self.exchange(y, groups), back)

    def permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        inverse = [(target, source) for source, target in pairs]
        back = self._back("permute", lambda g: self.permute(g, inverse))
        return self.differentiable(x, lambda y: self.move(y, pairs), back)

    def send(self, x: Any, to: int) -> None:
        def forward(y: Any) -> Any:
            self.post(y, to)
            return y

        self.differentiable(x, forward, None)

    def _total(self, g: Any, groups: Groups | None) -> Any:
        """The sum of cotangents, which may be of half precision."""
        m = self.backend
        dtype = m.dtype_of(g)
        wide = m.astype(g, float32) if dtype in (float16, bfloat16) else g
        return m.astype(self.all_reduce(wide, "sum", groups), dtype)

    def _back(self, label: str, back: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda g: noted(self.calling(label), f"gradient of {label}", g, lambda: back(g))

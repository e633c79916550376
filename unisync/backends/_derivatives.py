"""The derivatives of collectives, for engines whose replicas run code of their own: a pullback is a collective too."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from unisync import _context
from unisync._types import bfloat16, float16, float32
from unisync.backends._collectives import noted
from unisync.backends._engine import Engine, Groups, ReduceOp
from unisync.errors import StateError, TraceError


class DifferentiableEngine(Engine):
    """Differentiable collectives over plain ones.

    What an engine adds takes and gives arrays through which no gradient is taken; results are new memory.
    """

    @abstractmethod
    def differentiable(self, x: Any, forward: Callable[[Any], Any], backward: Callable[[Any], Any] | None) -> Any:
        """forward(x), whose derivative is `backward` of the cotangent; None: to take one is an error."""

    @abstractmethod
    def plain_reduce(self, x: Any, op: str, groups: Groups | None) -> Any:
        """The reduction over the group; op may be "mean"."""

    @abstractmethod
    def plain_gather(self, x: Any, groups: Groups | None) -> Any:
        """The group's arrays, which may differ in length, along axis 0."""

    @abstractmethod
    def plain_reduce_scatter(self, x: Any, groups: Groups | None) -> Any:
        """This member's slice along axis 0 of the sum."""

    @abstractmethod
    def plain_broadcast(self, x: Any, root: int, groups: Groups | None) -> Any:
        """The array of the member at position `root`."""

    @abstractmethod
    def plain_all_to_all(self, x: Any, groups: Groups | None) -> Any:
        """Slice j along axis 0 to member j."""

    @abstractmethod
    def plain_permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        """x of each pair's first replica at its second; zeros where nothing arrives."""

    @abstractmethod
    def lengths(self, own: int, groups: Groups | None) -> list[int]:
        """The numbers of the group's members, in its order."""

    def all_reduce(self, x: Any, op: ReduceOp, groups: Groups | None) -> Any:
        if not self.traced(x):
            return self.plain_reduce(x, op, groups)
        back = self._back("all_reduce(sum)", lambda g: self.all_reduce(g, "sum", groups)) if op == "sum" else None
        return self.differentiable(x, lambda y: self.plain_reduce(y, op, groups), back)

    def all_reduce_mean(self, x: Any, groups: Groups | None) -> Any:
        if not self.traced(x):
            return self.plain_reduce(x, "mean", groups)
        back = self._back("all_reduce(mean)", lambda g: self.all_reduce_mean(g, groups))
        return self.differentiable(x, lambda y: self.plain_reduce(y, "mean", groups), back)

    def all_gather(self, x: Any, groups: Groups | None) -> Any:
        def back(g: Any) -> Any:
            begin = sum(self.lengths(x.shape[0], groups)[: self._position(groups)])
            return self._total(g, groups)[begin : begin + x.shape[0]]

        return self.differentiable(x, lambda y: self.plain_gather(y, groups), self._back("all_gather", back))

    def reduce_scatter(self, x: Any, groups: Groups | None) -> Any:
        back = self._back("reduce_scatter", lambda g: self.all_gather(g, groups))
        return self.differentiable(x, lambda y: self.plain_reduce_scatter(y, groups), back)

    def broadcast(self, x: Any, root: int, groups: Groups | None) -> Any:
        def back(g: Any) -> Any:
            total = self._total(g, groups)
            return total if self._position(groups) == root else self.backend.zeros_like(g)

        return self.differentiable(x, lambda y: self.plain_broadcast(y, root, groups), self._back("broadcast", back))

    def all_to_all(self, x: Any, groups: Groups | None) -> Any:
        back = self._back("all_to_all", lambda g: self.all_to_all(g, groups))
        return self.differentiable(x, lambda y: self.plain_all_to_all(y, groups), back)

    def permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        inverse = [(target, source) for source, target in pairs]
        back = self._back("permute", lambda g: self.permute(g, inverse))
        return self.differentiable(x, lambda y: self.plain_permute(y, pairs), back)

    def check_not_traced(self, x: Any) -> None:
        """Raises TraceError where a gradient is being taken through x, for what does not wait for its result."""
        if self.traced(x):
            raise TraceError(
                "`async_op` must be False where a gradient is being taken, got True. Try: us.all_reduce(x) without it."
            )

    def _position(self, groups: Groups | None) -> int:
        rank = self._scope_of("a collective").index
        return rank if groups is None else next(g.index(rank) for g in groups if rank in g)

    def _total(self, g: Any, groups: Groups | None) -> Any:
        """The sum of cotangents, which may be of half precision."""
        m = self.backend
        dtype = m.dtype_of(g)
        wide = m.astype(g, float32) if dtype in (float16, bfloat16) else g
        return m.astype(self.all_reduce(wide, "sum", groups), dtype)

    def _back(self, label: str, back: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda g: noted(self._scope_of(label), f"gradient of {label}", g, lambda: back(g))

    def _scope_of(self, label: str) -> _context.Scope:
        """The replica that the code runs in; a launched process is one outside `spmd` too."""
        scope = _context.scope() or getattr(self, "scope", None)
        if scope is None:
            raise StateError(
                f"the gradient of {label} must be taken by the replicas, got a pullback outside us.spmd. "
                "Try: call us.grad, or the pullback of us.vjp, in the same us.spmd function."
            )
        return scope

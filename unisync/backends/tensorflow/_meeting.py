"""Where the replicas of a program meet while it is traced: each collective becomes plain ops on the tensors of all.

`merge_call` of tf.distribute waits until every replica's trace has reached a collective and hands control to one
function, which sees the tensors of all replicas: it checks that all mean the same, and makes the result of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from unisync import _context, _dispatch
from unisync._context import Scope
from unisync._events import Ring, site
from unisync.backends._engine import Groups
from unisync.backends.tensorflow import _fast
from unisync.backends.tensorflow._combine import Combine
from unisync.backends.tensorflow._recompute import Scratch
from unisync.errors import ArgumentError, CollectiveMismatchError, TraceError

_UNEVEN = frozenset({"all_gather"})  # arrays may differ in length along axis 0

_HINT = "Try: call collectives outside Python branches that depend on us.replica_index()."


class Call(NamedTuple):
    """What one replica brings to a collective."""

    op: str
    detail: tuple[Any, ...]  # what must be equal on all: groups, root, pairs ...
    tensor: Any
    beside: Any  # what may differ: a number of rows, or a Python value
    label: str
    site: str

    def kind(self) -> Any:
        """What must be the same on all replicas."""
        if self.tensor is None:
            return self.op, self.detail
        shape = _shape(self.tensor)
        return self.op, self.detail, self.tensor.dtype, shape[1:] if shape and self.op in _UNEVEN else shape

    def described(self) -> str:
        of = "" if self.tensor is None else f" of {self.tensor.dtype.name} {_shape(self.tensor)}"
        return f"{self.label}{of} at {self.site}"


def _shape(x: Any) -> Any:
    return tuple(x.shape.as_list()) if x.shape.rank is not None else None


class Round:
    """All replicas in one program that is being traced."""

    def __init__(self, strategy: Any, devices: Sequence[str]) -> None:
        self.strategy, self.size = strategy, len(devices)
        self.combine = Combine(strategy, devices)
        self.graph = tf.compat.v1.get_default_graph()
        self.calls: list[Call | None] = [None] * self.size  # the last of each replica
        self.rings = [Ring() for _ in range(self.size)]
        self._returned = [False] * self.size
        self._failed = False

    def run(self, engine: Any, replica: Callable[[int], None]) -> None:
        """replica(index) once per replica, inside its scope.

        Raises:
            CollectiveMismatchError: the replicas' collectives do not match.
        """
        try:
            self.strategy.run(lambda: self._as_replica(engine, replica))
        except RuntimeError as error:
            if "merge_call() calls" not in str(error) or not any(self._returned):
                raise
            raise self._unequal() from None
        finally:
            self.calls = [None] * self.size  # they hold tensors of the graph

    def _as_replica(self, engine: Any, replica: Callable[[int], None]) -> None:
        index = int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))
        engine.meeting.current = Meeting(self, index)
        try:
            with _dispatch.backend("tensorflow"), _context.inside(Scope(engine, index, self.rings[index])):
                replica(index)
            self._returned[index] = True
        except Exception as error:
            if not self._failed:  # the others, which are stopped, come here later
                error.add_note(f"in replica {index}")
            self._failed = True
            raise
        finally:
            engine.meeting.current = None

    def _unequal(self) -> CollectiveMismatchError:
        lines = []
        for replica, (call, returned) in enumerate(zip(self.calls, self._returned, strict=True)):
            if returned:
                lines.append(f"  replica {replica}: no more" + (f" after {call.described()}" if call else ""))
            elif call is not None:
                lines.append(f"  replica {replica}: {call.described()}")
        listed = "\n".join(lines)
        return CollectiveMismatchError(
            f"every replica must call the same collectives in the same order, got\n{listed}\n{_HINT}"
        )

    def meet(self, strategy: Any) -> Answer:
        """Runs when every replica has left its Call."""
        calls = [call for call in self.calls if call is not None]
        if len({call.kind() for call in calls}) != 1:
            listed = "\n".join(f"  replica {i}: {call.described()}" for i, call in enumerate(calls))
            raise CollectiveMismatchError(
                f"every replica must call the same collective on arrays of one shape and dtype, got\n{listed}\n{_HINT}"
            )
        op, detail = calls[0].op, calls[0].detail
        return Answer(self.combine(op, [call.tensor for call in calls], detail, [call.beside for call in calls]))


class Answer:
    """Results by replica; not a list, which tf.distribute would take apart."""

    __slots__ = ("results",)

    def __init__(self, results: list[Any]) -> None:
        self.results = results


class Meeting:
    """One replica's side: collectives of an array, with their derivatives."""

    def __init__(self, round_: Round, index: int) -> None:
        self._round, self.index = round_, index

    def all_reduce(self, x: Any, op: str, groups: Groups | None) -> Any:
        def back(cotangent: Any) -> Any:
            if op not in ("sum", "mean"):
                raise ArgumentError(
                    f"`op` must be 'sum' or 'mean' where us.grad goes through us.all_reduce, got {op!r}. "
                    "Try: us.all_reduce(us.stop_gradient(x), ...)."
                )
            return self.all_reduce(cotangent, op, groups)

        return self._call("all_reduce", (op, groups), x, back, label=f"all_reduce({op})")

    def all_gather(self, x: Any, groups: Groups | None) -> Any:
        x = tf.convert_to_tensor(x)
        rows = x.shape[0] if x.shape[0] is not None else tf.shape(x)[0]
        return self._call("all_gather", (groups,), x, lambda cotangent: self._scatter_rows(cotangent, rows, groups))

    def _scatter_rows(self, x: Any, rows: Any, groups: Groups | None) -> Any:
        """The sum over the group, of which each keeps as many rows as it had gathered."""
        return self._call("scatter_rows", (groups,), x, lambda cotangent: self.all_gather(cotangent, groups), rows)

    def reduce_scatter(self, x: Any, groups: Groups | None) -> Any:
        return self._call("reduce_scatter", (groups,), x, lambda cotangent: self.all_gather(cotangent, groups))

    def broadcast(self, x: Any, root: int, groups: Groups | None) -> Any:
        members = range(self._round.size) if groups is None else next(g for g in groups if self.index in g)

        def back(cotangent: Any) -> Any:
            total = self.all_reduce(cotangent, "sum", groups)
            return total if members[root] == self.index else tf.zeros_like(total)

        return self._call("broadcast", (root, groups), x, back, label=f"broadcast({root})")

    def all_to_all(self, x: Any, groups: Groups | None) -> Any:
        return self._call("all_to_all", (groups,), x, lambda cotangent: self.all_to_all(cotangent, groups))

    def permute(self, x: Any, pairs: tuple[tuple[int, int], ...]) -> Any:
        def back(cotangent: Any) -> Any:
            return self.permute(cotangent, tuple((target, source) for source, target in pairs))

        return self._call("permute", (pairs,), x, back, label=f"permute({list(pairs)})")

    def all_agree(self, value: Any, groups: Groups | None) -> bool:
        """Whether all of the group bring equal Python values to the trace."""
        return self._call("all_agree", (groups,), None, None, value)

    def barrier(self) -> None:
        self._call("barrier", (), None, None)

    def _call(
        self, op: str, detail: tuple[Any, ...], x: Any, back: Any, beside: Any = None, label: str | None = None
    ) -> Any:
        """This replica's result, once all have come."""
        x = None if x is None else tf.convert_to_tensor(x)
        call = Call(op, detail, x, beside, label or op, site())
        graph = tf.compat.v1.get_default_graph()
        if isinstance(graph, Scratch):
            # It finds out which tensors a recomputed function uses: only shapes matter, as if all were like this one.
            return self._round.combine(op, [x] * self._round.size, detail, [beside] * self._round.size)[self.index]
        if graph is not self._round.graph:
            raise TraceError(
                f"us.{op} must be called in the replica's own program, got a call in a loop, branch or tf.function "
                "within it, which is a program apart in which replicas cannot meet. "
                "Try: a Python loop, or the collective after it."
            )
        self._round.calls[self.index] = call
        result = tf.distribute.get_replica_context().merge_call(self._round.meet).results[self.index]
        return _recorded(x, result, back)


def _recorded(x: Any, result: Any, back: Callable[[Any], Any] | None) -> Any:
    """The result, known to this replica's tapes: a tape belongs to a thread, and the ops were made in another."""
    if back is None or not (x.dtype.is_floating or x.dtype.is_complex):
        return result
    if _fast.record_operation is not None:
        _fast.record_operation("collective", [result], [x], lambda cotangent: [back(tf.convert_to_tensor(cotangent))])
        return result
    return tf.custom_gradient(lambda _: (result, back))(x)

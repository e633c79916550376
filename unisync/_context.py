"""What the code around a model tells the layers inside it, per thread: which rows of the batch are padding."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, final

_local = threading.local()


def sample_weights() -> Any:
    """The weights of the batch's rows, an array (N,) in which padding has weight 0; None if all rows are real."""
    return getattr(_local, "weights", None)


@final
class weighing:
    """Tells the layers called inside a `with` block the weights of the batch's rows.

    In a compiled function it acts while the function is traced. A plain class rather than a generator, which
    `torch.compile(fullgraph=True)` cannot trace in all versions.

    Args:
        weights: array of shape (N,), or None.

    Example:
        >>> from unisync import _context
        >>> with _context.weighing(us.asarray([1.0, 0.0])):
        ...     _context.sample_weights()
        array([1., 0.], dtype=float32)
    """

    __slots__ = ("_outer", "_weights")

    def __init__(self, weights: Any) -> None:
        self._weights = weights
        self._outer: Any = None

    def __enter__(self) -> None:
        self._outer = getattr(_local, "weights", None)
        _local.weights = self._weights

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _local.weights = self._outer

"""What surrounding code tells a piece of code: which rows are padding, which replica it runs in, which world."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, final

from unisync import _events
from unisync.errors import StateError

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


class Scope(NamedTuple):
    """Where the current code runs: inside a replica of a world.

    Attributes:
        engine: the engine of the replica (`unisync.backends._engine.Engine`), which carries its collectives.
        index: the replica's number in the world: an int, or a traced array where all replicas share one program.
        ring: the replica's (or the traced program's) log of collectives.
    """

    engine: Any
    index: Any
    ring: _events.Ring


def scope() -> Scope | None:
    """The replica that this code runs in; None outside `spmd`."""
    return getattr(_local, "scope", None)


@final
class inside:
    """Runs the code of a `with` block as a replica; used by engines around the user's function."""

    __slots__ = ("_outer", "_scope")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._outer: Scope | None = None

    def __enter__(self) -> None:
        self._outer = getattr(_local, "scope", None)
        _local.scope = self._scope

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _local.scope = self._outer


_world: Any = None


def world() -> Any:
    """The current world (`unisync.distributed.World`); None until `init_distributed`."""
    return _world


def set_world(world: Any) -> None:
    """Make a world the current one of the process; None for none."""
    global _world
    _world = world


_launcher: Callable[[], str | None] | None = None


def set_launcher(launcher: Callable[[], str | None]) -> None:
    """Tell how to find out who started this process as one of several that it has not joined; in words, or None."""
    global _launcher
    _launcher = launcher


def check_joined() -> None:
    """Raise where a process would work alone that was started as one of several: it has forgotten to join them.

    Raises:
        StateError: it has.
    """
    launcher = None if _launcher is None else _launcher()
    if launcher is not None:
        raise StateError(
            f"the process must join its world first, since {launcher}, got no call of us.init_distributed: it would "
            "work on its own. Try: us.init_distributed() at the beginning of the script."
        )

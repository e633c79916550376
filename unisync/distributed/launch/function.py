"""us.launch: run a function in processes that work together, from a script or a notebook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unisync.errors import ArgumentError, ArgumentTypeError


def launch(
    fn: Callable[..., Any],
    replicas: int,
    *,
    backend: str | None = None,
    args: Sequence[Any] = (),
    timeout_s: float | None = None,
    log_dir: str | Path | None = None,
) -> list[Any]:
    """fn(*args) in as many new processes as there are replicas, each one a rank of a world.

    fn makes the world itself (`us.init_distributed()`), as a script under `unisync run` does. It may be defined in a
    notebook's cell or in the script that calls this: the function and what it refers to travel to the processes, which
    are started anew and share nothing with this one. What they print appears here behind "[rank] ".

    Args:
        fn: the function; its result and its arguments must be picklable.
        replicas: how many processes.
        backend: their backend. Default: the current one.
        args: the arguments, the same for all.
        timeout_s: how long a collective waits for a replica, in seconds; 600 if neither this nor fn says so.
        log_dir: a folder that each rank's output is kept in, as rank-0.log, ...

    Returns:
        The results, in the order of ranks.

    Raises:
        ReplicaFailedError: a rank raised, or its process ended; has the rank and the text of its traceback, and the
            rank's own exception as its cause.
        CollectiveTimeoutError: a rank did not come to a collective in time.
        CollectiveMismatchError: ranks met in different collectives.

    Example:
        >>> def total(x):
        ...     with us.init_distributed() as world:
        ...         return float(us.all_reduce(us.asarray(x * world.process_index), op="sum"))
        >>> us.launch(total, 2, args=(3.0,))
        [3.0, 3.0]
    """
    if not callable(fn):
        raise ArgumentTypeError(f"`fn` must be a function, got {type(fn).__name__}. Try: us.launch(train, 2).")
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise ArgumentTypeError(f"`replicas` must be a whole number, got {replicas!r}. Try: replicas=2.")
    if replicas < 1:
        raise ArgumentError(f"`replicas` must be at least 1, got {replicas}. Try: replicas=2.")
    if timeout_s is not None and not timeout_s > 0:
        raise ArgumentError(f"`timeout_s` must be positive, got {timeout_s}. Try: timeout_s=600.")
    # Only those who launch pay for subprocesses, sockets and cloudpickle.
    from unisync.distributed.launch.calling import call

    return call(fn, tuple(args), replicas, backend, timeout_s, None if log_dir is None else Path(log_dir))

"""A function's way into the ranks' processes, and the way of its results and errors back."""

from __future__ import annotations

import io
import pickle
import sys
import tempfile
from collections import ChainMap
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar, final

import cloudpickle

from unisync import _dispatch
from unisync.distributed.launch.output import Output
from unisync.distributed.launch.plan import Job
from unisync.distributed.launch.supervisor import Supervisor
from unisync.distributed.launch.watch import Outcome
from unisync.errors import (
    ArgumentTypeError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    ReplicaFailedError,
    StateError,
    UnisyncError,
    unknown,
)

WORKER = "unisync.distributed.launch.worker"
CALL, PATHS = "call.pickle", "paths.pickle"

_ERRORS: dict[str, type[UnisyncError]] = {
    "failed": ReplicaFailedError,
    "timeout": CollectiveTimeoutError,
    "left": CollectiveMismatchError,
    "mismatch": CollectiveMismatchError,
}


def result_file(folder: Path, rank: int) -> Path:
    """Where a rank leaves ("returned", its result) or ("raised", its exception, or None if that cannot travel)."""
    return folder / f"result-{rank}.pickle"


def call(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    replicas: int,
    backend: str | None,
    timeout_s: float | None,
    log_dir: Path | None,
) -> list[Any]:
    """What `us.launch` does, with arguments that have been checked."""
    if backend is not None and backend not in _dispatch.BACKENDS:
        raise unknown("backend", backend, _dispatch.BACKENDS)
    with tempfile.TemporaryDirectory(prefix="unisync-launch-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / PATHS).write_bytes(pickle.dumps(sys.path))
        (folder / CALL).write_bytes(_pickled(fn, args))
        job = Job(("-m", WORKER, name), backend or _dispatch.current_backend(), replicas, timeout_s, log_dir)
        outcome = Supervisor(job, lambda closed: Output(sys.stdout, sys.stderr, log_dir, (), closed), name).run()
        if outcome.code:
            raise _error(outcome, folder) from _cause(outcome, folder)
        return [_result(folder, rank) for rank in range(replicas)]


def _code_with_file(code: CodeType) -> tuple[Any, ...]:
    make, parts, *rest = cloudpickle.CloudPickler.dispatch_table[CodeType](code)
    return make, tuple(code.co_filename if part == "<dynamic-code>" else part for part in parts), *rest


@final
class _Pickler(cloudpickle.CloudPickler):
    """Keeps the names of source files, which cloudpickle leaves out: tracebacks and reports of hangs need them."""

    _inherited: ClassVar[Any] = cloudpickle.CloudPickler.dispatch_table
    dispatch_table: ClassVar[Any] = ChainMap({CodeType: _code_with_file}, _inherited)


def _pickled(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    content = io.BytesIO()
    try:
        _Pickler(content).dump((fn, args))
        return content.getvalue()
    except Exception as error:
        raise ArgumentTypeError(
            f"`fn` and `args` must be picklable, got {type(error).__name__}: {error}. "
            "Try: make what cannot travel (files, locks, devices) inside fn."
        ) from error


def _error(outcome: Outcome, folder: Path) -> UnisyncError:
    kind = _ERRORS.get(outcome.kind)
    if kind is None:
        return StateError(f"us.launch did not come to its end: {outcome.text}")
    error = kind(outcome.text)
    if isinstance(error, ReplicaFailedError):
        error.rank = outcome.rank
    return error


def _cause(outcome: Outcome, folder: Path) -> BaseException | None:
    if outcome.rank is None or not result_file(folder, outcome.rank).exists():
        return None
    try:
        word, error = pickle.loads(result_file(folder, outcome.rank).read_bytes())
    except Exception:  # of a class that this process does not have; its text is in the traceback
        return None
    return error if word == "raised" else None


def _result(folder: Path, rank: int) -> Any:
    file = result_file(folder, rank)
    if not file.exists():
        error = ReplicaFailedError(f"rank {rank} must return, but its process ended before it did, with code 0")
        error.rank = rank
        raise error
    return pickle.loads(file.read_bytes())[1]

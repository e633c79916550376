"""The program of a process that `us.launch` starts: takes the function out of a folder, and leaves the result there."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import cloudpickle

from unisync.distributed import environment
from unisync.distributed.launch.calling import CALL, PATHS, result_file


def main(folder: Path) -> int:
    """Call the function; the exit code."""
    place = environment.place()
    assert place is not None
    target = result_file(folder, place.rank)
    sys.path[:] = pickle.loads((folder / PATHS).read_bytes())  # so that what the caller imports can be imported
    try:
        fn, args = pickle.loads((folder / CALL).read_bytes())
        result = fn(*args)
    except Exception as error:
        _leave(target, _raised(error))
        # Not raised further: the traceback should begin in the user's function. The hook tells the other ranks.
        error = error.with_traceback(_inside(error.__traceback__))
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    _leave(target, cloudpickle.dumps(("returned", result)))
    return 0


def _inside(trace: TracebackType | None) -> TracebackType | None:
    return trace.tb_next if trace is not None and trace.tb_next is not None else trace


def _raised(error: Exception) -> bytes:
    try:
        content = cloudpickle.dumps(("raised", error))
        pickle.loads(content)
    except Exception:  # an exception that cannot travel; its text does
        content = pickle.dumps(("raised", None))
    return content


def _leave(target: Path, content: Any) -> None:
    temporary = target.with_suffix(".part")
    temporary.write_bytes(content)
    temporary.replace(target)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

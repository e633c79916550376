"""Memory for large results, used again when nobody holds an array of it any more.

New memory costs more than what MPI does with it: its pages come one by one as they are first written, which takes two
to three times as long as the all-reduce itself.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from typing import Any, final

import numpy as np

LARGE_BYTES = 256 * 2**10
"""Smaller arrays are NumPy's business, whose allocator has such memory at hand."""

KEPT_BYTES = 256 * 2**20
KEPT = 32
"""How much is kept that is not in use, and in how many pieces."""


@final
class Results:
    """Arrays whose memory goes round."""

    def __init__(self) -> None:
        self._owners: list[np.ndarray] = []  # of the memory; every array that is handed out is a view of one
        self._lock = threading.Lock()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An uninitialised array that shares memory with no other that anybody can reach."""
        size = math.prod(shape) * dtype.itemsize
        if size < LARGE_BYTES:
            return np.empty(shape, dtype)
        with self._lock:
            owner = next((o for o in _unused(self._owners) if o.nbytes == size), None)
            if owner is None:
                self._make_room(size)
                owner = np.empty(size, np.uint8)
                self._owners.append(owner)
            return owner.view(dtype).reshape(shape)

    def _make_room(self, size: int) -> None:
        """Forget memory that was not asked for again, the oldest first."""
        free = list(_unused(self._owners))
        kept_bytes, kept = sum(o.nbytes for o in free) + size, len(free) + 1
        for owner in free:
            if kept_bytes <= KEPT_BYTES and kept <= KEPT:
                break
            kept_bytes, kept = kept_bytes - owner.nbytes, kept - 1
            self._owners = [o for o in self._owners if o is not owner]


def _unused(owners: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Those of which there is no array but in the list."""
    return (o for o in owners if sys.getrefcount(o) == _UNUSED)


def _references() -> int:
    """How many references the loop in `_unused` counts for an array that is in the list alone."""
    owners = [np.empty(1, np.uint8)]
    return next(count for count in (sys.getrefcount(o) for o in owners))


_UNUSED = _references()

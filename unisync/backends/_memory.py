"""Memory for large results that is used again once nobody sees it any more, because new memory is slow to write to.

Python's own count of references tells who still sees a block: views of arrays, tensors made from them and buffers all
hold the array that owns the memory.
"""

from __future__ import annotations

import sys
import threading
from typing import final

import numpy as np

POOL_BYTES = 128 * 2**20
"""How much memory one pool remembers at most, in use or not."""

MIN_BYTES = 256 * 2**10
"""Below this, the allocator's own reuse is as good."""

_LINE_BYTES = 64  # a line of the cache: vectors that straddle two are slow


@final
class Pool:
    """Blocks of memory that were handed out, of which those that nobody sees any more are handed out again."""

    def __init__(self, limit_bytes: int = POOL_BYTES) -> None:
        self._blocks: list[np.ndarray] = []  # that used last at the end
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()  # a replica that was left behind may come back to it

    def empty_like(self, x: np.ndarray) -> np.ndarray:
        """An array of the size and dtype of flat x, holding anything, in memory that nobody else sees."""
        if not MIN_BYTES <= x.nbytes <= self._limit_bytes or not _COUNTS:
            return np.empty_like(x)
        with self._lock:
            block = self._take(x.nbytes + _LINE_BYTES)
            self._blocks.append(block)
            self._forget()
            begin = -block.ctypes.data % _LINE_BYTES
            return block[begin : begin + x.nbytes].view(x.dtype)

    def clear(self) -> None:
        """Forget all blocks; those in use live as long as they are seen."""
        with self._lock:
            self._blocks.clear()

    def _take(self, size: int) -> np.ndarray:
        for i in range(len(self._blocks)):
            if self._blocks[i].nbytes == size and _references(self._blocks, i) == _UNSEEN:
                return self._blocks.pop(i)
        return np.empty(size, np.uint8)

    def _forget(self) -> None:
        """Leave the blocks used longest ago to those who see them, down to the limit."""
        total = sum(block.nbytes for block in self._blocks)
        while total > self._limit_bytes + _LINE_BYTES:
            total -= self._blocks.pop(0).nbytes


def _references(blocks: list[np.ndarray], i: int) -> int:
    return sys.getrefcount(blocks[i])


_UNSEEN = _references([np.empty(0)], 0)
"""The count of a block that only the pool holds; it differs between versions of Python."""

_COUNTS = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether counts of references are exact: not where threads count apart, without the interpreter's lock."""

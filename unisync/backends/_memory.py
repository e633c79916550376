"""Memory for large results that is used again once nobody sees it any more, because new memory is slow to write to.

Python's own count of references tells whether a block is still seen: views of arrays, tensors made from them and
buffers all hold the array that owns the memory.
"""

from __future__ import annotations

import math
import sys
import threading
from typing import Any, final

import numpy as np

POOL_BYTES = 256 * 2**20
"""How much memory a pool remembers at most, in use or not."""

LARGE_BYTES = 256 * 2**10
"""Memory of this size comes page by page as it is first written, which takes longer than what is written there."""

_LINE_BYTES = 64  # a line of the cache: rows begin with one


@final
class Pool:
    """Blocks of memory that were handed out, of which those that nobody sees any more are handed out again."""

    def __init__(self, limit_bytes: int = POOL_BYTES) -> None:
        self._blocks: list[np.ndarray] = []  # that used last at the end
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()

    def rows(self, count: int, size: int, dtype: Any) -> np.ndarray:
        """An array of shape (count, size), holding anything, in memory that nobody else sees."""
        dtype = np.dtype(dtype)
        stride = -(-size * dtype.itemsize // _LINE_BYTES) * _LINE_BYTES
        block = self._block(count * stride + _LINE_BYTES)
        begin = -block.__array_interface__["data"][0] % _LINE_BYTES
        return np.ndarray((count, size), dtype, block, begin, (stride, dtype.itemsize))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array holding anything; a small one is NumPy's business, whose allocator has such memory at hand."""
        dtype, size = np.dtype(dtype), math.prod(shape)
        if size * dtype.itemsize < LARGE_BYTES:
            return np.empty(shape, dtype)
        return self.rows(1, size, dtype)[0].reshape(shape)

    def clear(self) -> None:
        """Forget all blocks; those in use live as long as they are seen."""
        with self._lock:
            self._blocks.clear()

    def _block(self, size: int) -> np.ndarray:
        if size > self._limit_bytes or not _COUNTS:
            return np.empty(size, np.uint8)
        with self._lock:
            block = self._unseen(size)
            if block is None:
                block = np.empty(size, np.uint8)
            self._blocks.append(block)
            total = sum(b.nbytes for b in self._blocks)
            while total > self._limit_bytes:  # those used longest ago are left to who sees them
                total -= self._blocks.pop(0).nbytes
        return block

    def _unseen(self, size: int) -> np.ndarray | None:
        for i in range(len(self._blocks)):
            if self._blocks[i].nbytes == size and _references(self._blocks, i) == _UNSEEN:
                return self._blocks.pop(i)
        return None


def _references(blocks: list[np.ndarray], i: int) -> int:
    return sys.getrefcount(blocks[i])


_UNSEEN = _references([np.empty(0)], 0)
"""The count of a block that only the pool holds; versions of Python count differently."""

_COUNTS = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether counts are exact: not without the interpreter's lock, where each thread has its own."""

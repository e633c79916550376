"""Packing of trees: the leaves of one dtype travel together in flat buffers, as few large messages.

Each leaf is a matrix of `rows` rows, side by side with the others; one row unless a collective tells slices along
axis 0 apart.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from unisync import _dtypes
from unisync._types import DType

BUCKET_BYTES = 25 * 2**20
"""Leaves of one dtype travel together up to this size."""


LARGE_BYTES = 64 * 2**10
"""From this size on, an array is worth a message part of its own where that spares a copy."""


def packed(
    m: Any,
    leaves: list[Any],
    transform: Callable[[Any, str], Any],
    shapes: list[tuple[int, ...]] | None = None,
    rows_in: int = 1,
    rows_out: int = 1,
) -> list[Any]:
    """transform of the leaves, those of one dtype together in flat buffers; a leaf alone is not copied.

    transform gets an array and the layout of what is packed in it, in a word; empty for a leaf alone.
    `shapes` are those of the results, if not the leaves' own; `rows_in` how many parts along axis 0 transform tells
    apart in what it gets, `rows_out` in what it returns.
    """
    if len(leaves) == 1 and shapes is None and 0 not in leaves[0].shape:
        return [transform(leaves[0], "")]
    results: list[Any] = [None] * len(leaves)
    for bucket in buckets(m, leaves) if len(leaves) > 1 else [[0] for _ in leaves]:
        out = [tuple(leaves[i].shape) if shapes is None else shapes[i] for i in bucket]
        if not any(map(math.prod, out)):  # no numbers, no message, which not every engine can send
            for i, shape in zip(bucket, out, strict=True):
                results[i] = m.reshape(leaves[i], shape)
            continue
        if len(bucket) == 1:
            results[bucket[0]] = transform(leaves[bucket[0]], "")
            continue
        buffer = flat(m, [leaves[i] for i in bucket], rows_in)
        moved = transform(buffer, layout(leaves[i] for i in bucket))
        for i, part in zip(bucket, cut(m, moved, out, rows_out), strict=True):
            results[i] = part
    return results


def layout(leaves: Iterable[Any]) -> str:
    """What must be the same on all replicas of leaves side by side in a buffer, besides its length: how many they are,
    and a checksum of their shapes."""
    return _layout(tuple(tuple(leaf.shape) for leaf in leaves))


@functools.lru_cache(4096)
def _layout(shapes: tuple[tuple[int, ...], ...]) -> str:
    return f"{len(shapes)} arrays #{zlib.crc32(repr(shapes).encode()):08x}"


def buckets(m: Any, leaves: list[Any]) -> list[list[int]]:
    """The positions of the leaves that travel together."""
    found: list[list[int]] = []
    filling: dict[DType, tuple[list[int], int]] = {}
    for i, leaf in enumerate(leaves):
        dtype = m.dtype_of(leaf)
        size = size_bytes(tuple(leaf.shape), dtype)
        bucket, filled = filling.get(dtype, (None, 0))
        if bucket is None or filled + size > BUCKET_BYTES:
            bucket, filled = [], 0
            found.append(bucket)
        bucket.append(i)
        filling[dtype] = bucket, filled + size
    return found


def separate_buckets(m: Any, leaves: list[Any]) -> list[list[int]]:
    """As `buckets`, with each large leaf alone."""
    sizes = [size_bytes(tuple(leaf.shape), m.dtype_of(leaf)) for leaf in leaves]
    small = [i for i, size in enumerate(sizes) if size < LARGE_BYTES]
    packed_places = [[small[i] for i in bucket] for bucket in buckets(m, [leaves[i] for i in small])]
    return packed_places + [[i] for i, size in enumerate(sizes) if size >= LARGE_BYTES]


def flat(m: Any, parts: list[Any], rows: int = 1) -> Any:
    """The flat buffer of some leaves."""
    if rows == 1:
        return m.concat([m.reshape(x, (-1,)) for x in parts], axis=0)
    columns = [m.reshape(x, (rows, math.prod(x.shape) // rows)) for x in parts]
    return m.reshape(m.concat(columns, axis=1), (-1,))


def cut(m: Any, buffer: Any, shapes: list[tuple[int, ...]], rows: int) -> list[Any]:
    """The arrays of some shapes out of a flat buffer."""
    sizes = [math.prod(shape) // rows for shape in shapes]
    if rows > 1:
        buffer = m.reshape(buffer, (rows, sum(sizes)))
    parts, begin = [], 0
    for size, shape in zip(sizes, shapes, strict=True):
        part = buffer[begin : begin + size] if rows == 1 else buffer[:, begin : begin + size]
        parts.append(m.reshape(part, shape))
        begin += size
    return parts


def size_bytes(shape: Sequence[int], dtype: DType) -> int:
    """How many bytes an array takes."""
    return math.prod(shape) * _dtypes.bits(dtype) // 8

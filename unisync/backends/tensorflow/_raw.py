"""TensorFlow's raw collective ops between processes: their keys, the dtypes they know, and what is made of them.

A collective is told from others by a group key and an instance key. Here both follow from what the collective is (its
kind, members, dtype and shape), not from a count: processes may trace at different times. A key comes back when the
same collective is called again, which is safe because a process's collectives run one after another: an ordering token
sees to it within a program.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from unisync.backends.tensorflow import _device, _fast
from unisync.backends.tensorflow._combine import reduced

_NATIVE = frozenset({tf.float16, tf.float32, tf.float64, tf.int32, tf.int64})
"""What every raw op carries; others travel as one of these."""

_SUMMED = frozenset({tf.float32, tf.float64, tf.int32, tf.int64})
"""What the ring reduces by itself."""

_MESSAGE_BYTES = 8 * 2**10
"""Up to so many bytes, arrays of any length are gathered by one message of each process: 4 KB take 0.6 ms, not 1.1."""

_WITHOUT_TOKEN = frozenset({"CollectiveBcastSendV2", "CollectiveBcastRecvV2"})

_CARRIERS = {2: tf.float16, 4: tf.int32, 8: tf.int64, 16: tf.int64}

_MERGE = {"sum": "Add", "mean": "Add", "max": "Max", "min": "Min", "prod": "Mul"}

GATHERED_BYTES = 2**20
"""Up to so many bytes in all, arrays are gathered and reduced locally, in the order of the replicas: a ring takes half
as many turns to gather as to reduce (4 KB among two processes: 0.45 ms against 0.73; even at 512 KB, or 256 KB among
four)."""


class Wire:
    """The collectives of one process.

    A group is a tuple of ranks that this one is in; results are in its order.

    Args:
        device: this process's.
        rank: its rank.
        generation: counts the worlds of this process, which have keys of their own.
    """

    def __init__(self, device: str, rank: int, generation: int) -> None:
        self.device, self.rank = device, rank
        self._last: Any = None  # the newest collective of the program that is being traced
        self._broadcasts = 0  # in that program
        self._accelerator = "CPU" not in device
        self._generation = generation
        self._keys: dict[Any, int] = {}
        self._taken: set[int] = set()
        self._eager: dict[Any, Any] = {}
        with _device.on(device):
            self._token = tf.Variable(tf.zeros([]), trainable=False)

    def reduce(self, x: Any, op: str, group: tuple[int, ...]) -> Any:
        """The reduction over the group, of the same bits on all; op may be "mean"."""
        size = x.dtype.size * math.prod(x.shape) if x.shape.is_fully_defined() else GATHERED_BYTES
        if x.dtype in _SUMMED and size * len(group) > GATHERED_BYTES:
            final = "Div" if op == "mean" else "Id"
            return self._call("CollectiveReduceV2", x, group, (op,), merge_op=_MERGE[op], final_op=final)
        if x.shape.rank == 0:
            return tf.squeeze(self.reduce(tf.expand_dims(x, 0), op, group), 0)
        return reduced(tf.split(self.gather(x, group, op), len(group)), op)

    def gather(self, x: Any, group: tuple[int, ...], purpose: str = "all_gather") -> Any:
        """Arrays of one shape, along axis 0. Gathers of different purposes never meet."""
        y, restored = _carried(x)
        whole = self._call("CollectiveGatherV2", y, group, (purpose,))
        order = sorted(group)  # TensorFlow's order is that of the tasks
        if order != list(group):
            parts = tf.split(whole, len(group))
            whole = tf.concat([parts[order.index(r)] for r in group], 0)
        return restored(whole)

    def gather_at_once(self, x: Any, group: tuple[int, ...]) -> Any:
        """As gather, of a tensor with a value; arrays may differ in length along axis 0.

        A first message of one size for all tells lengths, and holds the array if it is small.

        Raises:
            ValueError: arrays differ in dtype or in another axis.
        """
        rest = tuple(x.shape[1:])
        row_bytes = x.dtype.size * math.prod(rest)
        kind = zlib.crc32(f"{x.dtype.name} {rest}".encode())
        message = np.zeros(2 + _MESSAGE_BYTES // 8, np.int64)
        message[:2] = x.shape[0], kind
        if x.shape[0] * row_bytes <= _MESSAGE_BYTES:
            message[2:].view(np.uint8)[: x.shape[0] * row_bytes] = x.numpy().reshape(-1).view(np.uint8)
        messages = self.gather(tf.constant(message), group, "message").numpy().reshape(len(group), -1)
        if (messages[:, 1] != kind).any():
            raise ValueError("arrays must be of one dtype, and of one shape beside axis 0")
        lengths = messages[:, 0].tolist()
        longest = max(lengths)
        if longest * row_bytes <= _MESSAGE_BYTES:
            parts = [m[2:].view(np.uint8)[: n * row_bytes] for m, n in zip(messages, lengths, strict=True)]
            whole = np.concatenate(parts).view(x.dtype.as_numpy_dtype)
            return tf.constant(whole.reshape(sum(lengths), *rest))
        if min(lengths) == longest:
            return self.gather(x, group)
        padded = tf.pad(x, [[0, longest - x.shape[0]]] + [[0, 0]] * len(rest))
        parts = tf.split(self.gather(padded, group), len(group))
        return tf.concat([part[:n] for part, n in zip(parts, lengths, strict=True)], 0)

    def all_to_all(self, x: Any, group: tuple[int, ...], purpose: str = "all_to_all") -> Any:
        """x[j], the j-th along axis 0 of as many as members, to member j. Those of different purposes never meet."""
        y, restored = _carried(x)
        order = sorted(group)
        if order != list(group):
            y = tf.gather(y, [group.index(r) for r in order])
        y = self._call("CollectiveAllToAllV2", y, group, (purpose,))
        return restored(y if order == list(group) else tf.gather(y, [order.index(r) for r in group]))

    def reduce_scatter(self, x: Any, group: tuple[int, ...]) -> Any:
        """This member's slice along axis 0 of the sum; no CPU kernel does it."""
        slices = tf.reshape(x, [len(group), x.shape[0] // len(group), *x.shape[1:]])
        return reduced(tf.unstack(self.all_to_all(slices, group, "reduce_scatter")), "sum")

    def broadcast(self, x: Any, root: int, group: tuple[int, ...]) -> Any:
        """The array of the member at a position."""
        if self._accelerator:  # NCCL needs one order of all collectives, and the ops of a broadcast take no token
            return tf.split(self.gather(tf.expand_dims(x, 0), group, f"broadcast({root})"), len(group))[root][0]
        y, restored = _carried(x)
        detail = (root,)
        if not tf.executing_eagerly():
            self._broadcasts += 1
            detail = (root, self._broadcasts)
        if self.rank == group[root]:
            return restored(self._call("CollectiveBcastSendV2", y, group, detail))
        return restored(self._call("CollectiveBcastRecvV2", y, group, detail))

    def permute(self, x: Any, pairs: Sequence[tuple[int, int]], group: tuple[int, ...]) -> Any:
        """x of each pair's first at its second; zeros where nothing arrives."""
        target, source = dict(pairs).get(self.rank), {t: s for s, t in pairs}.get(self.rank)
        nothing = tf.zeros_like(x)
        arrived = self.all_to_all(tf.stack([x if r == target else nothing for r in group]), group, "permute")
        return nothing if source is None else arrived[group.index(source)]

    @contextlib.contextmanager
    def program(self) -> Iterator[None]:
        """While a program is traced."""
        self._last, self._broadcasts = None, 0
        try:
            yield
        finally:
            self._last = None

    def _call(self, op: str, x: Any, group: tuple[int, ...], detail: tuple[Any, ...] = (), **attributes: Any) -> Any:
        if op == "CollectiveBcastRecvV2":
            given = {"T": x.dtype, "shape": x.shape if x.shape.is_fully_defined() else tf.shape(x)}
        else:
            given = {"input": x}
        if op not in _WITHOUT_TOKEN:
            given["ordering_token"] = [self._token.handle]
        given |= self._given("broadcast" if op in _WITHOUT_TOKEN else op, x, group, detail) | attributes
        if tf.executing_eagerly() and not self._accelerator:
            return getattr(tf.raw_ops, op)(**given)
        # A broadcast beside another collective, which the token does not order, can hang.
        after = [] if self._last is None or tf.executing_eagerly() or self._last.graph is not _graph() else [self._last]
        with tf.device(self.device if self._accelerator else None), tf.control_dependencies(after):
            result = getattr(tf.raw_ops, op)(**given)
        if not tf.executing_eagerly():
            self._last = result
            if x.shape.is_fully_defined():  # the ops do not all say so
                rows = len(group) if op == "CollectiveGatherV2" else 1
                result.set_shape([rows * x.shape[0], *x.shape[1:]] if x.shape.rank else [])
        return result

    def _given(self, op: str, x: Any, group: tuple[int, ...], detail: tuple[Any, ...]) -> dict[str, Any]:
        """Group and keys, as tensors where that spares making them anew."""
        if type(x) is _fast.EagerTensor and tf.executing_eagerly():
            content = (op, group, detail, x.dtype.as_datatype_enum, _fast.shape_of(x))
            found = self._eager.get(content)
            if found is None:
                numbers = self._numbers(content)
                found = self._eager[content] = {k: tf.constant(v, tf.int32) for k, v in numbers.items()}
            return found
        if x.shape.is_fully_defined():
            return self._numbers((op, group, detail, x.dtype.as_datatype_enum, tuple(x.shape.as_list())))
        numbers = self._numbers((op, group, detail, x.dtype.as_datatype_enum, "of any shape"))
        return {**numbers, "instance_key": _of_shape(numbers["instance_key"], tf.shape(x))}

    def _numbers(self, content: tuple[Any, ...]) -> dict[str, int]:
        group = content[1]
        return {
            "group_size": len(group),
            "group_key": self._key(("group", group)),
            "instance_key": self._key(content),
        }

    def _key(self, content: tuple[Any, ...]) -> int:
        if content not in self._keys:
            digest = hashlib.blake2b(repr((self._generation, content)).encode(), digest_size=4).digest()
            key = int.from_bytes(digest, "little") >> 1
            while key in self._taken or key < 2**20:  # small ones are the strategy's own
                key = (key + 2**20) % 2**31
            self._taken.add(key)
            self._keys[content] = key
        return self._keys[content]


def _of_shape(key: int, shape: Any) -> Any:
    """A key for each shape that a program's array may have."""
    primes = tf.constant([1_000_003 * (2 * i + 1) for i in range(shape.shape[0] or 1)], tf.int32)
    return tf.bitwise.bitwise_and(key + tf.reduce_sum(shape * primes), 2**31 - 1)


def _carried(x: Any) -> tuple[Any, Callable[[Any], Any]]:
    """x as an array that the raw ops move, and the way back, bit for bit."""
    dtype = x.dtype
    if dtype in _NATIVE:
        return x, lambda y: y
    if dtype == tf.bool:
        return tf.cast(x, tf.int32), lambda y: tf.cast(y, tf.bool)
    if dtype.size == 1:
        return tf.cast(tf.bitcast(x, tf.uint8), tf.int32), lambda y: tf.bitcast(tf.cast(y, tf.uint8), dtype)
    return tf.bitcast(x, _CARRIERS[dtype.size]), lambda y: tf.bitcast(y, dtype)


def _graph() -> Any:
    return tf.compat.v1.get_default_graph()

"""What collectives are made of while a program is traced: from the tensors of all replicas to the result of each.

Plain ops, placed on the replicas' devices. Nothing here needs collective kernels, their keys or ordering tokens; on the
logical devices of one CPU a transfer hands over a reference, and tf.add_n reads each tensor once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from unisync.backends._engine import Groups

_AT_ONCE = 8
"""How many terms tf.add_n adds from left to right; more it adds in bundles."""

_PAIRWISE: dict[str, Callable[[Any, Any], Any]] = {"max": tf.maximum, "min": tf.minimum, "prod": tf.multiply}


class Combine:
    """The ops of one collective.

    Args:
        strategy: the tf.distribute strategy of the replicas.
        devices: the device of each replica.
    """

    def __init__(self, strategy: Any, devices: Sequence[str]) -> None:
        self._strategy, self._devices = strategy, devices
        self._accelerators = _on_accelerators(devices)

    def __call__(self, op: str, tensors: list[Any], detail: Any, beside: list[Any]) -> list[Any]:
        """The result of each replica, which is not one of `tensors` itself."""
        if op == "scatter_rows":
            return self._scatter(tensors, detail[0], beside)
        if op == "all_agree":
            return self._agreed(beside, detail[0])
        return getattr(self, op)(tensors, *detail)

    def all_reduce(self, tensors: list[Any], op: str, groups: Groups | None) -> list[Any]:
        if self._accelerators and groups is None and op in ("sum", "mean") and tensors[0].dtype.is_floating:
            return self._reduced_by_strategy(tensors, op)
        return self._at_home(tensors, groups, functools.partial(reduced, op=op))

    def _reduced_by_strategy(self, tensors: list[Any], op: str) -> list[Any]:
        """By the strategy's own cross-device ops (NCCL on GPUs)."""

        def mine(context: Any) -> Any:
            return tensors[int(tf.get_static_value(context.replica_id_in_sync_group))]

        values = self._strategy.experimental_distribute_values_from_function(mine)
        how = tf.distribute.ReduceOp.SUM if op == "sum" else tf.distribute.ReduceOp.MEAN
        [total] = self._strategy.extended.batch_reduce_to(how, [(values, values)])
        return list(self._strategy.experimental_local_results(total))

    def _at_home(self, tensors: list[Any], groups: Groups | None, combined: Callable[[list[Any]], Any]) -> list[Any]:
        """One result for all of a group, made on the device of its first member."""
        results: list[Any] = [None] * len(tensors)
        for group in self._groups(groups):
            with tf.device(self._devices[group[0]]):
                result = combined([tensors[i] for i in group])
            for i in group:
                results[i] = result
        return results

    def _groups(self, groups: Groups | None) -> Groups:
        return groups or (tuple(range(len(self._devices))),)

    def all_gather(self, tensors: list[Any], groups: Groups | None) -> list[Any]:
        return self._at_home(tensors, groups, lambda parts: tf.concat(parts, 0))

    def reduce_scatter(self, tensors: list[Any], groups: Groups | None) -> list[Any]:
        return self._exchanged(tensors, groups, _sum)

    def all_to_all(self, tensors: list[Any], groups: Groups | None) -> list[Any]:
        return self._exchanged(tensors, groups, lambda parts: tf.concat(parts, 0))

    def _exchanged(self, tensors: list[Any], groups: Groups | None, combined: Callable[[list[Any]], Any]) -> list[Any]:
        """Slice j of each goes to member j, which combines what it gets."""
        results: list[Any] = [None] * len(tensors)
        for group in self._groups(groups):
            slices = []
            for i in group:
                with tf.device(self._devices[i]):
                    slices.append(tf.split(tensors[i], len(group)))
            for j, i in enumerate(group):
                with tf.device(self._devices[i]):
                    results[i] = combined([part[j] for part in slices])
        return results

    def _scatter(self, tensors: list[Any], groups: Groups | None, rows: list[Any]) -> list[Any]:
        """The sum, of which each member keeps its number of rows: what goes back through all_gather."""
        results: list[Any] = [None] * len(tensors)
        for group in self._groups(groups):
            with tf.device(self._devices[group[0]]):
                parts = tf.split(_sum([tensors[i] for i in group]), [rows[i] for i in group])
            for i, part in zip(group, parts, strict=True):
                results[i] = part
        return results

    def broadcast(self, tensors: list[Any], root: int, groups: Groups | None) -> list[Any]:
        source = {i: tensors[group[root]] for group in self._groups(groups) for i in group}
        return [self._copied(source[i], i) for i in range(len(tensors))]

    def permute(self, tensors: list[Any], pairs: tuple[tuple[int, int], ...]) -> list[Any]:
        source = {target: tensors[i] for i, target in pairs}
        return [self._copied(source[i], i) if i in source else self._zeros(x, i) for i, x in enumerate(tensors)]

    def _copied(self, x: Any, replica: int) -> Any:
        with tf.device(self._devices[replica]):
            return tf.identity(x)

    def _zeros(self, x: Any, replica: int) -> Any:
        with tf.device(self._devices[replica]):
            return tf.zeros_like(x)

    def _agreed(self, values: list[Any], groups: Groups | None) -> list[bool]:
        found = [True] * len(values)
        for group in self._groups(groups):
            for i in group:
                found[i] = all(values[j] == values[group[0]] for j in group)
        return found

    def barrier(self, tensors: list[Any]) -> list[Any]:
        # One program has one order of its own; that all traces come by is the check.
        return tensors


def _on_accelerators(devices: Sequence[str]) -> bool:
    return any("CPU" not in device for device in devices)


def reduced(tensors: list[Any], op: str) -> Any:
    """The reduction of some tensors of one shape, in their order."""
    if op in _PAIRWISE:
        return functools.reduce(_PAIRWISE[op], tensors)
    total = _sum(tensors)
    return total if op == "sum" else total / tf.constant(len(tensors), total.dtype)


def _sum(tensors: list[Any]) -> Any:
    """From left to right, whatever their number."""
    total = tf.add_n(tensors[:_AT_ONCE])
    for i in range(_AT_ONCE, len(tensors), _AT_ONCE - 1):
        total = tf.add_n([total, *tensors[i : i + _AT_ONCE - 1]])
    return total

"""TensorFlow's own collectives, to compare with: under tf.function(strategy.run(...)) in one process, raw between
several."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from unisync._per_replica import PerReplica
from unisync.backends.tensorflow._replicas import Form
from unisync.backends.tensorflow.conversion import block_until_ready


@contextlib.contextmanager
def collective(op: str, value: PerReplica, engine: Any) -> Iterator[Callable[[], Any]]:
    """A function that does the collective on the replicas' arrays, once per call."""
    strategy, arrays = engine.strategy, list(value)
    function = _FUNCTIONS[op]

    def mine(context: Any) -> Any:
        return arrays[int(tf.get_static_value(context.replica_id_in_sync_group))]

    given = strategy.experimental_distribute_values_from_function(mine)

    def replica(x: Any) -> Any:
        context = tf.distribute.get_replica_context()
        rank = int(tf.get_static_value(context.replica_id_in_sync_group))
        return function(context, tf.identity(x), rank, len(arrays))

    compiled = tf.function(lambda x: strategy.run(replica, args=(x,)), autograph=False)
    yield lambda: block_until_ready(strategy.experimental_local_results(compiled(given)))


def _gathered(context: Any, x: Any, size: int) -> list[Any]:
    return tf.split(context.all_gather(x, axis=0), size)


def _all_to_all(context: Any, x: Any, rank: int, size: int) -> Any:
    return tf.concat([tf.split(part, size)[rank] for part in _gathered(context, x, size)], 0)


_SUM = tf.distribute.ReduceOp.SUM
# (context, x, replica, number of replicas) → its result. A ReplicaContext has all_reduce and all_gather.
_FUNCTIONS: dict[str, Callable[[Any, Any, int, int], Any]] = {
    "all_reduce": lambda context, x, rank, size: context.all_reduce(_SUM, x),
    "all_gather": lambda context, x, rank, size: context.all_gather(x, axis=0),
    "reduce_scatter": lambda context, x, rank, size: tf.split(context.all_reduce(_SUM, x), size)[rank],
    "broadcast": lambda context, x, rank, size: context.all_reduce(_SUM, x if rank == 0 else tf.zeros_like(x)),
    "all_to_all": _all_to_all,
    "permute": lambda context, x, rank, size: _gathered(context, x, size)[rank - 1],
}


def results(returned: Any) -> list[Any]:
    """Each replica's array, from what that function returned."""
    return list(returned)


def wait(value: PerReplica) -> None:
    """Until the arrays of a result are computed."""
    native = getattr(value, "native", None)
    block_until_ready(native.tensors if isinstance(native, Form) else list(value))


def launched(op: str, x: Any, engine: Any) -> dict[str, Callable[[], Any]]:
    """Ways of doing a collective of a launched world by the raw op; each returns new memory, as unisync's does."""
    with tf.device(engine.devices[0]):
        token = tf.Variable(tf.zeros([]), trainable=False)
    keys = {"group_size": engine.size, "group_key": _KEYS[op], "instance_key": _KEYS[op] + x.shape[0]}

    def raw(x: Any) -> Any:
        given = {"input": x, "ordering_token": [token.handle], **keys}
        if op == "all_gather":
            return tf.raw_ops.CollectiveGatherV2(**given)
        return tf.raw_ops.CollectiveReduceV2(merge_op="Add", final_op="Id", **given)

    compiled = tf.function(raw, autograph=False)
    return {f"tf.function, {op} V2": lambda: compiled(x), f"eager {op} V2": lambda: raw(x)}


_KEYS = {"all_reduce": 101_000, "all_gather": 102_000}  # of groups; those of instances follow, one for each length

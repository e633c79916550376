"""The shortest ways into TensorFlow's runtime, each with the public way that stands in when a release lacks it.

Nothing here changes what is computed. Private names are used: `ConcreteFunction._inference_function.call_flat`,
`EagerTensor._shape_tuple` and `_datatype_enum`, `record.could_possibly_record`, `should_record_backprop`,
`record_operation` and `stop_recording`. A test fails when one is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

EagerTensor: type = getattr(tf.__internal__, "EagerTensor", None) or type(tf.constant(0))
"""The type of eager tensors; read off without making one, which would start the runtime and settle its devices."""

# On every leaf of every call: x.shape and x.dtype make Python objects, these do not.
shape_of: Callable[[Any], Any] = getattr(EagerTensor, "_shape_tuple", None) or (lambda x: tuple(_eager(x).shape))
dtype_of: Callable[[Any], Any] = getattr(EagerTensor, "_datatype_enum", None) or (lambda x: _eager(x).dtype)


def _eager(x: Any) -> Any:
    if type(x) is not EagerTensor:
        raise TypeError(type(x).__name__)
    return x


try:
    from tensorflow.python.eager.record import could_possibly_record as taped, should_record_backprop as recorded
except ImportError:

    def taped() -> bool:
        """Whether a gradient tape may be recording."""
        return True

    def recorded(tensors: Any) -> bool:
        """Whether a gradient tape knows one of the tensors."""
        return False


try:
    from tensorflow.python.eager.record import record_operation, stop_recording
except ImportError:
    record_operation = stop_recording = None  # tf.custom_gradient does it too, and keeps its functions for ever

INLINE_NODES = 192
"""Graphs with fewer nodes run as one op in the calling thread: 30–50 µs less a call than by a function call, which
hands the graph to the pool of threads (an mlp's step of 152 nodes: 5 to 10 % less). Larger ones gain more by running
ops side by side (a transformer's step: 7 % on two cores)."""


def runner(concrete: Any, *, may_inline: bool = True) -> Callable[[list[Any]], list[Any]]:
    """What runs a concrete function on the flat list of its inputs.

    A program run as one op is kept by the runtime for ever (50 KB each), and its devices would wait for each other:
    `may_inline` is for programs of one device that live long.
    """
    captured = list(concrete.captured_inputs)
    dtypes = [x.dtype for x in concrete.outputs]
    inline = may_inline and len(concrete.graph.get_operations()) < INLINE_NODES and not _accelerators()
    call_flat = getattr(getattr(concrete, "_inference_function", None), "call_flat", None)

    def run(tensors: list[Any]) -> list[Any]:
        if taped():
            return list(concrete(*tensors))  # records the function's own gradient
        if inline or call_flat is None:
            return tf.raw_ops.StatefulPartitionedCall(args=tensors + captured, Tout=dtypes, f=concrete)
        return list(call_flat(*tensors, *captured) or ())

    return run


def _accelerators() -> bool:
    return any(d.device_type != "CPU" for d in tf.config.list_physical_devices())

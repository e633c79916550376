"""Per-replica trees as jax keeps them: one array over all devices for each leaf, the replica as its first axis.

    replica 0: w (3, 2) on device 0 ┐
                                    ├ w (2, 3, 2), sharded along axis 0
    replica 1: w (3, 2) on device 1 ┘

The devices may be those of several processes, of which each then holds the parts on its own.

What is no array (strings, flags, None) stands in such a tree as a `Constant`, which jax takes for structure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax._src import array as jax_array
from jax.sharding import NamedSharding, PartitionSpec

from unisync import _dispatch
from unisync._per_replica import PerReplica
from unisync._types import Tree
from unisync.backends.jax import _constants, _dtypes, _failures, creation
from unisync.errors import ArgumentError, ArgumentTypeError, ShapeError

AXIS = "replica"
SHARDED = PartitionSpec(AXIS)
SHARED = PartitionSpec()


@final
class Constant:
    """A leaf that is no array; compiled functions are compiled once for each."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _wrap(constant: Constant) -> tuple[tuple[()], tuple[type, Any]]:
    # With its type, since 1 and True are equal in Python.
    return (), (type(constant.value), constant.value)


jax.tree_util.register_pytree_node(Constant, _wrap, lambda aux, _: Constant(aux[1]))


def is_constant(leaf: Any) -> bool:
    return isinstance(leaf, Constant)


def constant(value: Any) -> Constant:
    """A leaf that a compiled function shall not take as input.

    Raises:
        ArgumentTypeError: it is a PerReplica, or not hashable.
    """
    if isinstance(value, PerReplica):
        raise ArgumentTypeError(
            "a us.PerReplica must be an argument of its own, got one inside another tree. "
            "Try: pass it as a positional or keyword argument."
        )
    try:
        hash(value)
    except TypeError as error:
        raise ArgumentTypeError(
            f"constants among the arguments of a compiled function must be hashable: {error}. "
            "Try: a frozen dataclass, or a closure."
        ) from error
    return Constant(value)


def open_constants(tree: Tree) -> Tree:
    """The tree with its constants as they were given."""
    return jax.tree_util.tree_map(lambda x: x.value if is_constant(x) else x, tree, is_leaf=is_constant)


# One replica's tree


def take(native: Tree, index: int) -> Tree:
    """The tree of a replica of this process, on its device; on a CPU without a copy once the arrays are computed."""
    return jax.tree_util.tree_map(lambda x: _part(x, index), native, is_leaf=is_constant)


def _part(x: Any, index: int) -> Any:
    if is_constant(x):
        return x.value
    part = x.addressable_data(index)
    if part.is_ready() and part.device.platform == "cpu":
        # jax takes the memory of an aligned NumPy array as it is, and donates none of which a view is left.
        return jax.device_put(_failures.to_host(part).reshape(part.shape[1:]), part.device)
    return _squeezed(part)


@jax.jit
def _squeezed(x: Any) -> Any:
    return jax.lax.squeeze(x, (0,))


def is_native(value: PerReplica) -> bool:
    """Whether a per-replica value is in the form of this file."""
    return value._take is take


# All replicas' trees


def stack(trees: Sequence[Tree], sharding: NamedSharding) -> Tree:
    """One tree per replica of this process as one tree over all devices. Host arrays are copied.

    Raises:
        ShapeError: the replicas' arrays differ in shape or dtype: they share one program.
        ArgumentError: the trees differ in structure or constants.
    """
    flat = [jax.tree_util.tree_flatten_with_path(tree) for tree in trees]
    structure = flat[0][1]
    for replica, (_, other) in enumerate(flat):
        if other != structure:
            raise ArgumentError(
                f"replicas must have trees of one structure, since they share one program, got {structure} on replica "
                f"0 and {other} on replica {replica}. Try: the same keys on each; of a us.random.Key, key.commit()."
            )
    devices = _own_devices(sharding)
    joined = [_joined([leaves[i] for leaves, _ in flat], sharding, devices) for i in range(structure.num_leaves)]
    return jax.tree_util.tree_unflatten(structure, joined)


def _joined(entries: list[Any], sharding: NamedSharding, devices: list[Any]) -> Any:
    path, first = entries[0]
    leaves = [leaf for _, leaf in entries]
    if not _is_array_like(first):
        if any(type(leaf) is not type(first) or leaf != first for leaf in leaves):
            raise ArgumentError(
                f"{_name(path)} must be the same on all replicas, since they share one program, got {leaves}. "
                "Try: an array."
            )
        return constant(first)
    leaves = [_array(leaf) for leaf in leaves]
    for replica, x in enumerate(leaves):
        if x.shape != leaves[0].shape or x.dtype != leaves[0].dtype:
            raise ShapeError(
                f"{_name(path)} must have one shape and dtype on all replicas, since they share one program, got "
                f"{leaves[0].dtype}{list(leaves[0].shape)} on replica 0 and {x.dtype}{list(x.shape)} on replica "
                f"{replica}. Try: pad to the longest."
            )
    parts = jax.device_put([_row(x) for x in leaves], devices)
    shape = (sharding.mesh.size, *leaves[0].shape)
    return jax.make_array_from_single_device_arrays(shape, sharding, parts)


def replicate(tree: Tree, sharding: NamedSharding) -> Tree:
    """A copy of the tree for each replica, as one tree over all devices."""
    devices = _own_devices(sharding)

    def copies(leaf: Any) -> Any:
        if not _is_array_like(leaf):
            return constant(leaf)
        x = _array(leaf)
        parts = jax.device_put([_row(x) for _ in devices], devices)
        return jax.make_array_from_single_device_arrays((sharding.mesh.size, *x.shape), sharding, parts)

    return jax.tree_util.tree_map(copies, tree)


def _own_devices(sharding: NamedSharding) -> list[Any]:
    return sharding.mesh.local_devices  # type: ignore[union-attr]


def _row(x: Any) -> Any:
    """A copy of x with the replica's axis: jax may take the memory of a host array as it is (may_alias or not)."""
    row = x.reshape((1, *x.shape))
    return row.copy() if isinstance(row, np.ndarray) else row


def _is_array_like(leaf: Any) -> bool:
    return _constants.is_input(leaf) or (not isinstance(leaf, bool) and _dispatch.is_array(leaf))


def _array(leaf: Any) -> Any:
    if isinstance(leaf, (jax.Array, np.ndarray)):
        return leaf
    if isinstance(leaf, np.generic):
        return np.asarray(leaf)
    if type(leaf) in _dtypes.NUMBERS:
        return np.asarray(leaf, _dtypes.native(type(leaf)))
    return creation.asarray(leaf)


def _name(path: Any) -> str:
    return f"`{jax.tree_util.keystr(path, simple=True, separator='/') or 'x'}`"


# Arguments that all replicas share


def shared(tree: Tree, sharding: NamedSharding) -> Tree:
    """An argument for all replicas with its constants set aside, and arrays that belong to one device moved to all."""

    def ready(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer):
            if leaf.committed and leaf.sharding.device_set != sharding.device_set:
                return _on_all(leaf, sharding)
            return leaf
        if _constants.is_input(leaf):
            return leaf
        if not isinstance(leaf, bool) and _dispatch.is_array(leaf):
            return jnp.asarray(creation.asarray(leaf))
        return constant(leaf)

    return jax.tree_util.tree_map(ready, tree)


def _on_all(x: Any, sharding: NamedSharding) -> Any:
    everywhere, devices = NamedSharding(sharding.mesh, SHARED), _own_devices(sharding)
    if len(devices) == sharding.mesh.size:
        return jax.device_put(x, everywhere)
    # device_put would ask the other processes whether their arrays are the same, in a collective of its own.
    return jax.make_array_from_single_device_arrays(x.shape, everywhere, [jax.device_put(x, d) for d in devices])


# One array of this process as its part of one over all


def assembled(x: Any, sharding: NamedSharding, aval: Any) -> Any:
    """An array over all devices, shared or sharded, of which x is the only part in this process.

    Args:
        x: an array on this process's device.
        sharding: that of the result.
        aval: shape and dtype of the result, as jax has them in `aval`.
    """
    try:
        # jax's own class, as inside jax.make_array_from_single_device_arrays, whose checks take 8 µs.
        return jax_array.ArrayImpl(aval, sharding, [x], committed=True, _skip_checks=True)
    except (AttributeError, TypeError):
        return jax.make_array_from_single_device_arrays(aval.shape, sharding, [x])

"""jax's own collectives under jit(shard_map(...)), for `unisync bench`; over the devices of one process or several."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from unisync._per_replica import PerReplica

_AXIS = "replica"


@contextlib.contextmanager
def collective(op: str, value: PerReplica, engine: Any) -> Iterator[Callable[[], Any]]:
    """A function that does the collective on the replicas' arrays, once per call."""
    mesh, spec = Mesh(engine.sharding.mesh.devices, (_AXIS,)), PartitionSpec(_AXIS)
    arrays, size = list(value), mesh.size
    shape = (size * arrays[0].shape[0], *arrays[0].shape[1:])
    x = jax.make_array_from_single_device_arrays(shape, NamedSharding(mesh, spec), arrays)
    mapped = jax.shard_map(_functions(size)[op], mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    compiled = jax.jit(mapped)
    yield lambda: jax.block_until_ready(compiled(x))


def _functions(size: int) -> dict[str, Callable[[Any], Any]]:
    lax = jax.lax
    return {
        "all_reduce": lambda x: lax.psum(x, _AXIS),
        "all_gather": lambda x: lax.all_gather(x, _AXIS, tiled=True),
        "reduce_scatter": lambda x: lax.psum_scatter(x, _AXIS, tiled=True),
        # lax.pbroadcast has no CPU version.
        "broadcast": lambda x: lax.psum(jnp.where(lax.axis_index(_AXIS) == 0, x, jnp.zeros_like(x)), _AXIS),
        "all_to_all": lambda x: lax.all_to_all(x, _AXIS, 0, 0, tiled=True),
        "permute": lambda x: lax.ppermute(x, _AXIS, [(i, (i + 1) % size) for i in range(size)]),
    }


def results(returned: Any) -> list[Any]:
    """Each replica's array, from what that function returned."""
    return [shard.data for shard in returned.addressable_shards]


def wait(value: PerReplica) -> None:
    """Until the arrays of a result are computed."""
    jax.block_until_ready(getattr(value, "native", value))


def launched(op: str, x: jax.Array, engine: Any) -> dict[str, Callable[[], jax.Array]]:
    """Ways of doing a collective of a launched world by jax itself; the first is of a process's own array."""
    mesh, spec = Mesh(engine.sharding.mesh.devices, (_AXIS,)), PartitionSpec(_AXIS)
    sharding, shape = NamedSharding(mesh, spec), (mesh.size * x.shape[0], *x.shape[1:])
    mapped = jax.shard_map(_functions(mesh.size)[op], mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    compiled = jax.jit(mapped)
    whole = jax.make_array_from_single_device_arrays(shape, sharding, [x])

    def of_own_array() -> jax.Array:
        return compiled(jax.make_array_from_single_device_arrays(shape, sharding, [x])).addressable_data(0)

    return {
        "jit(shard_map) of a process's own array": of_own_array,
        "jit(shard_map) of a global array": lambda: compiled(whole).addressable_data(0),
    }


def launched_program(op: str, value: PerReplica, engine: Any) -> dict[str, Callable[[], jax.Array]]:
    """As `launched`, of a per-replica value, which stays global from call to call."""
    mesh, spec = Mesh(engine.sharding.mesh.devices, (_AXIS,)), PartitionSpec(_AXIS)
    mapped = jax.shard_map(_functions(mesh.size)[op], mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    compiled, own = jax.jit(mapped), value[0]
    shape = (mesh.size * own.shape[0], *own.shape[1:])
    whole = jax.make_array_from_single_device_arrays(shape, NamedSharding(mesh, spec), [own])
    return {"jit(shard_map) of a global array": lambda: compiled(whole)}

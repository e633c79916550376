"""Collectives: what the replicas of a world tell each other, of one meaning on every engine.

Called inside `us.spmd`; where there is only one replica each is the identity. All replicas of a group call the same
collectives in the same order. Each takes an array or a tree of arrays; a tree travels packed, in few large messages.
`groups` is a partition of all replicas into groups of one size, the same on every replica, as in `[[0, 1], [2, 3]]`:
each group is then on its own. `world.groups("data")` makes those of an axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

from unisync._types import Tree
from unisync.backends import _collectives
from unisync.backends._engine import Handle

ReduceOp = Literal["sum", "mean", "max", "min", "prod"]
GroupsArgument = Sequence[Sequence[int]] | None


@overload
def all_reduce(
    x: Tree, op: ReduceOp = "mean", *, groups: GroupsArgument = None, async_op: Literal[False] = False
) -> Tree: ...
@overload
def all_reduce(x: Tree, op: ReduceOp = "mean", *, groups: GroupsArgument = None, async_op: Literal[True]) -> Handle: ...
def all_reduce(x: Tree, op: ReduceOp = "mean", *, groups: GroupsArgument = None, async_op: bool = False) -> Any:
    """The element-wise reduction of every replica's array over the group: the MEAN unless `op` says otherwise.

    (torch.distributed and MPI sum by default.) Sums of floating-point numbers are bit-equal on all replicas; half
    precision is reduced in float32 and rounded once; integers wrap; booleans: "sum" and "max" are a logical or, "prod"
    and "min" a logical and. NaN and infinities pass through. "sum" and "mean" are differentiable: the cotangent is the
    sum, or mean, of the replicas' cotangents.

    Args:
        x: array or tree of arrays, of the same shapes and dtypes on every replica of the group.
        op: "mean" (floating-point and complex dtypes only), "sum", "max", "min" (not complex) or "prod".
        groups: partition of the replicas; each group is reduced on its own.
        async_op: return a handle at once; `handle.wait()` gives the result, `handle.is_completed()` tells whether it is
            there. x must not be written to until then.

    Returns:
        A tree like x; or a handle.

    Raises:
        UnknownNameError: there is no such op.
        ArgumentTypeError: "mean" of integers or booleans; "max" or "min" of complex numbers.
        CollectiveMismatchError: the replicas disagree.
        CollectiveTimeoutError: a replica did not come.

    Example:
        >>> us.all_reduce(us.asarray([1.0, 2.0]))  # of a single replica
        array([1., 2.], dtype=float32)
    """
    return _collectives.all_reduce(x, op, groups, async_op)


allreduce = all_reduce


def all_gather(x: Tree, *, groups: GroupsArgument = None) -> Tree:
    """The arrays of all replicas of the group, concatenated along axis 0 in the group's order.

    Args:
        x: array or tree of arrays; those of shape () are stacked. Lengths along axis 0 may differ between replicas
            where each has a shape of its own: not on jax, nor in `us.spmd` on TensorFlow between processes.
        groups: partition of the replicas.

    Returns:
        Tree of arrays of shape (n · members, ...), the same on every replica of the group.

    Example:
        >>> us.all_gather(us.asarray([1.0, 2.0]))
        array([1., 2.], dtype=float32)
    """
    return _collectives.all_gather(x, groups)


def reduce_scatter(x: Tree, op: Literal["sum", "mean"] = "mean", *, groups: GroupsArgument = None) -> Tree:
    """The mean (or sum) over the group, of which each replica keeps its slice along axis 0.

    Args:
        x: array or tree of arrays, with a first axis that the group's size divides.
        op: "mean" or "sum".
        groups: partition of the replicas.

    Returns:
        Tree of arrays of shape (n / members, ...): member i has the i-th slice.

    Raises:
        ShapeError: the group's size does not divide the first axis.

    Example:
        >>> us.reduce_scatter(us.asarray([1.0, 2.0]))
        array([1., 2.], dtype=float32)
    """
    return _collectives.reduce_scatter(x, op, groups)


def broadcast(x: Tree, root: int = 0, *, groups: GroupsArgument = None) -> Tree:
    """The arrays of one replica, on every replica of its group.

    Args:
        x: array or tree of arrays, of the same shapes and dtypes on every replica.
        root: whose; a position in the group.
        groups: partition of the replicas.

    Returns:
        A tree like x.

    Example:
        >>> us.broadcast(us.asarray([1.0, 2.0]))
        array([1., 2.], dtype=float32)
    """
    return _collectives.broadcast(x, root, groups)


def all_to_all(x: Tree, *, groups: GroupsArgument = None) -> Tree:
    """Slice j along axis 0 goes to member j of the group; what arrives is concatenated in the group's order.

    Args:
        x: array or tree of arrays, with a first axis that the group's size divides.
        groups: partition of the replicas.

    Returns:
        A tree like x.

    Raises:
        ShapeError: the group's size does not divide the first axis.

    Example:
        >>> us.all_to_all(us.asarray([1.0, 2.0]))
        array([1., 2.], dtype=float32)
    """
    return _collectives.all_to_all(x, groups)


def permute(x: Tree, pairs: Sequence[tuple[int, int]]) -> Tree:
    """The arrays of replica `source` at replica `target`, for each pair; zeros where nothing arrives.

    Args:
        x: array or tree of arrays, of the same shapes and dtypes on every replica.
        pairs: (source, target) pairs, the same list on every replica; no source and no target twice.

    Returns:
        A tree like x.

    Example:
        >>> us.permute(us.asarray([1.0, 2.0]), [])
        array([0., 0.], dtype=float32)
    """
    return _collectives.permute(x, pairs)


def send(x: Tree, to: int) -> None:
    """Hand a copy of x to another replica, which takes it with `recv`; does not wait for it.

    Only where replicas run code of their own (NumPy and torch); `permute` does the same on every engine.

    Args:
        x: array or tree of arrays.
        to: the other replica.

    Raises:
        StateError: all replicas run one program.
    """
    _collectives.send(x, to)


def recv(like: Tree, source: int) -> Tree:
    """What replica `source` sent to this one, in the order it was sent.

    Args:
        like: tree of arrays of the shapes and dtypes that are expected.
        source: the other replica.

    Returns:
        A tree like `like`.

    Raises:
        StateError: all replicas run one program.
        CollectiveMismatchError: what arrives has another shape or dtype.
        CollectiveTimeoutError: nothing arrives.
    """
    return _collectives.recv(like, source)


def barrier() -> None:
    """Wait until every replica has come here."""
    _collectives.barrier()


def replica_index() -> Any:
    """The number of the replica in the world: an int, or an array of shape () where one traced program serves all.

    Example:
        >>> us.replica_index()
        0
    """
    return _collectives.replica_index()


def all_gather_object(value: Any, *, groups: GroupsArgument = None) -> list[Any]:
    """The Python objects of all replicas of the group, in its order; on the host.

    Args:
        value: an object that can be copied.
        groups: partition of the replicas.

    Example:
        >>> us.all_gather_object({"samples": 3})
        [{'samples': 3}]
    """
    return _collectives.all_gather_object(value, groups)


def broadcast_object(value: Any, root: int = 0, *, groups: GroupsArgument = None) -> Any:
    """The Python object of one replica, on every replica of its group; on the host.

    Args:
        value: an object that can be copied.
        root: whose; a position in the group.
        groups: partition of the replicas.

    Example:
        >>> us.broadcast_object({"seed": 3})
        {'seed': 3}
    """
    return _collectives.broadcast_object(value, root, groups)

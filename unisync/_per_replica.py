"""One tree per local replica: what goes into `spmd` functions and comes out of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final, overload

from unisync._types import Tree


@final
class PerReplica(Sequence[Tree]):
    """A sequence of trees, one per local replica, each with its arrays on the replica's device.

    Made by `world.scatter`, `world.replicate` and by the functions that `us.spmd` returns; as an argument of these,
    it gives each replica its own tree. `len(value)` is `world.local_replicas`; `value[i]` the tree of replica i.

    An engine may keep the arrays in a form of its own (`native`, e.g. one array over all devices), from which `take`
    cuts one replica's tree when somebody asks for it.
    """

    __slots__ = ("_size", "_take", "_trees", "native")

    def __init__(
        self,
        trees: Sequence[Tree] | None = None,
        *,
        native: Any = None,
        size: int | None = None,
        take: Callable[[Any, int], Tree] | None = None,
    ) -> None:
        self._trees = None if trees is None else tuple(trees)
        self.native = native
        self._take = take
        self._size = len(trees) if trees is not None else int(size or 0)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Tree: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Tree]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._size))]
        if not -self._size <= index < self._size:
            raise IndexError(f"index must be less than {self._size} replicas, got {index}")
        if self._trees is not None:
            return self._trees[index]
        assert self._take is not None
        return self._take(self.native, index % self._size)

    def __repr__(self) -> str:
        return f"PerReplica({list(self)!r})"


def parts(values: PerReplica) -> tuple[PerReplica, ...]:
    """Tuples of one length, one per replica, taken apart: for each position the trees of all replicas."""
    if values._trees is not None:
        return tuple(PerReplica(trees) for trees in zip(*values._trees, strict=True))
    return tuple(PerReplica(native=part, size=len(values), take=values._take) for part in values.native)

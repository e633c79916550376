"""The engine of several replicas: each holds params, state and optimizer state, and steps on its part of a batch.

The replicas are all in this process, or this process is one of them. Then every process must call the same methods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from unisync import _context, _dispatch, tree
from unisync._dispatch import is_array
from unisync._key import Key
from unisync._per_replica import PerReplica, parts
from unisync._types import Tree
from unisync.checkpoint import fit
from unisync.errors import CheckpointError, DataError, StateError
from unisync.functional.collectives import all_gather, broadcast
from unisync.parallel import contract, replicated_step
from unisync.parallel.dealing import deal, fill_up, own_part
from unisync.parallel.engine import Part
from unisync.parallel.randomness import Tripwire
from unisync.parallel.step import Recipe, prediction_step

_Kept = dict[str, PerReplica]


@final
class ReplicatedEngine:
    """The counterpart of `Engine` in a world of several replicas; see there for what the methods do.

    What it hands out is that of replica 0, or of this process where each is a replica; what it saves is replica 0's.
    Without syncs between them, and in what each sees alone (the running statistics of a BatchNorm that is not
    synchronised), replicas differ.

    Attributes:
        takes_numpy: whether the steps take NumPy arrays beside native ones.
        replicas: how many.
        launched: whether this process is one replica of several.
        rank: the number of this process's first replica.
        sharded: whether the batches to come are this process's own, not parts of a batch that all have.
        weight: of the last step's batch over all processes, if it was sharded; else None.
        saved_optimizer_state: that of a checkpoint, while there is no optimizer.
        steps: how many steps were taken.
        keyed: whether the model draws random numbers in training, as far as is known.
    """

    def __init__(self, world: Any, m: Any, params: Tree, state: Tree, key: Key, *, compiles: bool) -> None:
        self._world, self._m, self._key, self._compiles = world, m, key, compiles
        self._carrier = world._engine
        self.replicas: int = world.size
        self.launched: bool = world.process_count > 1
        self.rank: int = world.process_index
        self.sharded = False
        self.weight: Figure | None = None
        self._rows: int | None = None
        self._local = range(self.rank, self.rank + world.local_replicas)
        # Replicas that are not compiled are threads on a CPU, where a flag costs nothing to read.
        self._on_host = not compiles
        self._share = self._carrier.spmd(_from_first)
        self._kept: _Kept = {"params": self._from_first(params), "state": self._from_first(state)}
        self._lent: set[Part] = {"params", "state"}  # what somebody else may have, or is in several places
        self._agreed = False
        self._seen_state: PerReplica | None = None
        self._ok: PerReplica | None = None
        self._optimizer: Any = None
        self.saved_optimizer_state: Tree = None
        self.takes_numpy = compiles
        self.steps = 0
        self.keyed = False
        self._wire = Tripwire()
        self._proven = False
        self._recipe: Recipe | None = None
        self._steps: dict[tuple[bool, bool], Callable[..., PerReplica]] = {}
        self._evaluate: dict[bool, Callable[..., PerReplica]] = {}
        self._predict: Any = None

    @property
    def params(self) -> Tree:
        """The first local replica's params."""
        return self._kept["params"][0]

    @property
    def state(self) -> Tree:
        """The first local replica's state."""
        return self._kept["state"][0]

    @property
    def optimizer_state(self) -> Tree:
        """The first local replica's optimizer state."""
        return self._kept["optimizer_state"][0] if "optimizer_state" in self._kept else None

    def lend(self, part: Part) -> Tree:
        """The first local replica's tree, for somebody to keep: no later step will use its memory."""
        self._lent.add(part)
        return getattr(self, part)

    def replace(self, part: Part, values: Tree) -> None:
        """Go on with other values on all replicas."""
        if isinstance(values, PerReplica):
            self._agreed = False
            self._put(part, values)
        else:
            self._put(part, self._from_first(fit(values, getattr(self, part), part)))

    def start_optimizer(self, optimizer: Any) -> None:
        """The state of a new optimizer: the saved one if a checkpoint left one, else a new one."""
        self._optimizer = optimizer
        self._kept.pop("optimizer_state", None)
        if optimizer is None:
            return
        self._put("optimizer_state", self._spread(optimizer.init(self.params)))
        if self.saved_optimizer_state is not None:
            self.replace("optimizer_state", self.saved_optimizer_state)
            self.saved_optimizer_state = None

    def restore(self, params: Tree, state: Tree, optimizer_state: Tree, steps: int) -> None:
        """Go on with saved trees, on all replicas."""
        new_params, new_state = fit(params, self.params, "params"), fit(state, self.state, "state")
        if self._optimizer is not None and optimizer_state is not None:
            self.replace("optimizer_state", optimizer_state)
        else:
            self.saved_optimizer_state = optimizer_state
        self._put("params", self._from_first(new_params))
        self._put("state", self._from_first(new_state))
        self.steps, self._ok = steps, None

    def set_key(self, key: Key) -> None:
        """Draw random numbers from another key."""
        self._key = key

    def build(self, recipe: Recipe) -> None:
        """Make the functions of a recipe; they are compiled at their first call."""
        self._recipe, self._proven, self._steps, self._rows = recipe, False, {}, None
        self._evaluate = {
            sharded: self._carrier.spmd(
                replicated_step.evaluation_step(recipe, self._m, self.replicas, sharded=sharded)
            )
            for sharded in (False, True)
        }

    def step(
        self, x: Any, y: Any, weights: Any, *, sync: bool = True
    ) -> tuple[Figure, Figure, tuple[Figure, ...], Any]:
        """One step on a global batch.

        Args:
            x: inputs.
            y: targets.
            weights: of the rows, or None.
            sync: whether the replicas add up their gradients; else each updates its own params by its own.

        Returns:
            (loss, ok, metrics, None) of the global batch, read from the replicas when asked for.
        """
        self._check_alive()
        if not self._agreed:
            self._check_contract()
        if self._ok is None:
            self._ok = self._carrier.replicate(self._m.asarray(True))
        if self.launched and self._on_host and self._lent:
            self._take_back()
        part = self._deal(x, y, weights)
        try:
            done = self._call(part, sync)
        except Exception:
            if self.keyed or (self._proven and not self._wire.touched):
                raise
            done = None
        if done is None:
            self.keyed, self._steps = True, {}
            done = self._call(part, sync)
        self._proven = True
        params, state, optimizer_state, self._ok, loss, metrics = parts(done)
        self._kept = {"params": params, "state": state, "optimizer_state": optimizer_state}
        self._seen_state = None
        self.steps += 1
        figures = tuple(Figure(metric, summed=not sync) for metric in parts(metrics))
        if self.sharded and sync:
            *rest, self.weight = figures
            figures = tuple(rest)
        return Figure(loss, summed=not sync), Figure(self._ok, summed=not sync), figures, None

    def _call(self, part: PerReplica, sync: bool) -> PerReplica:
        step = self._steps.get((sync, self.sharded))
        if step is None:
            step = self._steps[sync, self.sharded] = self._variant(sync)
        trees = (self._kept["params"], self._kept["state"], self._kept["optimizer_state"], self._ok, part)
        if not self.keyed:
            return step(*trees)
        # The numbers are the update, the micro-batch in it, and the replica.
        keys = [self._key.fold_in(self.steps, 0, replica).commit() for replica in self._local]
        return step(*trees, self._carrier.place(keys) if self._compiles else PerReplica(keys))

    def _variant(self, sync: bool) -> Callable[..., PerReplica]:
        """The step with or without sync, of which each is compiled once."""
        assert self._recipe is not None
        step = replicated_step.train_step(
            self._recipe,
            self._m,
            self._on_host,
            self.replicas,
            sync=sync,
            sharded=self.sharded,
            overlapped=self._carrier.overlapped_gradients,
            in_place=self.launched,
        )
        keyed = self.keyed

        def train_step(*arguments: Any) -> Any:
            return step(*arguments) if keyed else step(*arguments, self._wire.key())

        train_step.__qualname__ = "train_step"  # as reports name it
        return self._carrier.spmd(train_step)

    def evaluate(self, x: Any, y: Any, weights: Any) -> tuple[Figure, ...]:
        """(loss, *metrics) of a global batch, of replica 0's model, not in training; sharded: and its weight."""
        self._check_alive()
        values = self._evaluate[self.sharded](self._kept["params"], self._shared_state(), self._deal(x, y, weights))
        return tuple(Figure(value, summed=False) for value in parts(values))

    def predict(self, model: Any, x: Any) -> Any:
        """The outputs for a batch, on the host, not in training."""
        self._check_alive()
        if self._predict is None:
            predict = prediction_step(model)
            self._predict = self._carrier.spmd(_gathered(predict) if self.launched else predict)
        rows = x.shape[0]
        x = fill_up(x, -rows % self.replicas)
        size = x.shape[0] // self.replicas
        placed = self._carrier.place([x[r * size : (r + 1) * size] for r in self._local])
        made = self._predict(self._kept["params"], self._shared_state(), placed)
        numpy = _dispatch.load("numpy")
        return numpy.concat([self._m.to_numpy(outputs) for outputs in made])[:rows]

    def recover(self, steps: int, numbers: Any) -> None:
        """Go on after a step that was not finite: the arrays are still those before it."""
        self.steps, self._ok = steps, None

    def check_lengths(self, batches: int | None) -> None:
        """Raise unless all processes have as many batches, where each has its own; None: nobody knows yet.

        Raises:
            DataError: they differ.
        """
        if not self.sharded:
            return
        found = self._carrier.all_gather_object(batches, None)
        if len(set(found)) > 1:
            raise DataError(
                f"sharded data must have the same number of batches in all processes, got {found}. "
                "Try: cut the data to one length, or drop the last batch."
            )

    def alone(self, work: Callable[[], None]) -> None:
        """Do something once, in the process of replica 0; all go on when it is done.

        Raises:
            CheckpointError: it failed there.
        """
        if not self.launched:
            work()
            return
        error: Exception | None = None
        if self.rank == 0:
            try:
                work()
            except Exception as raised:
                error = raised
        told = self._carrier.broadcast_object(None if error is None else str(error), 0, None)
        if error is not None:
            raise error
        if told is not None:
            raise CheckpointError(f"replica 0, which writes for all, failed: {told}")

    def _deal(self, x: Any, y: Any, weights: Any) -> PerReplica:
        assert self._recipe is not None
        weighs = self._recipe.objective.weighs
        if self.sharded:
            if self._rows is None and not self._carrier.uneven:
                self._rows = x.shape[0]
            return self._carrier.place([own_part(x, y, weights, self._rows, weighs)])
        parts = deal(x, y, weights, self.replicas, weighs)
        return self._carrier.place([parts[r] for r in self._local])

    def _shared_state(self) -> PerReplica:
        """Replica 0's state on all replicas, to evaluate with; brought there once between two steps."""
        seen = self._seen_state
        if seen is None:
            own = self._kept["state"]
            seen = self._seen_state = self._share(own) if tree.leaves(own[0]) else own
        return seen

    def _check_alive(self) -> None:
        if _context.scope() is not None:
            raise StateError(
                "a trainer must be used outside replicas, got a call inside us.spmd. Try: call it outside; it runs all "
                "replicas by itself."
            )
        if _context.world() is not self._world:
            raise StateError(
                f"a trainer of {self.replicas} replicas must be used in the world it was made in, which has ended. "
                "Try: us.parallelize(model, params=trainer.params, ...), or trainer.save and us.load."
            )

    def _check_contract(self) -> None:
        if self.launched:
            contract.check_seeds(self._key.data, self._carrier)
        for part, values in self._kept.items():
            name = part.replace("_", " ")
            if self.launched:
                contract.check_processes(name, values[0], self._carrier)
            else:
                contract.check(name, values)
        self._agreed = True

    def _from_first(self, values: Tree) -> PerReplica:
        """A copy on each replica, of what the process of replica 0 has."""
        spread = self._spread(values)
        if not self.launched or isinstance(values, PerReplica) or not tree.leaves(spread[0]):
            return spread
        contract.check_processes("shapes", values, self._carrier, shapes_only=True)
        return self._share(spread)

    def _take_back(self) -> None:
        """Copy what somebody else may have, as steps update in place."""
        for part in self._lent & self._kept.keys():
            own = [
                tree.map(lambda leaf: self._m.asarray(leaf, copy=True) if is_array(leaf) else leaf, each)
                for each in self._kept[part]
            ]
            self._kept[part] = PerReplica(own)
        self._lent = set()

    def _put(self, part: Part, values: PerReplica) -> None:
        self._kept[part] = values
        self._lent.add(part)
        self._seen_state = None

    def _spread(self, values: Tree) -> PerReplica:
        """A copy on each replica; Python numbers that would be constants of a compiled function become arrays."""
        if isinstance(values, PerReplica):
            return self._carrier.place(list(values))  # somebody else has it, and a step may use its memory
        if self._compiles:
            values = tree.map(lambda leaf: leaf if is_array(leaf) else self._m.asarray(leaf), values)
            return self._carrier.replicate(values)
        leaves, structure = tree.flatten(values)
        places = [i for i, leaf in enumerate(leaves) if is_array(leaf)]
        copies = self._carrier.replicate([leaves[i] for i in places])
        own = [{**dict(enumerate(leaves)), **dict(zip(places, arrays, strict=True))} for arrays in copies]
        return PerReplica([tree.unflatten(structure, list(each.values())) for each in own])


@final
class Figure:
    """A number that replicas hold, as an array of shape () each; reading it waits for the device.

    Args:
        values: of each replica.
        summed: whether each holds its contribution; else all hold the same.
    """

    __slots__ = ("_summed", "_values")

    def __init__(self, values: PerReplica, *, summed: bool) -> None:
        self._values, self._summed = values, summed

    def __float__(self) -> float:
        return float(sum(float(value) for value in self._values)) if self._summed else float(self._values[0])

    def __bool__(self) -> bool:
        return all(bool(value) for value in self._values) if self._summed else bool(self._values[0])


def _from_first(values: Tree) -> Tree:
    """Replica 0's arrays; leaves of other kinds are the same everywhere."""
    leaves, structure = tree.flatten(values)
    places = [i for i, leaf in enumerate(leaves) if is_array(leaf)]
    for i, array in zip(places, broadcast([leaves[i] for i in places], 0), strict=True):
        leaves[i] = array
    return tree.unflatten(structure, leaves)


def _gathered(predict: Callable[..., Any]) -> Callable[..., Any]:
    """The outputs of all replicas, one after the other."""
    return lambda *arguments: all_gather(predict(*arguments))

"""The engine of one replica: the arrays that training changes, and the compiled functions that change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, final

from unisync import tree
from unisync._dispatch import is_array
from unisync._key import Key
from unisync._types import Tree
from unisync.checkpoint import fit
from unisync.parallel.randomness import Tripwire
from unisync.parallel.step import Recipe, evaluation_step, prediction_step, train_step

Part = Literal["params", "state", "optimizer_state"]


@final
class Engine:
    """Holds params, state and optimizer state, and steps them.

    A step may use the memory of its arguments for its results: a compiled one by "donation", one on the host by
    updating in place. Trees that were lent to somebody are therefore copied before the next step; nothing is copied
    otherwise.

    Attributes:
        params: the parameters; not to be handed out (see `lend`).
        state: the model's state; likewise.
        optimizer_state: the optimizer's state; likewise.
        replicas: 1.
        launched: False: this process is not one of several replicas.
        rank: 0.
        sharded: no matter.
        weight: None.
        takes_numpy: whether the steps take NumPy arrays beside native ones.
        saved_optimizer_state: that of a checkpoint, while there is no optimizer.
        steps: how many steps were taken.
        keyed: whether the model draws random numbers in training, as far as is known.
    """

    replicas, launched, rank = 1, False, 0
    weight: Any = None
    sharded = False

    def __init__(self, m: Any, params: Tree, state: Tree, key: Key, *, jit: bool, torch_compile: bool) -> None:
        self._m, self._key, self._torch_compile = m, key, torch_compile
        self._compiles = jit and m.jit(_probe, torch_compile=torch_compile) is not _probe
        leaves = [leaf for leaf in tree.leaves(params) if is_array(leaf)]
        self._device = m.device(leaves[0]) if leaves else None
        # Eager code on a CPU has each number as soon as it is computed: there a flag costs nothing to read.
        self._on_host = not self._compiles and str(self._device or "cpu") == "cpu"
        self.params, self.state, self.optimizer_state = self._ready(params), self._ready(state), None
        self.takes_numpy = self._compiles and not torch_compile
        self.steps = 0
        self.keyed = False
        self._lent: set[str] = {"params", "state"}
        self._ok: Any = None
        self._optimizer: Any = None
        self.saved_optimizer_state: Tree = None
        self._step: Any = None
        self._evaluate: Any = None
        self._predict: Any = None
        self._wire = Tripwire()
        self._dummy_key: Any = self._wire.key()
        self._proven = False

    def lend(self, part: Part) -> Tree:
        """A tree for somebody to keep: no later step will use its memory."""
        self._lent.add(part)
        return getattr(self, part)

    def replace(self, part: Part, values: Tree) -> None:
        """Go on with other values, in the structure of those that are there.

        Raises:
            CheckpointError: structure or shapes differ.
        """
        setattr(self, part, fit(values, getattr(self, part), part))
        self._lent.add(part)

    def start_optimizer(self, optimizer: Any) -> None:
        """The state of a new optimizer: the saved one if a checkpoint left one, else a new one."""
        self._optimizer = optimizer
        if optimizer is None:
            self.optimizer_state = None
            return
        self.optimizer_state = self._ready(optimizer.init(self.params))
        # A state of zeros may be one array in several places, or be the params: neither can be donated.
        self._lent |= {"params", "optimizer_state"}
        if self.saved_optimizer_state is not None:
            self.replace("optimizer_state", self.saved_optimizer_state)
            self.saved_optimizer_state = None

    def restore(self, params: Tree, state: Tree, optimizer_state: Tree, steps: int) -> None:
        """Go on with saved trees; the optimizer's waits until there is one.

        Raises:
            CheckpointError: they are not of this model or optimizer.
        """
        new_params, new_state = fit(params, self.params, "params"), fit(state, self.state, "state")
        if self._optimizer is not None and optimizer_state is not None:
            self.replace("optimizer_state", optimizer_state)
        else:
            self.saved_optimizer_state = optimizer_state
        self.params, self.state, self.steps, self._ok = new_params, new_state, steps, None
        self._lent |= {"params", "state"}

    def set_key(self, key: Key) -> None:
        """Draw random numbers from another key."""
        self._key = key

    def build(self, recipe: Recipe) -> None:
        """Make the functions of a recipe; they are compiled at their first call."""
        step = train_step(recipe, self._m, self._on_host)
        if not self.keyed:
            keyed_step = step

            def step(*arguments: Any) -> Any:
                return keyed_step(*arguments, self._dummy_key)

        evaluate = evaluation_step(recipe)
        self._step, self._evaluate = step, evaluate
        if self._compiles:
            options = {"torch_compile": self._torch_compile}
            self._step = self._m.jit(step, donate_argnums=(0, 1, 2), **options)
            self._evaluate = self._m.jit(evaluate, **options)
        self._recipe, self._proven = recipe, False

    def step(self, x: Any, y: Any, weights: Any) -> tuple[Any, Any, tuple[Any, ...], Any]:
        """One step on native arrays.

        Returns:
            (loss, ok, metrics, numbers): arrays of shape (), and what `recover` needs if ok turns out false.
        """
        if self._lent:
            self._take_back()
        if self._ok is None:
            self._ok = self._m.asarray(True, device=self._device)
        try:
            done = self._call(x, y, weights)
        except Exception:
            # Either the model drew from the tripwire, or something that its key met does not know it.
            if self.keyed or (self._proven and self._compiles and not self._wire.touched):
                raise
            done = None
        if done is None:
            self.keyed = True
            self.build(self._recipe)
            done = self._call(x, y, weights)
        if not self._proven:
            self._proven = True
            if not self._compiles:
                self._dummy_key = None  # folding layers' numbers into it costs time in every step
        numbers = None if self._compiles or self._on_host else _numbers(self.state, self.optimizer_state)
        self.params, self.state, self.optimizer_state, self._ok, loss, metrics = done
        self.steps += 1
        return loss, self._ok, metrics, numbers

    def _call(self, x: Any, y: Any, weights: Any) -> Any:
        if self.keyed:
            # The numbers are the update, the micro-batch in it, and the replica.
            key = self._key.fold_in(self.steps, 0, 0).commit()
            return self._step(self.params, self.state, self.optimizer_state, self._ok, x, y, weights, key)
        return self._step(self.params, self.state, self.optimizer_state, self._ok, x, y, weights)

    def evaluate(self, x: Any, y: Any, weights: Any) -> tuple[Any, ...]:
        """(loss, *metrics) of a batch, of the model as it stands, not in training."""
        return self._evaluate(self.params, self.state, x, y, weights)

    def predict(self, model: Any, x: Any) -> Any:
        """The outputs for a batch, not in training."""
        if self._predict is None:
            predict = prediction_step(model)
            self._predict = self._m.jit(predict, torch_compile=self._torch_compile) if self._compiles else predict
        return self._predict(self.params, self.state, x)

    def check_lengths(self, batches: int | None) -> None:
        """Nothing to compare; see `ReplicatedEngine.check_lengths`."""

    def alone(self, work: Callable[[], None]) -> None:
        """Do something once; see `ReplicatedEngine.alone`."""
        work()

    def recover(self, steps: int, numbers: Any) -> None:
        """Go on after a step that was not finite: the arrays are still those before it."""
        self.steps, self._ok = steps, None
        if numbers is not None:
            self.state, self.optimizer_state = _with_numbers(numbers, self.state, self.optimizer_state)

    def _ready(self, values: Tree) -> Tree:
        """Values whose Python numbers will not be constants of a compiled function."""
        if not self._compiles:
            return values
        return tree.map(
            lambda leaf: self._m.asarray(leaf, device=self._device) if isinstance(leaf, (int, float)) else leaf, values
        )

    def _take_back(self) -> None:
        if self._compiles or self._on_host:
            for part in self._lent:
                copied = tree.map(
                    lambda leaf: self._m.asarray(leaf, copy=True) if is_array(leaf) else leaf, getattr(self, part)
                )
                setattr(self, part, copied)
        self._lent = set()


def _probe(x: Any) -> Any:
    return x


def _numbers(*trees: Tree) -> list[Any]:
    return [leaf for leaf in tree.leaves(trees) if not is_array(leaf)]


def _with_numbers(numbers: list[Any], *trees: Tree) -> Tree:
    """The trees with their Python numbers, in order, replaced."""
    left = iter(numbers)
    return tree.map(lambda leaf: leaf if is_array(leaf) else next(left), trees)

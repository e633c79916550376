"""The trainer: one model, its parameters, and the loop that fits them to data."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

from unisync import _dispatch
from unisync._types import Tree
from unisync.data import Dataset
from unisync.data.loader import check_size
from unisync.errors import ArgumentTypeError, DataError, NonFiniteError, StateError
from unisync.parallel import callbacks as _callbacks, evaluation, metrics as _metrics, progress, saving, source
from unisync.parallel.engine import Engine
from unisync.parallel.history import History, Pending, Record, StepLog, StepResult
from unisync.parallel.intake import Intake
from unisync.parallel.objective import as_objective
from unisync.parallel.replicated import ReplicatedEngine
from unisync.parallel.step import Recipe


@final
class Trainer:
    """Trains a model. Made by `us.parallelize`.

    Attributes:
        model: the model.
        seed: the seed.
        backend: the name of the backend on which it trains.
        epochs: how many epochs were trained.
        history: the records of all epochs and the losses of all steps.
    """

    def __init__(self, model: Any, m: Any, engine: Engine | ReplicatedEngine, seed: int) -> None:
        self.model, self.seed, self.backend = model, seed, m.NAME
        self.epochs = 0
        self._m = m
        self._engine = engine
        self._log = StepLog()
        self.history = History(self._log)
        self._loss: Any = None
        self._optimizer: Any = None
        self._metrics: dict[str, _metrics.Metric] | None = None
        self._recipe: Recipe | None = None
        self._intake: Intake | None = None
        self._names: tuple[str, ...] = ()
        self._skip = 0  # batches of the coming epoch that a checkpoint within it had seen
        self._batches = 0  # batches of the current epoch
        self._stopped = False

    # What is trained: each may be set at any time.

    @property
    def params(self) -> Tree:
        """The parameters: after a non-finite loss, those before the step in which it fell. They stay valid and
        unchanged while training goes on."""
        return self._engine.lend("params")

    @params.setter
    def params(self, params: Tree) -> None:
        self._engine.replace("params", params)

    @property
    def state(self) -> Tree:
        """The model's state, e.g. running statistics."""
        return self._engine.lend("state")

    @state.setter
    def state(self, state: Tree) -> None:
        self._engine.replace("state", state)

    @property
    def optimizer_state(self) -> Tree:
        """The optimizer's state; None while there is no optimizer."""
        return self._engine.lend("optimizer_state")

    @property
    def loss(self) -> Any:
        """The loss; None if it was not given yet."""
        return self._loss

    @loss.setter
    def loss(self, loss: Any) -> None:
        if loss is not None:
            as_objective(loss)
        self._loss, self._recipe = loss, None

    @property
    def optimizer(self) -> Any:
        """The optimizer; None if it was not given yet. A new one starts with a new state."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Any) -> None:
        for name in ("init", "update"):
            if optimizer is not None and not callable(getattr(optimizer, name, None)):
                raise ArgumentTypeError(
                    f"`optimizer` must be of us.optim, or have init and update, got {optimizer!r}. "
                    "Try: us.optim.adam(1e-3)."
                )
        self._optimizer, self._recipe = optimizer, None
        with self._here():
            self._engine.start_optimizer(optimizer)

    @property
    def metrics(self) -> dict[str, _metrics.Metric]:
        """The metrics by name."""
        return _metrics.defaults(self._loss) if self._metrics is None else self._metrics

    @metrics.setter
    def metrics(self, metrics: Mapping[str, _metrics.Metric] | None) -> None:
        self._metrics = None if metrics is None else _metrics.checked(metrics)
        self._recipe = None

    @property
    def replicas(self) -> int:
        """How many replicas it trains: those of the world that it was made in."""
        return self._engine.replicas

    @property
    def steps(self) -> int:
        """How many steps updated the params."""
        return self._engine.steps

    # Training.

    def step(self, batch: Any, *, sharded: bool = False) -> StepResult:
        """Train on one batch.

        Args:
            batch: (x, y), (x, y, weights) or {"x": ..., "y": ...}; arrays of any backend.
            sharded: in a launched world, whether this is the process's own batch; else all processes give the same
                batch, of which each takes its part.

        Returns:
            StepResult: `.loss` and `.metrics` at the params before the update, read from the device when asked for.

        Raises:
            StateError: the loss or the optimizer is missing.
            DataError: the batch cannot be used.
            NonFiniteError: the loss or a gradient of this or one of the last 32 steps is not finite.
        """
        with self._here():
            if self._recipe is None or self._optimizer is None:
                self._prepare("train")
            if sharded is self._engine.sharded:
                return self._advance(batch)
            with self._sharding(sharded):
                return self._advance(batch)

    def train(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int = 64,
        validation: Any = None,
        callbacks: Iterable[_callbacks.Callback] = (),
        shuffle: bool = True,
        verbose: bool | None = None,
        sharded: bool = False,
    ) -> History:
        """Train on data for some more epochs.

        Args:
            data: (x, y), a `us.data.Dataset`, a loader (torch's DataLoader, tf.data, `us.data.Loader`), any iterable
                of batches, or a function that returns one for each epoch.
            epochs: how many.
            batch_size: samples per step, for (x, y) and data sets.
            validation: data in the same forms, to evaluate after each epoch; default a data set's test part.
            callbacks: `us.callbacks`.
            shuffle: whether each epoch has its own order, for (x, y) and data sets: the same on every backend.
            verbose: None: a bar on a terminal and a line per epoch elsewhere; True: lines; False: nothing. In a
                launched world only the process of replica 0 shows something.
            sharded: in a launched world, whether the data are this process's own share, and `batch_size` counts its
                samples alone; all processes must have the same number of batches. Else every process gives the same
                data, and takes its part of each batch.

        Returns:
            History of these epochs.

        Raises:
            StateError: the loss or the optimizer is missing.
            DataError: the data cannot be used.
            ArgumentError: the batch size is below 1, or larger than the data.
            NonFiniteError: the loss or a gradient became NaN or infinite; `trainer.params` are the last good ones.
        """
        check_size("epochs", epochs)
        calls = _callbacks.checked(callbacks)
        if isinstance(data, Dataset) and validation is None:
            validation = data.x_test, data.y_test
        with self._here(), self._sharding(sharded):
            self._prepare("train")
            feed = self._source(data, batch_size, shuffle=shuffle, clamp=False)
            self._engine.check_lengths(feed.length)
            show = progress.reporter(False if self._engine.rank else verbose, self.epochs + epochs)
            history = History(self._log, self.steps)
            self._log.begin(1 + len(self._names), keep_sums=self._skip > 0)
            self._stopped = False
            try:
                for callback in calls:
                    callback.on_start(self)
                for i in range(epochs):
                    record = self._epoch(feed, i, calls, show, validation, batch_size)
                    history.records.append(record)
                    if self._stopped:
                        break
                for callback in calls:
                    callback.on_end(self)
            finally:
                show.close()
                intake: Any = self._intake
                intake.all_checked = intake.fresh = False
        return history

    def stop(self) -> None:
        """Ask `train` to end after the current step."""
        self._stopped = True

    def _epoch(
        self,
        feed: source.Source,
        i: int,
        calls: list[_callbacks.Callback],
        show: progress.Silent,
        validation: Any,
        batch_size: int,
    ) -> Record:
        began = time.perf_counter()
        show.start(self.epochs + 1, feed.length)
        skip, self._skip = self._skip, 0
        self._batches = skip
        advance = self._advance
        step_calls = [c for c in calls if type(c).on_step is not _callbacks.Callback.on_step]
        for batch in itertools.islice(feed.batches(self.epochs), skip, None):
            result = advance(batch)
            self._batches += 1
            show.step()
            for callback in step_calls:
                callback.on_step(self, result)
            if self._stopped:
                break
        if not self._batches:
            raise source.dry(feed, i)
        means = self._log.means()
        self._check_finite()
        self.epochs += 1
        self._batches = 0
        record: Record = {"epoch": self.epochs, **dict(zip(("loss", *self._names), means, strict=False))}
        seconds = time.perf_counter() - began
        if validation is not None:
            scores = self.evaluate(validation, batch_size, sharded=self._engine.sharded)
            record |= {f"test_{name}": value for name, value in scores.items()}
        record["seconds"] = seconds
        self.history.records.append(record)
        for callback in calls:
            callback.on_epoch(self, record)
        show.end(record)
        return record

    def _advance(self, batch: Any) -> StepResult:
        intake: Any = self._intake
        x, y, weights, samples = intake(batch)
        loss, ok, values, numbers = self._engine.step(x, y, weights)
        result = StepResult(loss, values, self._names)
        self._log.add(Pending(result, ok, samples if self._engine.weight is None else self._engine.weight, numbers))
        if self._log.failed is not None:
            self._check_finite()
        return result

    def _check_finite(self) -> None:
        failed = self._log.failed
        if failed is None:
            return
        self._log.failed = None
        step = len(self._log.losses)
        self._engine.recover(step, failed.numbers)
        loss = failed.result.loss
        what = f"the loss became {loss}" if loss - loss != 0 else f"a gradient became NaN or infinite (loss {loss:.4g})"
        raise NonFiniteError(
            f"{what} in step {step + 1} (epoch {self.epochs + 1}); that step updated nothing, and trainer.params are "
            "those before it. Try: a lower learning rate, us.optim.clip_by_global_norm(1.0), or check the inputs."
        )

    # Evaluation.

    def evaluate(self, data: Any, batch_size: int = 256, *, sharded: bool = False) -> dict[str, float]:
        """The loss and the metrics over data, exact whatever the sizes of the batches.

        Args:
            data: as for `train`; a data set's test part.
            batch_size: samples per batch, at most; for (x, y) and data sets.
            sharded: as for `train`.

        Returns:
            {"loss": ..., and each metric}.

        Raises:
            StateError: the loss is missing.
            DataError: the data cannot be used.
        """
        if isinstance(data, Dataset):
            data = data.x_test, data.y_test
        with self._here(), self._sharding(sharded):
            self._prepare("evaluate")
            intake: Any = self._intake
            before = intake.all_checked, intake.fresh
            feed = self._source(data, batch_size, shuffle=False, clamp=True)
            try:
                values = evaluation.means(self._engine.evaluate, feed.batches(0), intake, weighed=self._engine.sharded)
            finally:
                intake.all_checked, intake.fresh = before
        return dict(zip(("loss", *self._names), values, strict=True))

    def predict(self, x: Any, batch_size: int = 256) -> Any:
        """The model's outputs for inputs, as a NumPy array, e.g. logits of shape (N, classes).

        Args:
            x: inputs of shape (N, ...): an array of any backend.
            batch_size: samples per batch, at most.

        Raises:
            DataError: there are no inputs.
        """
        check_size("batch_size", batch_size)
        if not _dispatch.is_array(x) or len(x.shape) == 0 or x.shape[0] == 0:
            found = f"shape {tuple(x.shape)}" if _dispatch.is_array(x) else type(x).__name__
            raise DataError(f"`x` must be an array of at least one sample, got {found}. Try: np.asarray(x), (N, ...).")
        with self._here():
            intake = self._intake or Intake(self._m, self._engine.params, None, self._engine.takes_numpy)
            return evaluation.outputs(
                lambda rows: self._engine.predict(self.model, rows), intake.host(x), batch_size, intake.native
            )

    # Saving.

    def save(self, path: str | Path) -> None:
        """Save params, state, optimizer state, counts and history in a folder: safetensors and JSON, no pickles.

        A checkpoint that stands there is replaced, in one step. Training on from it continues bit for bit. In a
        launched world every process must call it; that of replica 0 writes, and all go on once it is written.

        Raises:
            NonFiniteError: one of the last steps was not finite.
            CheckpointError: the path holds something else, or cannot be written to.
        """
        self._log.read()
        self._check_finite()
        saving.save(self, path)

    def restore(self, path: str | Path) -> None:
        """Continue from what `save` wrote: params, state, optimizer state, seed, counts and history.

        Raises:
            CheckpointError: there is no checkpoint, or it is not of this model and optimizer.
        """
        with self._here():
            saving.restore(self, path)

    # What the methods above share.

    @contextlib.contextmanager
    def _sharding(self, sharded: bool) -> Iterator[None]:
        """While the block runs, batches are the process's own; where all replicas are in one process, they always are
        all there is."""
        engine = self._engine
        before = engine.sharded
        engine.sharded = sharded and engine.launched
        try:
            yield
        finally:
            engine.sharded = before
            engine.weight = None

    def _here(self) -> contextlib.AbstractContextManager[Any]:
        """Makes the trainer's backend the current one: models and losses may create arrays."""
        return _NOTHING if _dispatch.current_namespace() is self._m else _dispatch.backend(self.backend)

    def _prepare(self, verb: str) -> None:
        missing = "loss" if self._loss is None else "optimizer" if self._optimizer is None and verb == "train" else None
        if missing:
            cure = "us.losses.softmax_cross_entropy" if missing == "loss" else "us.optim.adam(1e-3)"
            article = "an" if missing == "optimizer" else "a"
            raise StateError(
                f"the trainer must have {article} {missing} to {verb}, got none. Try: trainer.{missing} = {cure}."
            )
        if self._recipe is not None:
            return
        self._intake = Intake(self._m, self._engine.params, self._loss, self._engine.takes_numpy)
        chosen = self.metrics
        self._names = tuple(chosen)
        self._log.begin(1 + len(chosen), keep_sums=True)
        self._recipe = Recipe(self.model, as_objective(self._loss), self._optimizer, chosen, self._intake.observe)
        self._engine.build(self._recipe)

    def _source(self, data: Any, batch_size: int, *, shuffle: bool, clamp: bool) -> source.Source:
        arrays = source.pair(data)
        intake, recipe = self._intake, self._recipe
        assert intake is not None
        assert recipe is not None
        if arrays is None:
            feed = source.of_iterable(data)
        else:
            pad = recipe.objective.weighs
            feed = source.of_arrays(
                *arrays, batch_size, intake.host, shuffle=shuffle, seed=self.seed, pad=pad, clamp=clamp
            )
        # With labels at hand the batches are cut from arrays by a Loader of ours, each a copy.
        intake.all_checked = intake.fresh = feed.labels is not None
        if feed.labels is not None:
            intake.check(feed.labels)
        return feed

    def __repr__(self) -> str:
        return f"Trainer({self.model!r}, backend={self.backend!r}, steps={self.steps})"


_NOTHING = contextlib.nullcontext()

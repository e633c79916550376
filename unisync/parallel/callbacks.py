"""What is called while a trainer trains: functions per step or epoch, and early stopping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, final

from unisync.errors import ArgumentError, ArgumentTypeError, UnknownNameError, unknown
from unisync.parallel.history import Record, StepResult


class Callback:
    """Called while `trainer.train` runs. Override what is needed.

    `trainer.stop()` ends the training after the current step. Reading `result.loss` waits for the device: reading it in
    every step costs speed.

    Example:
        >>> class Print(us.callbacks.Callback):
        ...     def on_epoch(self, trainer, record):
        ...         print(record["epoch"], record["loss"])
    """

    def on_start(self, trainer: Any) -> None:
        """Before the first step of a call of `train`."""

    def on_step(self, trainer: Any, result: StepResult) -> None:
        """After each step."""

    def on_epoch(self, trainer: Any, record: Record) -> None:
        """After each epoch; entries added to the record stay in the history."""

    def on_end(self, trainer: Any) -> None:
        """After the last epoch, also if the training was stopped; not after an error."""


@final
class on_step(Callback):
    """Calls a function after each step.

    Args:
        function: (trainer, result) → anything.

    Example:
        >>> callback = us.callbacks.on_step(lambda trainer, result: print(trainer.steps))
    """

    def __init__(self, function: Callable[[Any, StepResult], Any]) -> None:
        self._function = function

    def on_step(self, trainer: Any, result: StepResult) -> None:
        self._function(trainer, result)


@final
class on_epoch(Callback):
    """Calls a function after each epoch.

    Args:
        function: (trainer, record) → anything.

    Example:
        >>> callback = us.callbacks.on_epoch(lambda trainer, record: trainer.save(f"epoch-{record['epoch']}"))
    """

    def __init__(self, function: Callable[[Any, Record], Any]) -> None:
        self._function = function

    def on_epoch(self, trainer: Any, record: Record) -> None:
        self._function(trainer, record)


@final
class EarlyStopping(Callback):
    """Stops once a value has not become better for some epochs.

    Args:
        monitor: the entry of the record to watch.
        patience: how many epochs in a row may pass without a better value.
        min_delta: by how much a value must be better to count, ≥ 0.
        mode: whether lower ("min") or higher ("max") is better; "auto": lower if the name ends in "loss".
        restore_best: whether to end with the params and state of the best epoch instead of the last.

    Attributes:
        best: the best value so far; None before the first epoch.
        best_epoch: its epoch.

    Example:
        >>> stopping = us.callbacks.EarlyStopping("test_loss", patience=3)
        >>> trainer.train(data, epochs=100, callbacks=[stopping])  # doctest: +SKIP
    """

    def __init__(
        self,
        monitor: str = "test_loss",
        patience: int = 3,
        *,
        min_delta: float = 0.0,
        mode: Literal["auto", "min", "max"] = "auto",
        restore_best: bool = True,
    ) -> None:
        if mode not in ("auto", "min", "max"):
            raise unknown("mode", mode, ("auto", "min", "max"))
        if patience < 0 or min_delta < 0:
            name, value = ("patience", patience) if patience < 0 else ("min_delta", min_delta)
            raise ArgumentError(f"`{name}` must be at least 0, got {value}. Try: {name}=0.")
        self.monitor, self.patience, self.min_delta, self.restore_best = monitor, patience, min_delta, restore_best
        lower = monitor.endswith("loss") if mode == "auto" else mode == "min"
        self._sign = 1.0 if lower else -1.0
        self.on_start(None)

    def on_start(self, trainer: Any) -> None:
        self.best: float | None = None
        self.best_epoch: int | None = None
        self._kept: Any = None
        self._waited = 0

    def on_epoch(self, trainer: Any, record: Record) -> None:
        if self.monitor not in record:
            raise self._unknown_monitor(record)
        value = float(record[self.monitor])
        best = math.inf if self.best is None else self._sign * self.best
        if self.best is None or self._sign * value < best - self.min_delta:
            self.best, self.best_epoch, self._waited = value, record["epoch"], 0
            self._kept = (trainer.params, trainer.state) if self.restore_best else None
            return
        self._waited += 1
        if self._waited >= max(self.patience, 1):
            trainer.stop()

    def _unknown_monitor(self, record: Record) -> UnknownNameError:
        kind, _, name = self.monitor.partition("_")
        meant = f"test_{name}"
        if kind not in ("val", "valid", "validation", "test") or name not in record:
            return unknown("monitor", self.monitor, record)
        cure = repr(meant) if meant in record else f"trainer.train(..., validation=(x, y)), which records {meant!r}"
        return UnknownNameError(f"`monitor` must be one of {sorted(record)}, got {self.monitor!r}. Try: {cure}.")

    def on_end(self, trainer: Any) -> None:
        if self._kept is not None:
            trainer.params, trainer.state = self._kept
            self._kept = None


def checked(callbacks: Any) -> list[Callback]:
    """The callbacks as a list.

    Raises:
        ArgumentTypeError: one is no Callback.
    """
    found = [callbacks] if isinstance(callbacks, Callback) else list(callbacks)
    for callback in found:
        if not isinstance(callback, Callback):
            raise ArgumentTypeError(
                f"`callbacks` must hold us.callbacks.Callback objects, got {callback!r}. "
                "Try: us.callbacks.on_epoch(function), or on_step(function)."
            )
    return found

"""What training recorded: the loss of each step, which is read from the device late, and a record per epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final, overload

from unisync.errors import unknown

RUN_AHEAD = 32
"""Steps that may be in flight. Reading the oldest half when there are more bounds how far the host runs ahead of the
device: unbounded chains of steps keep their batches alive and can exhaust the threads of jax on a CPU."""

Record = dict[str, Any]
"""epoch (from 1), loss, the metrics, seconds, and with validation data test_loss and the test_ metrics."""


class Pending(NamedTuple):
    """A step whose numbers are still on the device."""

    result: StepResult  # what the caller has: numbers that it has read need not be read again
    ok: Any
    samples: Any  # the weight of the batch; a number, or what is read from the device late
    numbers: Any  # what must be put back if the step turns out not to have updated anything


@final
class StepLog:
    """Losses of steps, and sums over an epoch, from arrays that are read late.

    Attributes:
        losses: the losses read so far, of steps that updated the params.
        failed: the first step whose loss or gradient was not finite; None if there was none.
    """

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.failed: Pending | None = None
        self._pending: list[Pending] = []
        self._sums: list[float] = []
        self._samples = 0.0

    def add(self, step: Pending) -> None:
        """Take the arrays of a step; reads the oldest ones if many are waiting."""
        self._pending.append(step)
        if len(self._pending) > RUN_AHEAD:
            self.read(RUN_AHEAD // 2)

    def read(self, leave: int = 0) -> list[float]:
        """All losses, after the arrays of all steps but the newest `leave` are read."""
        count = max(len(self._pending) - leave, 0)
        # The flag stays false from the first bad step on, so that the last one speaks for all.
        sound = not count or _flag(self._pending[count - 1].ok)
        for step in self._pending[:count]:
            if self.failed is not None:
                break
            if not sound and not _flag(step.ok):
                self.failed = step
                break
            values = step.result.numbers()
            self.losses.append(values[0])
            samples = float(step.samples)
            self._sums = [a + samples * b for a, b in zip(self._sums or [0.0] * len(values), values, strict=True)]
            self._samples += samples
        del self._pending[: count if self.failed is None else None]
        return self.losses

    def sums(self) -> list[float]:
        """What `means` would be made from: the number of samples and the sums since its last call."""
        self.read()
        return [self._samples, *self._sums]

    def resume(self, losses: list[float], sums: list[float]) -> None:
        """Go on from losses and sums that were saved."""
        self.losses[:], self._pending[:], self.failed = losses, [], None
        self._samples, self._sums = sums[0], list(sums[1:])

    def begin(self, values: int, keep_sums: bool) -> None:
        """Expect so many values of each step, and start the sums anew unless they are to go on."""
        self.read()
        if not keep_sums or len(self._sums) not in (0, values):
            self._sums, self._samples = [], 0.0

    def means(self) -> list[float]:
        """The means over all samples since the last call: of the loss and of each metric."""
        self.read()
        means = [total / self._samples if self._samples else math.nan for total in self._sums]
        self._sums, self._samples = [], 0.0
        return means


@final
class History(Sequence[Record]):
    """Records of epochs, in order.

    Example:
        >>> history = trainer.train((x, y), epochs=2)  # doctest: +SKIP
        >>> history[-1]["loss"], history["loss"], len(history.step_losses)  # doctest: +SKIP
    """

    def __init__(self, log: StepLog, first_step: int = 0) -> None:
        self.records: list[Record] = []
        self._log = log
        self._first = first_step

    @property
    def step_losses(self) -> list[float]:
        """The loss of each step, at the params before its update. Waits for the device."""
        return self._log.read()[self._first :]

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    @overload
    def __getitem__(self, index: str) -> list[Any]: ...
    def __getitem__(self, index: int | slice | str) -> Any:
        """The record of an epoch by position, or by name the values of all epochs (None where one has none).

        Raises:
            UnknownNameError: no epoch has a value of that name; suggests the nearest.
        """
        if not isinstance(index, str):
            return self.records[index]
        if self.records and not any(index in record for record in self.records):
            raise unknown("history[...]", index, set().union(*self.records))
        return [record.get(index) for record in self.records]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __repr__(self) -> str:
        return f"History({self.records!r})"


@final
class StepResult:
    """The loss and metrics of one step, at the params before its update. Reading them waits for the device."""

    __slots__ = ("_loss", "_metrics", "_names")

    def __init__(self, loss: Any, metrics: tuple[Any, ...], names: tuple[str, ...]) -> None:
        self._loss, self._metrics, self._names = loss, metrics, names

    @property
    def loss(self) -> float:
        """The loss."""
        loss = self._loss
        if type(loss) is not float:
            loss = self._loss = _number(loss)
        return loss

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics by name."""
        self._metrics = tuple(map(_number, self._metrics))
        return dict(zip(self._names, self._metrics, strict=True))

    def numbers(self) -> list[float]:
        """The loss and the metrics."""
        return [self.loss, *self.metrics.values()] if self._metrics else [self.loss]

    def __repr__(self) -> str:
        return f"StepResult(loss={self.loss!r}, metrics={self.metrics!r})"


def _flag(x: Any) -> bool:
    item = getattr(type(x), "item", None)  # 5 µs against 44 for bool(x) on jax
    return bool(x) if item is None else bool(item(x))


def _number(x: Any) -> float:
    if type(x) is float:
        return x
    item = getattr(type(x), "item", None)  # on jax in a quarter of the time of float(x); TensorFlow has none
    return float(x) if item is None else float(item(x))

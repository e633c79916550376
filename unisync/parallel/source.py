"""From what a user trains on to batches, epoch by epoch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

from unisync._dispatch import is_array
from unisync.data import Dataset, Loader
from unisync.data.loader import check_pair, check_size
from unisync.errors import DataError


@final
@dataclass(frozen=True, slots=True)
class Source:
    """Batches of each epoch.

    Attributes:
        batches: epoch, counted from 0 → its batches.
        length: how many batches an epoch has; None if unknown.
        labels: all targets, if they are at hand; None otherwise.
        once: whether only one epoch can be run.
    """

    batches: Callable[[int], Iterator[Any]]
    length: int | None
    labels: Any = None
    once: bool = False


def pair(data: Any) -> tuple[Any, Any] | None:
    """(x, y) if the data are two arrays, in one of the forms for that; None otherwise."""
    if isinstance(data, Dataset):
        return data.x_train, data.y_train
    if isinstance(data, (tuple, list)) and len(data) == 2 and all(is_array(part) for part in data):
        return data[0], data[1]
    if isinstance(data, Mapping) and data.keys() == {"x", "y"}:
        return data["x"], data["y"]
    return None


def of_arrays(
    x: Any, y: Any, batch_size: int, host: Callable[[Any], Any], *, shuffle: bool, seed: int, pad: bool, clamp: bool
) -> Source:
    """The source of two arrays, which are brought to the host.

    Args:
        x: inputs.
        y: targets.
        batch_size: samples per batch.
        host: what brings an array to the host.
        shuffle: whether each epoch has its own order.
        seed: settles the orders.
        pad: whether to fill up the last batch with rows of weight 0.
        clamp: whether a batch larger than the data is as large as the data; else it is an error.
    """
    check_size("batch_size", batch_size)
    check_pair(x, y)
    loader = Loader(
        host(x), host(y), min(batch_size, len(x)) if clamp else batch_size, shuffle=shuffle, seed=seed, pad=pad
    )
    return Source(loader.batches, len(loader), loader.y)


def of_iterable(data: Any) -> Source:
    """The source of an iterable of batches, or of a function that returns one.

    Raises:
        DataError: it is neither.
    """
    _refuse_no_arrays(data)
    if isinstance(data, Loader):
        return Source(data.batches, len(data), data.y)
    if callable(data) and not isinstance(data, Iterable):
        make: Any = data
        return Source(lambda epoch: iter(make()), None)
    if isinstance(data, (str, bytes)) or is_array(data) or not isinstance(data, Iterable):
        raise DataError(
            f"`data` must be (x, y), a us.data.Dataset or an iterable of batches, got {type(data).__name__}. "
            "Try: trainer.train((x, y)), or us.data.load(...)."
        )
    iterator = iter(data)
    if iterator is data:
        return Source(lambda epoch: iterator, None, once=True)
    try:
        length = len(data)  # type: ignore[arg-type]
    except TypeError:
        length = None
    # The first iterator is used, not dropped: one may have started workers.
    first = itertools.chain([iterator])
    return Source(lambda epoch: next(first, None) or iter(data), length)


def _refuse_no_arrays(data: Any) -> None:
    """Raise for what is meant as (x, y), but is made of lists, or of several arrays for x; it would pass for batches.

    Raises:
        DataError: it is.
    """
    if isinstance(data, Mapping):
        keys = [*map(str, data), "x", "y"]
        raise DataError(
            f"`data` must be (x, y) or have the keys 'x' and 'y', got {type(data).__name__} with {keys[:-2]}. "
            f"Try: trainer.train((data[{keys[0]!r}], data[{keys[1]!r}]))."
        )
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        return
    x, y = data
    if not is_array(x) and not is_array(y) and not _holds_numbers(x) and not _holds_numbers(y):
        return  # two batches
    what = f"{type(x).__name__} and {type(y).__name__}"
    if isinstance(x, (tuple, list)) and x and all(is_array(part) and len(part.shape) for part in x):
        raise DataError(f"x and y must be arrays, got {what}. Try: one array for x, np.concatenate(x, axis=-1).")
    raise DataError(f"x and y must be arrays, got {what}. Try: (np.asarray(x), np.asarray(y)).")


def _holds_numbers(part: Any) -> bool:
    """Whether it is a nested list (or tuple) of numbers."""
    while isinstance(part, (list, tuple)) and part:
        part = part[0]
    return isinstance(part, (bool, int, float))


def dry(source: Source, epoch: int) -> DataError:
    """The error for an epoch without batches."""
    if source.once and epoch > 0:
        return DataError(
            f"`data` ran dry after epoch {epoch}: a generator can be run through only once. "
            "Try: a list of batches, a loader, or the function that makes the generator."
        )
    return DataError("`data` must have at least one batch, got none. Try: other data.")

"""From what a user types, such as "digits" or a file's path, to a data set."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unisync.data._csv import csv
from unisync.data._digits import digits
from unisync.data._npz import npz
from unisync.data._text import text
from unisync.data.dataset import Dataset
from unisync.errors import ArgumentError, DataError, unknown

_BUNDLED: dict[str, Callable[..., Dataset]] = {"digits": digits}
_BY_SUFFIX: dict[str, Callable[..., Dataset]] = {".npz": npz, ".csv": csv, ".txt": text}


def load(spec: str | Path, **options: Any) -> Dataset:
    """The data set that `spec` names.

    Args:
        spec: "digits", or the path of a .npz, .csv or .txt file.
        options: those of `us.data.digits`, `npz`, `csv` (which needs `target`) or `text`.

    Returns:
        Dataset.

    Raises:
        UnknownNameError: there is no such data set or option; names the nearest.
        DataError: the file cannot be used.

    Example:
        >>> us.data.load("digits").outputs
        10
    """
    name = str(spec)
    loader = _BUNDLED.get(name)
    arguments: tuple[Any, ...] = ()
    if loader is None:
        loader, arguments = _BY_SUFFIX.get(Path(name).suffix.lower()), (spec,)
    if loader is None:
        if Path(name).suffix or Path(name).exists():
            raise DataError(
                f"data file {name!r} must end in {', '.join(_BY_SUFFIX)}, got {Path(name).suffix!r}. "
                "Try: numpy.savez('data.npz', x=x, y=y)."
            )
        raise unknown("data", name, [*_BUNDLED, *(f"FILE{suffix}" for suffix in _BY_SUFFIX)])
    known = [p for p in inspect.signature(loader).parameters if p != "path"]
    for option in options:
        if option not in known:
            raise unknown(f"option of {loader.__name__}", option, known)
    if loader is csv and "target" not in options:
        raise ArgumentError(f"`target` must name the column of {name!r} to predict, got none. Try: target='label'.")
    return loader(*arguments, **options)

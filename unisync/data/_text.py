"""Characters from a .txt file, to predict the next one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unisync.data.dataset import Dataset, existing_file
from unisync.errors import ArgumentError, DataError


def text(path: str | Path, *, length: int = 64, stride: int | None = None, test_fraction: float = 0.1) -> Dataset:
    """Windows of a text; the target of each character is the one that follows it.

    The vocabulary is the sorted set of characters of the whole text. The end of the text is tested on.

    Args:
        path: the file, in UTF-8.
        length: characters per window, T.
        stride: characters from the start of one window to that of the next; default `length`, so that no character
            is predicted twice.
        test_fraction: the part of the text to test on, in (0, 1).

    Returns:
        Dataset of kind "text": x and y (N, T) int64, positions in `vocabulary`.

    Raises:
        DataError: the file cannot be read, or is too short for one window to train on and one to test on.
        ArgumentError: a size is not positive, or the fraction not in (0, 1).
    """
    stride = length if stride is None else stride
    for name, value in (("length", length), ("stride", stride)):
        if value < 1:
            raise ArgumentError(f"`{name}` must be at least 1, got {value}. Try: 64.")
    if not 0 < test_fraction < 1:
        raise ArgumentError(f"`test_fraction` must be between 0 and 1, got {test_fraction}. Try: 0.1.")
    file = existing_file(path)
    try:
        characters = file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except (UnicodeDecodeError, OSError) as error:
        raise DataError(f"data file {str(path)!r} cannot be read as text ({error}). Try: save it as UTF-8.") from error
    points = np.frombuffer(characters.encode("utf-32-le"), np.uint32)
    vocabulary, numbers = np.unique(points, return_inverse=True)
    tested = max(round(len(numbers) * test_fraction), length + 1)
    if len(numbers) < tested + length + 1:
        shorter = max((len(numbers) - 2) // 2, 1)
        raise DataError(
            f"data file {str(path)!r} must have at least {2 * (length + 1)} characters, got {len(numbers)}. "
            f"Try: a longer text, or length={shorter} (--length {shorter} in the shell)."
        )
    x_train, y_train = _windows(numbers[: len(numbers) - tested], length, stride)
    x_test, y_test = _windows(numbers[len(numbers) - tested :], length, stride)
    return Dataset(file.name, "text", x_train, y_train, x_test, y_test, classes=tuple(map(chr, vocabulary.tolist())))


def _windows(numbers: np.ndarray, length: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    both = np.lib.stride_tricks.sliding_window_view(numbers.astype(np.int64), length + 1)[::stride]
    return np.ascontiguousarray(both[:, :-1]), np.ascontiguousarray(both[:, 1:])

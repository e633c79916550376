"""Arrays from a NumPy .npz file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from unisync.data.dataset import Dataset, Kind, existing_file, split
from unisync.errors import ArgumentError, DataError, unknown

_KINDS = ("image", "table", "sequence", "text")


def npz(path: str | Path, *, kind: Kind | None = None, test_fraction: float = 0.2, seed: int = 0) -> Dataset:
    """Arrays from a file that `numpy.savez(path, x=x, y=y)` wrote.

    The file holds `x` and `y`, which are split here, or `x_train`, `y_train`, `x_test` and `y_test`. Bytes (uint8)
    are pixels and become numbers in [0, 1]; other inputs become float32, but for text. Integer targets are labels
    (int64); others are values (float32), of shape (N, 1) if they were (N,).

    Args:
        path: the file.
        kind: what x is; default: 4 axes are an image (N, H, W, C), 3 axes of bytes an image without a channel axis,
            3 other axes a sequence (N, T, features), 2 axes of integers with targets of the same shape text, 2 others
            a table.
        test_fraction: the part to test on, in (0, 1); used if the file holds `x` and `y`.
        seed: settles the split.

    Returns:
        Dataset.

    Raises:
        DataError: the file cannot be read or does not hold such arrays; pickled objects are never loaded.
    """
    if kind is not None and kind not in _KINDS:
        raise unknown("kind", kind, _KINDS)
    file = existing_file(path)
    arrays = _read(file)
    if {"x", "y"} <= arrays.keys():
        x, y = _checked(file, "x", "y", arrays)
        labels = y if y.dtype.kind in "iu" and y.ndim == 1 else None
        train, test = split(len(x), test_fraction, seed, labels)
        parts = x[train], y[train], x[test], y[test]
    elif {"x_train", "y_train", "x_test", "y_test"} <= arrays.keys():
        parts = *_checked(file, "x_train", "y_train", arrays), *_checked(file, "x_test", "y_test", arrays)
    else:
        raise DataError(
            f"data file {str(path)!r} must hold `x` and `y`, or `x_train`, `y_train`, `x_test` and `y_test`, "
            f"got {sorted(arrays)}. Try: numpy.savez({file.name!r}, x=x, y=y)."
        )
    x_train, y_train, x_test, y_test = parts
    if x_train.shape[1:] != x_test.shape[1:] or y_train.shape[1:] != y_test.shape[1:]:
        raise DataError(
            f"training and test samples of {str(path)!r} must have one shape, got x {x_train.shape[1:]} and "
            f"{x_test.shape[1:]}, y {y_train.shape[1:]} and {y_test.shape[1:]}. Try: reshape them before saving."
        )
    if kind != "text":
        _refuse_one_hot(file, y_train)
    kind = kind or _kind_of(x_train, y_train)
    classes = _classes(file, y_train, y_test)
    x_train, x_test = _inputs(x_train, kind), _inputs(x_test, kind)
    return Dataset(file.name, kind, x_train, _targets(y_train), x_test, _targets(y_test), classes)


def _read(file: Path) -> dict[str, np.ndarray]:
    try:
        with file.open("rb") as opened:  # np.load leaks the file that it opens if the archive is broken
            archive = np.load(opened, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise DataError(
                    f"data file {str(file)!r} holds one array without a name. Try: numpy.savez with x=, y=."
                )
            return {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"data file {str(file)!r} cannot be read as .npz ({error}). Try: numpy.savez with arrays of numbers."
        ) from error


def _checked(file: Path, x_name: str, y_name: str, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    for name in (x_name, y_name):
        array = arrays[name]
        if array.dtype.kind not in "biuf":
            raise DataError(
                f"`{name}` of {str(file)!r} must be numbers, got dtype {array.dtype}. Try: a numeric array."
            )
        if array.ndim == 0 or len(array) == 0:
            raise DataError(f"`{name}` of {str(file)!r} has no samples, got shape {array.shape}. Try: (samples, ...).")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0][0])
            raise DataError(
                f"`{name}` of {str(file)!r} must be finite, got NaN or infinity in row {row}. "
                "Try: leave out or fill in such rows."
            )
    x, y = arrays[x_name], arrays[y_name]
    if len(x) != len(y):
        raise DataError(
            f"`{x_name}` and `{y_name}` of {str(file)!r} must have one length, got {len(x)} and {len(y)}. "
            "Try: one target per input."
        )
    return x, y


def _refuse_one_hot(file: Path, y: np.ndarray) -> None:
    """Such targets would be taken for values to be predicted, and trained by squared error."""
    if y.ndim == 2 and y.shape[1] > 1 and np.isin(y, (0, 1)).all() and (y.sum(axis=1) == 1).all():
        raise DataError(
            f"targets of {str(file)!r} must be labels, got one-hot rows of shape {y.shape}. "
            "Try: y=np.argmax(y, axis=1) before saving."
        )


def _kind_of(x: np.ndarray, y: np.ndarray) -> Kind:
    if x.ndim == 4 or (x.ndim == 3 and x.dtype == np.uint8):
        return "image"
    if x.ndim == 3:
        return "sequence"
    if x.ndim == 2 and x.dtype.kind in "iu" and y.shape == x.shape:
        return "text"
    if x.ndim in (1, 2):
        return "table"
    raise DataError(f"`x` must have 1 to 4 axes, got shape {x.shape}. Try: reshape it, or pass kind=.")


def _inputs(x: np.ndarray, kind: Kind) -> np.ndarray:
    if kind == "text":
        return x.astype(np.int64)
    if kind == "image" and x.ndim == 3:
        x = x[..., None]
    if kind == "table" and x.ndim == 1:
        x = x[:, None]
    expected = {"image": 4, "table": 2, "sequence": 3}[kind]
    if x.ndim != expected:
        raise ArgumentError(f"`kind` {kind!r} needs `x` with {expected} axes, got shape {x.shape}. Try: another kind.")
    scale = 255.0 if x.dtype == np.uint8 and kind == "image" else 1.0
    return x.astype(np.float32) / np.float32(scale)


def _targets(y: np.ndarray) -> np.ndarray:
    if y.dtype.kind in "biu":
        return y.astype(np.int64)
    return y.astype(np.float32).reshape(len(y), -1) if y.ndim == 1 else y.astype(np.float32)


def _classes(file: Path, y_train: np.ndarray, y_test: np.ndarray) -> tuple[str, ...] | None:
    if y_train.dtype.kind == "f" or y_test.dtype.kind == "f":
        return None
    lowest, highest = min(int(y_train.min()), int(y_test.min())), max(int(y_train.max()), int(y_test.max()))
    if lowest < 0:
        raise DataError(f"integer labels of {str(file)!r} must be at least 0, got {lowest}. Try: numbers 0 ... K − 1.")
    return tuple(str(i) for i in range(highest + 1))

"""Tables from a .csv file."""

from __future__ import annotations

import csv as _reader
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Literal

import numpy as np

from unisync.data.dataset import Dataset, existing_file, split
from unisync.errors import ArgumentError, DataError, nearest, unknown

_TASKS = ("auto", "classification", "regression")
_MOST_INTEGER_CLASSES = 20
_DELIMITERS = ",;\t"


def csv(
    path: str | Path,
    target: str,
    *,
    ignore: Sequence[str] = (),
    task: Literal["auto", "classification", "regression"] = "auto",
    standardise: bool = True,
    delimiter: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A table with a header; one column is predicted from the others. True and False among the inputs are 1 and 0.

    Args:
        path: the file, in UTF-8, whose first row names the columns.
        target: the name of the column to predict.
        ignore: names of columns to leave out.
        task: "classification": the target's distinct values are classes, in sorted order; "regression": they are
            numbers; "auto": classes if the target has text, or at most 20 distinct whole numbers.
        standardise: whether to shift and scale each input to mean 0 and standard deviation 1 over the training rows.
        delimiter: what stands between columns; default: comma, semicolon or tab, whichever makes most columns of the
            first row.
        test_fraction: the part to test on, in (0, 1), with every class in proportion.
        seed: settles the split.

    Returns:
        Dataset of kind "table": x (N, features) float32; y (N,) int64 labels, or (N, 1) float32.

    Raises:
        DataError: the file cannot be read, has no header, rows differ in length, a value is missing, or an input is
            text; the message names the row (counted from 1, the header being row 1) and the column.
        UnknownNameError: there is no such column; names the nearest.
    """
    if task not in _TASKS:
        raise unknown("task", task, _TASKS)
    file = existing_file(path)
    header, rows = _read(file, delimiter)
    for name in (target, *ignore):
        if name not in header:
            raise unknown("target" if name == target else "ignore", name, header)
    if target in ignore:
        raise ArgumentError(f"`ignore` must not hold the target, got {target!r}. Try: leave it out.")
    inputs = [i for i, name in enumerate(header) if name != target and name not in ignore]
    if not inputs:
        raise DataError(f"data file {str(path)!r} must have a column besides {target!r}. Try: another file.")
    x = np.array([[_number(file, header, line, row, i) for i in inputs] for line, row in rows])
    y, classes = _target(file, header, rows, header.index(target), task)
    train, test = split(len(x), test_fraction, seed, None if classes is None else y)
    if standardise:
        spread = x[train].std(axis=0)
        x = (x - x[train].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    x = x.astype(np.float32)
    features = tuple(header[i] for i in inputs)
    return Dataset(file.name, "table", x[train], y[train], x[test], y[test], classes, features)


def _read(file: Path, delimiter: str | None) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The column names, and the rows that are not blank with their place in the file."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            delimiter = delimiter or _detect(lines)
            rows = [(i, row) for i, row in enumerate(_reader.reader(lines, delimiter=delimiter, strict=True), 1) if row]
    except (UnicodeDecodeError, _reader.Error, OSError) as error:
        raise DataError(
            f"data file {str(file)!r} cannot be read as .csv ({error}). Try: save it as UTF-8 text, comma-separated."
        ) from error
    if len(rows) < 3:
        raise DataError(f"data file {str(file)!r} must have a header and at least 2 rows. Try: another file.")
    header = [name.strip() for name in rows[0][1]]
    if all(_is_number(name) for name in header):
        raise DataError(f"data file {str(file)!r} has no header: row 1 is {header}. Try: add a row of column names.")
    repeated = {name for name in header if header.count(name) > 1}
    if repeated:
        raise DataError(
            f"column names of {str(file)!r} must differ, got {sorted(repeated)} more than once. Try: rename."
        )
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise DataError(
                f"row {line} of {str(file)!r} has {len(row)} values, the header {len(header)}. "
                f"Try: mend the row, or delimiter= (--delimiter in the shell) if it is not {delimiter!r}."
            )
    return header, rows[1:]


def _detect(lines: IO[str]) -> str:
    """The delimiter that makes most columns of the first row; a comma if none does."""
    first = lines.readline()
    lines.seek(0)
    return max(_DELIMITERS, key=lambda delimiter: len(next(_reader.reader([first], delimiter=delimiter), [])))


def _number(file: Path, header: list[str], line: int, row: list[str], i: int) -> float:
    text = row[i].strip()
    where = f"row {line}, column {header[i]!r} of {str(file)!r}"
    if not text or text.lower() in ("na", "n/a", "nan", "null", "none"):
        raise DataError(f"{where} has no value ({text!r}). Try: fill it in, or leave out the row or the column.")
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    try:
        value = float(text)
    except ValueError:
        raise DataError(
            f"{where} must be a number, got {text!r}. Try: encode it as numbers, or leave the column out: "
            f"ignore=[{header[i]!r}], in the shell --ignore {shlex.quote(header[i])}."
        ) from None
    if not math.isfinite(value):
        raise DataError(f"{where} must be finite, got {text!r}. Try: fill it in, or leave out the row.")
    return value


def _target(
    file: Path, header: list[str], rows: list[tuple[int, list[str]]], i: int, task: str
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    words = [row[i].strip() for _, row in rows]
    for (line, _), word in zip(rows, words, strict=True):
        if not word:
            raise DataError(f"row {line}, column {header[i]!r} of {str(file)!r} has no value. Try: leave out the row.")
    distinct = sorted(set(words))
    numeric = all(_is_number(word) for word in distinct)
    if task == "auto":
        whole = numeric and all(float(word).is_integer() for word in distinct if math.isfinite(float(word)))
        task = "classification" if not numeric or (whole and len(distinct) <= _MOST_INTEGER_CLASSES) else "regression"
    if task == "regression":
        return np.array([[_number(file, header, line, row, i)] for line, row in rows], np.float32), None
    if len(distinct) < 2:
        raise DataError(
            f"column {header[i]!r} of {str(file)!r} must have at least 2 classes, got {distinct}. "
            f"Try: another column; did you mean {nearest(header[i], [h for h in header if h != header[i]])!r}?"
        )
    classes = tuple(sorted(distinct, key=float) if numeric else distinct)
    number = {name: label for label, name in enumerate(classes)}
    return np.array([number[word] for word in words], np.int64), classes


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

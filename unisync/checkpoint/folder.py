"""A checkpoint on disk: a folder of one JSON file and the safetensors file that it names.

The JSON file is written last and put in place in one step, so that a folder always holds a whole checkpoint: the new
one or, if the process dies before, the old one.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from unisync._types import Tree
from unisync.checkpoint.encoding import decode, encode
from unisync.errors import CheckpointError

FORMAT = 1
INDEX = "checkpoint.json"


@final
@dataclass(frozen=True, slots=True)
class Saved:
    """What a checkpoint holds.

    Attributes:
        trees: trees of NumPy arrays and numbers, by name.
        info: JSON values that were saved beside them.
    """

    trees: dict[str, Tree]
    info: dict[str, Any]


def write(path: str | Path, trees: Mapping[str, Tree], info: Mapping[str, Any]) -> None:
    """Save trees in a folder, which is made if need be; a checkpoint that it holds is replaced.

    Args:
        path: the folder.
        trees: trees by name: dicts, lists and tuples of arrays of any backend, numbers, strings and None.
        info: JSON values.

    Raises:
        CheckpointError: the path is a file or a folder of something else, or cannot be written to, or a tree holds
            something else.
    """
    from safetensors import SafetensorError

    folder = Path(path)
    try:
        _write(folder, trees, info)
    except (OSError, SafetensorError) as error:
        raise _not_writable(folder, error) from error


def _write(folder: Path, trees: Mapping[str, Tree], info: Mapping[str, Any]) -> None:
    from safetensors.numpy import save_file

    _check_place(folder)
    arrays: dict[str, np.ndarray] = {}
    encoded = {name: encode(tree, name, arrays) for name, tree in trees.items()}
    folder.mkdir(parents=True, exist_ok=True)
    old = {file.name for file in folder.glob("arrays-*.safetensors")} | {f.name for f in folder.glob("*.part")}
    array_file = f"arrays-{secrets.token_hex(4)}.safetensors"
    save_file(arrays, folder / f"{array_file}.part", metadata={"format": "unisync"})
    _put(folder / f"{array_file}.part", folder / array_file)
    index = {"format": FORMAT, "arrays": array_file, "info": dict(info), "trees": encoded}
    part = folder / f"{INDEX}.part"
    part.write_text(json.dumps(index, indent=1, allow_nan=False), encoding="utf-8")
    _put(part, folder / INDEX)
    for name in old:
        (folder / name).unlink(missing_ok=True)


def read(path: str | Path) -> Saved:
    """What was saved in a folder.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged or of a newer version; the message names the folder.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(path)
    if not (folder / INDEX).is_file():
        raise CheckpointError(f"{str(path)!r} is no checkpoint: it has no {INDEX}. Try: a folder that save() wrote.")
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        if index["format"] > FORMAT:
            raise CheckpointError(
                f"{str(path)!r} is of format {index['format']}, newer than {FORMAT}. Try: update unisync."
            )
        arrays = load_file(folder / Path(index["arrays"]).name)
        return Saved({name: decode(tree, arrays) for name, tree in index["trees"].items()}, index["info"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{str(path)!r} is damaged ({error!r}). Try: an earlier checkpoint.") from error


def check_target(path: str | Path) -> None:
    """Check, before hours of training, that a checkpoint may be written there.

    Raises:
        CheckpointError: the path is a file, a folder of something else, or where one may not write.
    """
    folder = Path(path)
    try:
        _check_place(folder)
        standing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        with tempfile.TemporaryFile(dir=standing):  # permission bits do not tell of read-only file systems
            pass
    except OSError as error:
        raise _not_writable(folder, error) from error


def _check_place(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"`path` must be a folder, got the file {str(folder)!r}. Try: another name.")
    if folder.is_dir() and any(folder.iterdir()):
        names = {file.name for file in folder.iterdir()}
        ours = {n for n in names if n.removesuffix(".part") == INDEX or n.startswith("arrays-")}
        if names != ours:
            raise CheckpointError(
                f"`path` must be a new folder or one with a checkpoint, got {str(folder)!r} with "
                f"{sorted(names - ours)[0]!r} in it. Try: a folder inside it."
            )


def _not_writable(folder: Path, error: Exception) -> CheckpointError:
    reason = (isinstance(error, OSError) and error.strerror) or error
    return CheckpointError(
        f"{str(folder)!r} cannot be written to: {reason}. Try: a folder with room that you may write to."
    )


def _put(part: Path, final: Path) -> None:
    """Rename a finished file into place, with its bytes on the disk first."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(part, final)

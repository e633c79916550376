"""Trees as JSON and named NumPy arrays, and back: the structure goes into the JSON, the numbers of arrays beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from unisync._dispatch import is_array
from unisync._types import Tree
from unisync.errors import CheckpointError
from unisync.functional.conversion import to_numpy
from unisync.functional.dtypes import dtype_of
from unisync.functional.random import Key

_VIEWS = {"complex64": "float32", "complex128": "float64"}  # what safetensors has no type for, as pairs


def encode(tree: Tree, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """A tree as JSON values; its arrays are added to `arrays` under their paths.

    Args:
        tree: dicts with string keys, lists, tuples, arrays of any backend, numbers, strings, None and random keys.
        name: the path of the tree.
        arrays: receives the arrays, contiguous and of a dtype that safetensors knows.

    Raises:
        CheckpointError: there is something else in the tree.
    """
    if tree is None or isinstance(tree, (bool, str)):
        return tree
    if isinstance(tree, Key):
        return {"key": [int(word) for word in np.asarray(tree.commit().data)]}
    if isinstance(tree, np.generic) or is_array(tree):
        return _encode_array(tree, name, arrays)
    if isinstance(tree, int):
        return tree
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else {"number": str(tree)}
    if isinstance(tree, Mapping) and all(isinstance(key, str) for key in tree):
        return {"dict": {key: encode(value, f"{name}/{key}", arrays) for key, value in tree.items()}}
    if isinstance(tree, (list, tuple)):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [encode(value, f"{name}/{i}", arrays) for i, value in enumerate(tree)]}
    raise CheckpointError(
        f"{name!r} cannot be saved: it is a {type(tree).__name__}. "
        "Try: dicts, lists and tuples of arrays, numbers, strings and None."
    )


def decode(value: Any, arrays: Mapping[str, np.ndarray]) -> Tree:
    """The tree that `encode` was given: arrays as NumPy arrays, bfloat16 as float32 with the same values (see
    `Stored`); named tuples come as tuples.

    Raises:
        CheckpointError: the values are not of that form, or an array is missing.
    """
    if not isinstance(value, dict):
        return [decode(v, arrays) for v in value] if isinstance(value, list) else value
    pairs: list[tuple[str, Any]] = list(value.items())
    kind: str = pairs[0][0] if len(pairs) == 1 else ""
    content: Any = pairs[0][1] if pairs else None
    match kind:
        case "dict":
            return {key: decode(v, arrays) for key, v in content.items()}
        case "list":
            return [decode(v, arrays) for v in content]
        case "tuple":
            return tuple(decode(v, arrays) for v in content)
        case "number":
            return float(content)
        case "key":
            key = Key(0)
            key.data = np.array(content, np.uint32)
            return key
        case "array":
            return _decode_array(content, arrays)
    raise CheckpointError(f"a checkpoint must hold trees as unisync writes them, got {str(value)[:80]}.")


class Stored(np.ndarray):
    """A NumPy array that remembers the dtype it was saved from: bfloat16 has none in NumPy."""

    saved_dtype: str


def _encode_array(array: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    dtype = str(dtype_of(array))
    host = np.ascontiguousarray(to_numpy(array))
    shape = np.shape(array)
    if dtype == "bfloat16":
        # The upper half of a float32 is the bfloat16 of the same value.
        host = (host.view(np.uint32) >> 16).astype(np.uint16)
    elif dtype in _VIEWS:
        host = host.view(_VIEWS[dtype])
    if name in arrays:
        raise CheckpointError(f"two arrays have the path {name!r}. Try: names without '/'.")
    arrays[name] = host
    return {"array": {"name": name, "dtype": dtype, "shape": [int(n) for n in shape]}}


def _decode_array(content: Any, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    try:
        name, dtype, shape = content["name"], content["dtype"], tuple(content["shape"])
        host = arrays[name]
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"a checkpoint must hold the array {content}, which is missing ({error!r}).") from error
    if dtype == "bfloat16":
        host = (host.astype(np.uint32) << 16).view(np.float32)
    elif dtype in _VIEWS:
        host = host.view(dtype)
    stored = host.reshape(shape).view(Stored)
    stored.saved_dtype = dtype
    return stored

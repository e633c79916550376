"""Between torch and the host, other frameworks, and devices."""

from __future__ import annotations

from typing import Any

import numpy as _np
import torch

from unisync import _dispatch, tree as _tree
from unisync._types import Tree
from unisync.backends.torch._depth import differentiating as _differentiating
from unisync.backends.torch.creation import asarray as _asarray
from unisync.errors import TraceError


def to_numpy(x: torch.Tensor, /) -> _np.ndarray:
    if x.requires_grad and _differentiating():
        raise TraceError(
            "`x` must be a concrete array, got one that a gradient is being traced through. "
            "Try: return it as aux (has_aux=True) and look at it outside."
        )
    x = x.detach()
    if x.dtype is torch.bfloat16:  # NumPy has none: https://github.com/numpy/numpy/issues/19808
        x = x.to(torch.float32)
    try:
        return x.numpy(force=True)
    except (RuntimeError, TypeError) as error:
        raise TraceError(
            f"`x` must be a concrete array, got {type(x).__name__} without numbers ({error}). "
            "Try: call it outside the compiled or transformed function."
        ) from error


def from_dlpack(x: Any, /) -> torch.Tensor:
    if isinstance(x, (_np.ndarray, _np.generic)):
        return _asarray(x)  # shares memory likewise; a read-only array is copied, as torch could write to it
    try:
        return torch.from_dlpack(x)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        # What does not export its memory, such as tf.Variable: by way of the host.
        if not _dispatch.is_array(x):
            raise
    source = _dispatch.namespace(x)
    return _asarray(source.to_numpy(x), dtype=source.dtype_of(x))


def device(x: torch.Tensor, /) -> torch.device:
    return x.device


def to_device(x: torch.Tensor, device: Any, /) -> torch.Tensor:
    return x.to(device)


def block_until_ready(x: Tree, /) -> Tree:
    devices = {leaf.device for leaf in _tree.leaves(x) if isinstance(leaf, torch.Tensor)}
    for device in devices:
        if device.type not in ("cpu", "meta"):
            torch.accelerator.synchronize(device)
    return x

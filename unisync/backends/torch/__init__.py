"""The PyTorch backend: eager torch, array API semantics, gradients through leaf tensors."""

from __future__ import annotations

import torch as _torch

NAME = "torch"

ARRAY_TYPES: tuple[type, ...] = (_torch.Tensor, _torch.nn.Parameter)


def describe() -> dict[str, object]:
    """Version, devices and threads of the framework, for `unisync doctor`."""
    cuda = [_torch.cuda.get_device_name(i) for i in range(_torch.cuda.device_count())]
    return {
        "version": _torch.__version__,
        "devices": ["cpu", *(f"cuda:{i} ({name})" for i, name in enumerate(cuda))],
        "default_device": str(_torch.get_default_device()),
        "cuda": _torch.version.cuda,
        "threads": _torch.get_num_threads(),
    }

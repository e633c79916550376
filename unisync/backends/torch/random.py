"""Native random draws: a generator of torch's, seeded from the key for each draw."""

from __future__ import annotations

import threading
from typing import Any

import torch

from unisync._types import Shape
from unisync.backends.torch._dtypes import native as _native


def uniform(
    key: Any, shape: Shape = (), *, low: float = 0.0, high: float = 1.0, dtype: Any = None, device: Any = None
) -> torch.Tensor:
    generator = _seeded(key, device)
    x = torch.empty(shape, dtype=torch.float32 if dtype is None else _native(dtype), device=generator.device)
    return x.uniform_(low, high, generator=generator)


def normal(
    key: Any, shape: Shape = (), *, mean: float = 0.0, std: float = 1.0, dtype: Any = None, device: Any = None
) -> torch.Tensor:
    generator = _seeded(key, device)
    x = torch.empty(shape, dtype=torch.float32 if dtype is None else _native(dtype), device=generator.device)
    return x.normal_(mean, std, generator=generator)


def bernoulli(key: Any, p: float, shape: Shape = (), *, device: Any = None) -> torch.Tensor:
    generator = _seeded(key, device)
    return torch.empty(shape, dtype=torch.bool, device=generator.device).bernoulli_(p, generator=generator)


_generators = threading.local()


def _seeded(key: Any, device: Any) -> torch.Generator:
    """This thread's generator of the device, at the start of the key's numbers."""
    device = torch.get_default_device() if device is None else torch.device(device)
    known = _generators.__dict__
    name = str(device)
    if name not in known:
        known[name] = torch.Generator(device)
    high, low = key.words().tolist()
    return known[name].manual_seed(high << 32 | low)

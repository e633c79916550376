"""Native random draws: from torch's generator, seeded from the key for each draw.

torch.compile cannot trace a seeded generator, so in compiled code the numbers come from a hash of the key and the
element's position instead: other numbers, as reproducible.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import torch

from unisync._types import Shape as _Shape
from unisync.backends.torch._dtypes import native as _native


def uniform(
    key: Any, shape: _Shape = (), *, low: float = 0.0, high: float = 1.0, dtype: Any = None, device: Any = None
) -> torch.Tensor:
    dtype = torch.float32 if dtype is None else _native(dtype)
    if torch.compiler.is_compiling():
        return (_hashed(key, shape, device) * (high - low) + low).to(dtype)
    generator = _seeded(key, device)
    return torch.empty(shape, dtype=dtype, device=generator.device).uniform_(low, high, generator=generator)


def normal(
    key: Any, shape: _Shape = (), *, mean: float = 0.0, std: float = 1.0, dtype: Any = None, device: Any = None
) -> torch.Tensor:
    dtype = torch.float32 if dtype is None else _native(dtype)
    if torch.compiler.is_compiling():  # Box and Muller 1958
        radius = torch.sqrt(-2 * torch.log1p(-_hashed(key, shape, device)))
        angle = 2 * math.pi * _hashed(key.fold_in(1), shape, device)
        return (radius * torch.cos(angle) * std + mean).to(dtype)
    generator = _seeded(key, device)
    return torch.empty(shape, dtype=dtype, device=generator.device).normal_(mean, std, generator=generator)


def bernoulli(key: Any, p: float, shape: _Shape = (), *, device: Any = None) -> torch.Tensor:
    if torch.compiler.is_compiling():
        return _hashed(key, shape, device) < p
    generator = _seeded(key, device)
    # on the CPU half the time of bernoulli_
    return torch.rand(shape, dtype=torch.float32, device=generator.device, generator=generator) < p


_generators = threading.local()


def _seeded(key: Any, device: Any) -> torch.Generator:
    """This thread's generator of the device, at the start of the key's numbers."""
    if device is None:
        device = torch.get_default_device()
    known = _generators.__dict__
    name = str(device)
    if name not in known:
        known[name] = torch.Generator(device)
    high, low = key.words().tolist()
    return known[name].manual_seed(high << 32 | low)


def _hashed(key: Any, shape: _Shape, device: Any) -> torch.Tensor:
    """float64 numbers in [0, 1): SplitMix64 (Steele, Lea, Flood 2014) of the key's bits and the position."""
    words = torch.as_tensor(key.words(), device=device).to(torch.int64)
    z = torch.arange(1, math.prod(shape) + 1, device=device) * -0x61C8864680B583EB + ((words[0] << 32) | words[1])
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        z = (z ^ _shifted(z, shift)) * factor
    return (_shifted(z ^ _shifted(z, 31), 11).to(torch.float64) * 2.0**-53).reshape(shape)


def _shifted(z: torch.Tensor, places: int) -> torch.Tensor:
    """z shifted to the right as an unsigned number: torch's int64 would keep the sign."""
    return (z >> places) & ((1 << (64 - places)) - 1)

"""The NumPy backend: plain NumPy arrays, differentiated through the autograd package."""

from __future__ import annotations

from typing import Any

import autograd
import numpy as np

from unisync.backends.numpy import _corrections as _corrections
from unisync.backends.numpy._tape import Box as _Box

NAME = "numpy"

ARRAY_TYPES: tuple[type, ...] = (np.ndarray, np.generic, _Box)
"""Arrays, the scalars that NumPy's reductions return, and autograd's traced arrays."""


def describe() -> dict[str, Any]:
    """Versions and devices, for `unisync doctor`."""
    return {
        "framework": "numpy",
        "version": np.__version__,
        "autograd": getattr(autograd, "__version__", "unknown"),
        "devices": ["cpu"],
        "default_device": "cpu",
    }

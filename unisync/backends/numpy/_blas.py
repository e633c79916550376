"""How many threads NumPy's matrix library uses: several replicas that each use all cores stand in each other's way."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def limit(count: int) -> Callable[[], None]:
    """Let the matrix library use at most `count` threads; returns how to undo it."""
    controls = _controls()
    if not controls and importlib.util.find_spec("threadpoolctl") is not None:  # a NumPy built otherwise, e.g. with MKL
        return _by_threadpoolctl(count)
    undo = [restore for get, put in controls if (restore := _limited(get, put, count)) is not None]

    def restore_all() -> None:
        for restore in undo:
            restore()

    return restore_all


def _by_threadpoolctl(count: int) -> Callable[[], None]:
    import threadpoolctl

    libraries = threadpoolctl.ThreadpoolController().select(user_api="blas").info()
    if all(library["num_threads"] <= count for library in libraries):
        return lambda: None
    return threadpoolctl.threadpool_limits(count, user_api="blas").restore_original_limits


def _limited(get: Callable[[], int], put: Callable[[int], Any], count: int) -> Callable[[], None] | None:
    before = get()
    if before <= count:
        return None
    put(count)
    return lambda: put(before)


@functools.cache
def _controls() -> list[tuple[Callable[[], int], Callable[[int], Any]]]:
    """(get, set) of the number of threads, for each matrix library that NumPy brought along.

    NumPy's wheels hold an OpenBLAS with names of its own: https://github.com/MacPython/openblas-libs.
    """
    root = Path(np.__file__).parent
    places = [*(root.parent / "numpy.libs").glob("*"), *(root / ".dylibs").glob("*")]
    found = []
    for path in sorted(p for p in places if "blas" in p.name):
        try:
            library = ctypes.CDLL(str(path))  # loaded already: this only finds it again
        except OSError:
            continue
        for form in ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}"):
            get = getattr(library, form.format("get_num_threads"), None)
            put = getattr(library, form.format("set_num_threads"), None)
            if get is not None and put is not None:
                put.restype, put.argtypes = None, [ctypes.c_int]
                found.append((get, put))
                break
    return found

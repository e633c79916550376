"""The backends: the only place where frameworks are imported.

Each folder mirrors `functional/` file for file. A file holds the backend's version of the primitives of the
file of the same name: renames first, then one-line wrappers, then real code. `import_backend` gathers
them into one flat namespace, the folder's own module.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

from unisync import _config
from unisync.errors import MissingDependencyError

FILES: tuple[str, ...] = (
    "creation", "conversion", "dtypes", "elementwise", "indexing", "linear_algebra", "manipulation", "searching",
    "sorting", "statistical", "utility", "nn", "random", "gradients", "multi",
)  # fmt: skip
"""The files that every backend has; `functional/` has the same."""

_REQUIRES: dict[str, tuple[tuple[str, ...], str]] = {  # backend → (modules to import, how to get them)
    "numpy": (("numpy", "autograd"), "."),
    "torch": (("torch",), ".[torch]"),
    "jax": (("jax", "jaxlib"), ".[jax]"),
    "tensorflow": (("tensorflow",), ".[tensorflow]"),
}

_BEFORE_IMPORT: dict[str, dict[str, str]] = {  # environment variables that a framework reads while it is imported
    # Less information on every start; TensorFlow 2.21 still prints its oneDNN banner. Warnings and errors stay.
    "tensorflow": {"TF_CPP_MIN_LOG_LEVEL": "1"},
}


def installed(name: str) -> bool:
    """Whether the framework of backend `name` can be found, without importing it."""
    return all(importlib.util.find_spec(module) is not None for module in _REQUIRES[name][0])


def import_backend(name: str) -> ModuleType:
    """Import a backend's folder and gather its files into one namespace.

    Raises:
        MissingDependencyError: the framework cannot be imported; the message says which extra to install.
    """
    modules, extra = _REQUIRES[name]
    for variable, value in _BEFORE_IMPORT.get(name, {}).items():
        _config.set_default(variable, value)
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise MissingDependencyError(
                f"the {name} backend needs {module}, which cannot be imported here ({error}). "
                f"Try, in unisync's source folder: pip install '{extra}'."
            ) from error
    package = importlib.import_module(f"unisync.backends.{name}")
    for file in FILES:
        part = importlib.import_module(f"unisync.backends.{name}.{file}")
        for key, value in vars(part).items():
            # Keep what the file defines or renames; leave out what it merely imported from lower down.
            if not key.startswith("_") and callable(value) and not _imported(value, package.__name__):
                setattr(package, key, value)
    return package


def import_engines(name: str) -> ModuleType:
    """The module with a backend's engines: `make_engine(name, replicas, device, timeout_s) -> Engine`.

    It is not part of the backend's namespace, and only those who make a world pay for its import.
    """
    return importlib.import_module(f"unisync.backends.{name}.engines")


def import_launched(name: str) -> ModuleType:
    """The module with a backend's engines of launched worlds: `ENGINES`, their names, the default first;
    `make_engine(name, member, device, timeout_s) -> LaunchedEngine`; and `prepare(member)`, if the framework must be
    told of the world before it makes its first array."""
    return importlib.import_module(f"unisync.backends.{name}.launched")


def import_mpi() -> Any:
    """mpi4py's MPI, by which the processes that an MPI launcher started can find each other; None if it is missing.

    If it is imported here first, whoever uses it has to finalize it.
    """
    try:
        return load_mpi()
    except MissingDependencyError:
        return None


def load_mpi() -> Any:
    """As `import_mpi`.

    Raises:
        MissingDependencyError: mpi4py, or an MPI library for it, cannot be loaded.
    """
    try:
        if "mpi4py.MPI" not in sys.modules:
            # At exit MPI_Finalize would wait for ever for a process that has died.
            importlib.import_module("mpi4py").rc.finalize = False
        return importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:  # RuntimeError: there is mpi4py, but no MPI library
        raise MissingDependencyError(
            f"NumPy's replicas in processes need mpi4py and an MPI library, which cannot be loaded here ({error}). "
            "Try, in unisync's source folder: pip install '.[mpi]'."
        ) from error


def import_by_hand(name: str) -> ModuleType:
    """The module with a backend's collectives without unisync: `collective(op, value, engine)`, `results`, `wait`."""
    return importlib.import_module(f"unisync.backends.{name}.by_hand")


def _imported(value: object, package: str) -> bool:
    origin = getattr(value, "__module__", None) or ""
    if origin in ("typing", "functools", "collections.abc"):
        return True
    return origin.startswith("unisync.") and not origin.startswith(package + ".")

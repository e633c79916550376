"""From the type of an array to the backend that computes with it.

`of` maps a type to a backend module. Public functions read `return of[type(x)].exp(x)`: one dict
look-up, written out in each function so that editors and torch.compile see plain Python. A type met for
the first time falls to `__missing__`, which looks at its base classes, loads the framework's backend
if need be, and remembers the answer.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from unisync import _config
from unisync.errors import MixedBackendsError, NotAnArrayError, unknown

BACKENDS: tuple[str, ...] = ("numpy", "torch", "jax", "tensorflow")

_ROOT_PACKAGES = {"numpy": "numpy", "torch": "torch", "jax": "jax", "jaxlib": "jax"} | dict.fromkeys(
    ("tensorflow", "keras"), "tensorflow"
)


class _Scalars(ModuleType):
    """Stands for the backend of a Python number: the current one, with the number made an array."""

    def __getattr__(self, name: str) -> Any:
        backend = current_namespace()
        function = getattr(backend, name)

        def on_scalar(x: Any, /, *args: Any, **kwargs: Any) -> Any:
            return function(backend.asarray(x), *args, **kwargs)

        return on_scalar


_scalars = _Scalars("unisync scalars")


class _Table(dict[type, Any]):
    def __missing__(self, cls: type) -> Any:
        for base in cls.__mro__:
            if base in self:
                found = dict.__getitem__(self, base)
                break
            name = _ROOT_PACKAGES.get(base.__module__.partition(".")[0])
            if name is not None and name not in _loaded:
                load(name)
                return self[cls]
        else:
            raise NotAnArrayError(
                f"`x` must be an array of {', '.join(BACKENDS)}, or a number, got {cls.__name__}. Try: us.asarray(x)."
            )
        self[cls] = found
        return found


of: _Table = _Table({float: _scalars, int: _scalars, bool: _scalars, complex: _scalars})
"""type of an array → backend module."""

_loaded: dict[str, Any] = {}
_lock = threading.RLock()
_chosen: Any = None  # the backend module of set_backend
_override = threading.local()  # .stack: backend modules of `with us.backend(...)`, per thread
_overrides_used = False  # until the first `with us.backend(...)` the thread-local is not looked at


def load(name: str) -> Any:
    """Import the backend `name` if it is not yet, register its array types, and return its module.

    Raises:
        UnknownNameError: there is no such backend; names the nearest.
        MissingDependencyError: its framework is not installed; names the extra.
    """
    module = _loaded.get(name)
    if module is not None:
        return module
    if name not in BACKENDS:
        raise unknown("backend", name, BACKENDS)
    from unisync.backends import import_backend  # floor 1: where the frameworks are imported

    with _lock:
        if name not in _loaded:
            module = import_backend(name)
            for cls in module.ARRAY_TYPES:
                of[cls] = module
            _loaded[name] = module
        return _loaded[name]


def set_backend(name: str) -> None:
    """Choose the backend that creation functions, models and trainers use from now on, in every thread.

    Arrays keep the backend that they belong to: functions of arrays follow their arguments.

    Args:
        name: "numpy", "torch", "jax" or "tensorflow".

    Raises:
        UnknownNameError: there is no such backend; names the nearest.
        MissingDependencyError: its framework is not installed; names the extra.

    Example:
        >>> us.set_backend("numpy")
        >>> us.current_backend()
        'numpy'
    """
    global _chosen
    _chosen = load(name)


def current_backend() -> str:
    """The name of the backend that creation functions use here: of the innermost `with us.backend(...)`
    of this thread, else of `set_backend`, else of `UNISYNC_BACKEND`, else "numpy".

    Example:
        >>> with us.backend("numpy"):
        ...     us.current_backend()
        'numpy'
    """
    return current_namespace().NAME


@contextlib.contextmanager
def backend(name: str) -> Iterator[Any]:
    """Use another backend inside a `with` block, in this thread only.

    Args:
        name: "numpy", "torch", "jax" or "tensorflow".

    Yields:
        The backend's module, as `us.namespace` returns it.

    Example:
        >>> with us.backend("numpy"):
        ...     us.ones(2)
        array([1., 1.], dtype=float32)
    """
    global _overrides_used
    module = load(name)
    stack = _override.__dict__.setdefault("stack", [])
    _overrides_used = True
    stack.append(module)
    try:
        yield module
    finally:
        stack.pop()


def current_namespace() -> Any:
    """The module of the current backend."""
    if _overrides_used:
        stack = getattr(_override, "stack", None)
        if stack:
            return stack[-1]
    if _chosen is not None:
        return _chosen
    return load(_config.backend_from_environment() or "numpy")


def namespace(*arrays: Any) -> Any:
    """The backend module that the arrays belong to; with no array, the current backend's.

    Its functions have the names and signatures of `us.*` (without `like=`), so a hot loop can hoist the
    look-up: `ns = us.namespace(x)`, then `ns.exp(x)`.

    Raises:
        MixedBackendsError: the arrays belong to two backends.
        NotAnArrayError: an argument is neither an array nor a Python number.

    Example:
        >>> us.namespace(us.ones(2)).NAME
        'numpy'
    """
    found = _scalars
    for x in arrays:
        module = of[type(x)]
        if found is _scalars:
            found = module
        elif module is not _scalars and module is not found:
            raise _mixed(found, module)
    return current_namespace() if found is _scalars else found


def pair(m1: Any, m2: Any, x1: Any, x2: Any) -> tuple[Any, Any, Any]:
    """Settle a binary call whose arguments differ in backend: a Python number takes the array's.

    A number on the left becomes a 0-d array (of x2's dtype, or the default dtype of its kind if it is of a
    higher one); a number on the right is left to the backend.

    Returns:
        (backend module, x1, x2).

    Raises:
        MixedBackendsError: both are arrays.
    """
    if m1 is _scalars:
        return m2, m2.scalar(x1, x2), x2
    if m2 is _scalars:
        return m1, x1, x2
    raise _mixed(m1, m2)


def target(like: Any, device: Any) -> tuple[Any, Any]:
    """Backend and device of a creation function: those of `like`, else the current backend and `device`."""
    if like is None:
        return current_namespace(), device
    module = namespace(like)
    if device is None and of[type(like)] is not _scalars:
        device = module.device(like)
    return module, device


def loaded(name: str) -> bool:
    """Whether the backend has been imported."""
    return name in _loaded


def is_array(x: Any) -> bool:
    """Whether x is a native array of any backend (Python numbers are not).

    Example:
        >>> us.is_array(us.ones(2)), us.is_array(2.0), us.is_array([1, 2])
        (True, False, False)
    """
    try:
        return of[type(x)] is not _scalars
    except NotAnArrayError:
        return False


def _mixed(m1: Any, m2: Any) -> MixedBackendsError:
    names = [m1.NAME, m2.NAME]
    # An array on the host joins the others: those may be on a device, or be differentiated.
    name, which = next(((n, "the NumPy array") for n in names if n != "numpy"), (m1.NAME, "the other"))
    if "numpy" not in names:
        name, which = m1.NAME, f"the {m2.NAME} array"
    return MixedBackendsError(
        f"arrays of one call must belong to one backend, got {m1.NAME} and {m2.NAME}. "
        f'Try: us.convert(x, "{name}") for {which}.'
    )

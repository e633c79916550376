"""Every error that unisync raises: a UnisyncError that is also the natural builtin.

A message says what was wrong, why, and what to write instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UnisyncError(Exception):
    """The base of all errors raised by unisync."""


class UnknownNameError(UnisyncError, ValueError):
    """A name (backend, option, dtype, optimizer ...) that does not exist."""


class MissingDependencyError(UnisyncError, ImportError):
    """A framework or library that is not installed; the message names the extra to install."""


class MixedBackendsError(UnisyncError, TypeError):
    """Arrays of two backends met in one call."""


class NotAnArrayError(UnisyncError, TypeError):
    """Something that is no array of any backend was given where an array is needed."""


class ShapeError(UnisyncError, ValueError):
    """An array's shape does not fit."""


class ArgumentError(UnisyncError, ValueError):
    """An argument's value is out of its range."""


class ArgumentTypeError(UnisyncError, TypeError):
    """An argument is of the wrong type."""


class TraceError(UnisyncError, RuntimeError):
    """Something that cannot be done inside a compiled function was tried there."""


class DataError(UnisyncError, ValueError):
    """The data cannot be used: empty, unreadable, malformed, or labels out of range."""


class NonFiniteError(UnisyncError, FloatingPointError):
    """The loss or a gradient became NaN or infinite; names the step in which it fell."""


class StateError(UnisyncError, RuntimeError):
    """A call came at a moment at which it is not possible."""


class CheckpointError(UnisyncError, ValueError):
    """A checkpoint cannot be read, or does not belong to this model."""


class CollectiveError(UnisyncError, RuntimeError):
    """A collective failed: replicas disagree, one is missing, or one has failed; names replica, call and line."""


class CollectiveMismatchError(CollectiveError):
    """Replicas met in different collectives, or in one with different shapes, dtypes or groups."""


class CollectiveTimeoutError(CollectiveError, TimeoutError):
    """A replica did not arrive at a collective in time; names it, the call and the line."""


class ReplicaFailedError(CollectiveError):
    """Another replica raised; its own error is the cause, if it is at hand.

    Attributes:
        rank: which one, where that is known beside the text.
    """

    rank: int | None = None


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name closest to `word`, or the first of the sorted names if none is close.

    Example:
        >>> from unisync.errors import nearest
        >>> nearest("pytorhc", ["numpy", "pytorch"])
        'pytorch'
    """
    names = sorted(known)
    return next(iter(difflib.get_close_matches(word, names, n=1, cutoff=0.4)), names[0])


def unknown(what: str, word: object, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that does not exist: lists the known ones and suggests the nearest.

    Example:
        >>> from unisync.errors import unknown
        >>> print(unknown("backend", "jaks", ["jax", "numpy"]))
        `backend` must be one of 'jax', 'numpy', got 'jaks'. Try: 'jax'.
    """
    names = sorted(known)
    listed = ", ".join(repr(str(name)) for name in names)
    return UnknownNameError(f"`{what}` must be one of {listed}, got {word!r}. Try: {nearest(str(word), names)!r}.")

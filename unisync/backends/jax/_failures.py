"""What jax raises when a collective with other processes fails, as the error that names the rank.

jax's arrays are promises: their errors appear where they are read, which may be anywhere.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from unisync.errors import CollectiveError

if TYPE_CHECKING:
    from unisync.backends._channel import Channel

_channel: Channel | None = None  # of this process's launched world
failing = False  # whether a collective has failed, and is being explained


def watch(channel: Channel) -> None:
    """Explain errors by a channel from now on, also those that nobody catches."""
    global _channel
    if _channel is None:
        before = sys.excepthook

        def explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            if (known := explained(error)) is not error:
                known.__cause__ = error
                kind, error = type(known), known
            before(kind, error, trace)

        sys.excepthook = explain
    _channel = channel


def explained(error: BaseException, label: str = "a step") -> BaseException:
    """The error that names the rank, if this is one of a collective; else the error itself."""
    global failing
    if _channel is None or isinstance(error, CollectiveError) or not _of_collective(error):
        return error
    failing = True
    _channel.waiting("")  # it was in the step that it started last
    return _channel.explain(error, label)


def to_host(x: Any) -> np.ndarray:
    """A jax array as NumPy's, whose memory it may share."""
    try:
        return np.asarray(x)
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        raise_explained(error)
        raise


def ready(x: Any) -> Any:
    """A tree of jax arrays once they are computed."""
    try:
        return jax.block_until_ready(x)
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        raise_explained(error)
        raise


def raise_explained(error: Exception, label: str = "a step") -> None:
    """Raise the error that names the rank, if `error` is one of a collective."""
    known = explained(error, label)
    if known is not error:
        raise known from error


def _of_collective(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, (jax.errors.JaxRuntimeError, ValueError)) and (
        "Gloo" in text or "gloo" in text or "NCCL" in text or "coordination service" in text
    )

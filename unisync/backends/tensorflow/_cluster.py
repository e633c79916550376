"""The cluster of a launched world: each process's TensorFlow server, and the strategy that owns it."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from unisync import _config
from unisync.backends._channel import Verdict
from unisync.backends._launched import Member
from unisync.errors import StateError, unknown

try:
    from tensorflow.python.eager.context import context as _runtime
except ImportError:
    _runtime: Any = None  # a process that waits for a dead one is then ended by the channel

_ABORTED = 10  # the code of tf.errors.AbortedError

_strategy: tf.distribute.MultiWorkerMirroredStrategy | None = None


def strategy(member: Member, device: Any, timeout_s: float) -> tf.distribute.MultiWorkerMirroredStrategy:
    """The strategy of all processes, made once: TensorFlow joins one cluster in a process's life.

    Args:
        member: this process's place.
        device: "cpu", "gpu" ("cuda"), or None for an accelerator where there is one.
        timeout_s: how long to wait for the others.

    Raises:
        StateError: TensorFlow has started already, or there are fewer accelerators than processes.
    """
    global _strategy
    if _strategy is None:
        _choose(member, device)
        _strategy = _joined(member, timeout_s)
        member.channel.on_verdict(_abort)
    elif device is not None and _kind(device) not in _strategy.extended.worker_devices[0]:
        raise StateError(
            f"`device` must be the same for all worlds of a process, got {device!r} after "
            f"{_strategy.extended.worker_devices[0]}. Try: a script of its own."
        )
    return _strategy


def _kind(device: Any) -> str:
    kinds = {"cpu": "CPU", "gpu": "GPU", "cuda": "GPU"}
    if str(device).lower() not in kinds:
        raise unknown("device", device, kinds)
    return kinds[str(device).lower()]


def _choose(member: Member, device: Any) -> None:
    """Leave this process one accelerator, or none."""
    found = tf.config.list_physical_devices("GPU")
    kind = _kind(device) if device is not None else "GPU" if found else "CPU"
    if kind == "GPU" and member.local_rank >= len(found):
        raise StateError(
            f"`device` must have a GPU for each of the {member.local_size} processes of this machine, got "
            f'{len(found)}. Try: fewer processes, or device="cpu".'
        )
    if found:
        try:
            tf.config.set_visible_devices([found[member.local_rank]] if kind == "GPU" else [], "GPU")
        except RuntimeError as error:
            raise _too_late() from error


def _joined(member: Member, timeout_s: float) -> tf.distribute.MultiWorkerMirroredStrategy:
    # The port stays taken until TensorFlow's server, which may share it, listens there.
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("", 0))
        own = f"{member.address}:{reserved.getsockname()[1]}"
        everyone = range(member.size)
        workers = member.channel.exchange("/tensorflow/cluster", own, everyone, timeout_s)
        cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": member.rank}}
        try:
            variables = {"TF_CONFIG": json.dumps(cluster), "TF_GRPC_REUSE_PORT": "1"}
            with _config.temporarily(variables), _own_sigterm():
                return tf.distribute.MultiWorkerMirroredStrategy()
        except RuntimeError as error:
            if "startup" not in str(error):
                raise
            raise _too_late() from error


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep SIGTERM as it is: TensorFlow's preemption notifier takes it, and the process then survives it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    yield
    if before is not None:  # one that Python did not install cannot be put back
        signal.signal(signal.SIGTERM, before)


def _too_late() -> StateError:
    return StateError(
        "us.init_distributed must be called before TensorFlow makes its first tensor in a process of a launched world, "
        "got a call after it. Try: call it first in the script."
    )


def _abort(verdict: Verdict) -> None:
    """Make the collectives of this process fail, of which one may be waiting for a process that is gone."""
    if _runtime is not None:
        # Private: where a release lacks it, the channel ends the process.
        with contextlib.suppress(AttributeError):
            _runtime().abort_collective_ops(_ABORTED, verdict.text.partition("\n")[0])

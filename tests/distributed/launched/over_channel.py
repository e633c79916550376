"""An engine that carries everything over the channel, for NumPy: slow, to test what all launched worlds share."""

from __future__ import annotations

import itertools
import sys
import types

import numpy as np

from unisync import _dispatch, backends
from unisync.backends._launched import LaunchedEngine

ENGINES = ("channel",)
_REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


class ChannelEngine(LaunchedEngine):
    name = "channel"
    uneven = True

    def __init__(self, member, device, timeout_s):
        super().__init__(_dispatch.load("numpy"), member, device, timeout_s)
        self._count = itertools.count()

    def _all(self, x, groups=None):
        group = self.group(groups)
        x = np.asarray(x)
        parts = self.channel.exchange(f"data/{next(self._count)}", x, group, self.timeout_s)
        if any(part.ndim != x.ndim or part.shape[1:] != x.shape[1:] for part in parts):
            raise self.channel.explain(None, "a collective of different shapes")
        return parts, group

    def all_reduce(self, x, op, groups):
        parts, _ = self._all(x, groups)
        try:
            return _REDUCE[op].reduce(parts, axis=0).astype(parts[0].dtype)
        except ValueError as error:
            raise self.channel.explain(error, "all_reduce") from error

    def all_gather(self, x, groups):
        return np.concatenate(self._all(x, groups)[0])

    def reduce_scatter(self, x, groups):
        parts, group = self._all(x, groups)
        return np.split(sum(parts), len(group))[group.index(self.rank)]

    def broadcast(self, x, root, groups):
        return self._all(x, groups)[0][root]

    def all_to_all(self, x, groups):
        parts, group = self._all(x, groups)
        return np.concatenate([np.split(p, len(group))[group.index(self.rank)] for p in parts])

    def permute(self, x, pairs):
        parts, _ = self._all(x)
        return next((parts[s] for s, t in pairs if t == self.rank), np.zeros_like(x))

    def barrier(self):
        self.channel.barrier(f"barrier/{next(self._count)}", self.timeout_s)


def make_engine(name, member, device, timeout_s):
    return ChannelEngine(member, device or "cpu", timeout_s)


def install() -> None:
    """Make it NumPy's engine of launched worlds."""
    module = types.ModuleType("unisync.backends.numpy.launched")
    module.ENGINES, module.make_engine = ENGINES, make_engine
    sys.modules[module.__name__] = module
    backends.numpy.launched = module  # type: ignore[attr-defined]

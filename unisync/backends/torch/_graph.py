"""Collectives as operations of torch's graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def traced(x: torch.Tensor) -> bool:
    """Whether a gradient is being taken through x."""
    return x.requires_grad and torch.is_grad_enabled()


def differentiable(x: Any, forward: Callable[[Any], Any], backward: Callable[[Any], Any] | None) -> Any:
    """forward(x), whose derivative is `backward` of the cotangent; None: to take one is an error."""
    if not traced(x):
        return forward(x)
    return _Collective.apply(x, forward, backward)


class _Collective(torch.autograd.Function):
    """A collective as an operation of torch's graph."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, forward: Callable[[Any], Any], backward: Callable[[Any], Any] | None) -> Any:
        ctx.pullback = backward
        return forward(x)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        if ctx.pullback is None:
            raise NotImplementedError(
                "this collective has no derivative, got one in a gradient. Try: op='sum' or 'mean', or "
                "us.stop_gradient(x)."
            )
        return ctx.pullback(cotangents[0].contiguous()), None, None

"""What `us.f(x)` costs over `us.namespace(x).f(x)` (dispatch), and that over the framework's own call (conformance).

The backend's function is replaced by one that does nothing, so that only the dispatch is timed: the difference of two
calls of some 50 ns each, which no kernel's noise covers.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import unisync as us
from unisync import _dispatch
from unisync.backends import installed

LIMIT_NS = 150
_REPEATS, _NUMBER = 1_000, 2_000  # short stretches: on a busy machine the least of long ones is still disturbed


def best_ns(statement: str, **names: Any) -> float:
    """The least time per execution over several repeats, in nanoseconds."""
    return min(timeit.repeat(statement, globals=names, number=_NUMBER, repeat=_REPEATS)) / _NUMBER * 1e9


def dispatch_overhead_ns(x: Any) -> dict[str, float]:
    """Nanoseconds that the public function adds to a call of the backend's, by kind of function."""
    real = _dispatch.of[type(x)]
    nothing = ModuleType("nothing")
    nothing.exp = lambda x, /: x  # type: ignore[attr-defined]
    nothing.add = lambda x1, x2, /: x1  # type: ignore[attr-defined]
    nothing.sum = lambda x, /, *, axis=None, dtype=None, keepdims=False: x  # type: ignore[attr-defined]
    _dispatch.of[type(x)] = nothing
    try:
        return {
            "unary": best_ns("f(x)", f=us.exp, x=x) - best_ns("ns.exp(x)", ns=nothing, x=x),
            "binary": best_ns("f(x, x)", f=us.add, x=x) - best_ns("ns.add(x, x)", ns=nothing, x=x),
            "keyword": best_ns("f(x, axis=0)", f=us.sum, x=x) - best_ns("ns.sum(x, axis=0)", ns=nothing, x=x),
        }
    finally:
        _dispatch.of[type(x)] = real


def native_calls(name: str) -> dict[str, Callable[..., Any]]:
    """The framework's own functions of the same three kinds."""
    if name == "numpy":
        return {"unary": np.exp, "binary": np.add, "keyword": np.sum}
    if name == "torch":
        import torch

        return {"unary": torch.exp, "binary": torch.add, "keyword": lambda x, axis: torch.sum(x, dim=axis)}
    if name == "jax":
        import jax.numpy as jnp

        return {"unary": jnp.exp, "binary": jnp.add, "keyword": jnp.sum}
    import tensorflow as tf

    return {"unary": tf.exp, "binary": tf.add, "keyword": tf.reduce_sum}


def conformance_overhead_ns(name: str, x: Any) -> dict[str, tuple[float, float]]:
    """(native, backend's own) nanoseconds per call on four float32 numbers, by kind of function."""
    ns, native = us.namespace(x), native_calls(name)
    global _NUMBER
    kept, _NUMBER = _NUMBER, 100
    try:
        return {
            "unary": (best_ns("f(x)", f=native["unary"], x=x), best_ns("f(x)", f=ns.exp, x=x)),
            "binary": (best_ns("f(x, x)", f=native["binary"], x=x), best_ns("f(x, x)", f=ns.add, x=x)),
            "keyword": (
                best_ns("f(x, axis=0)", f=native["keyword"], x=x),
                best_ns("f(x, axis=0)", f=ns.sum, x=x),
            ),
        }
    finally:
        _NUMBER = kept


def main() -> None:
    """Print both tables for every installed backend."""
    print("\n## Dispatch\n\n| backend | kind | dispatch ns | native ns | backend's function ns | over native ns |")
    print("|---|---|--:|--:|--:|--:|")
    for name in _dispatch.BACKENDS:
        if not installed(name):
            continue
        with us.backend(name):
            x = us.ones(4)
        dispatch, own = dispatch_overhead_ns(x), conformance_overhead_ns(name, x)
        for kind, ns in dispatch.items():
            native, ours = own[kind]
            print(f"| {name} | {kind} | {ns:.0f} | {native:.0f} | {ours:.0f} | {ours - native:+.0f} |", flush=True)


if __name__ == "__main__":
    main()

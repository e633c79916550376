"""Arithmetic on lists of arrays: torch's multi-tensor (foreach) kernels.

Where dtypes differ (bfloat16 parameters with float32 updates), the kernels promote, and results are cast back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from unisync.backends.torch._dtypes import NUMBERS as _NUMBERS

_kernels: Any = torch  # the foreach functions are not in its type stubs
_dtype = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]
_is_cpu = torch.Tensor.is_cpu.__get__  # type: ignore[attr-defined]
_is_recorded = torch.Tensor.requires_grad.__get__  # type: ignore[attr-defined]


def multi_add(
    xs: Sequence[Any], ys: Sequence[Any], /, *, alpha: Any = 1.0, reuse: Sequence[Any] | None = None
) -> list[Any]:
    if not xs:
        return []
    if type(alpha) not in _NUMBERS:
        return _cast(_kernels._foreach_add(xs, _kernels._foreach_mul(ys, alpha)), xs)
    if reuse is None or not _writable(reuse, xs, ys):
        return _cast(_kernels._foreach_add(xs, ys, alpha=alpha), xs)
    if reuse is xs:
        _kernels._foreach_add_(xs, ys, alpha=alpha)
    elif all(map(_is_cpu, ys)):  # the list kernels, which are loops there, would need a second pass
        for x, y in zip(xs, ys, strict=True):
            torch.add(x, y, alpha=alpha, out=y)
    else:
        _kernels._foreach_mul_(ys, alpha)
        _kernels._foreach_add_(ys, xs)
    return list(reuse)


def _writable(xs: Sequence[Any], *others: Sequence[Any]) -> bool:
    """Whether results may be written over xs: autograd does not record, and they are of the same dtypes."""
    dtypes = list(map(_dtype, xs))
    return all(list(map(_dtype, ys)) == dtypes and not any(map(_is_recorded, ys)) for ys in others)


def _cast(results: Any, xs: Sequence[Any]) -> list[Any]:
    """The results in the dtypes of xs."""
    if list(map(_dtype, results)) == list(map(_dtype, xs)):
        return list(results)
    return [r.to(x.dtype) for r, x in zip(results, xs, strict=True)]


def multi_addcdiv(
    xs: Sequence[Any], ys: Sequence[Any], zs: Sequence[Any], /, *, value: Any = 1.0, reuse: Sequence[Any] | None = None
) -> list[Any]:
    if not xs:
        return []
    if type(value) in _NUMBERS and _alike(xs, ys, zs):
        if reuse is None or not _writable(reuse, xs, ys, zs):
            return list(_kernels._foreach_addcdiv(xs, ys, zs, value=value))
        _kernels._foreach_addcdiv_(reuse, ys, zs, value=value)
        return list(reuse)
    return multi_add(xs, _kernels._foreach_div(ys, zs), alpha=value)


def multi_addcmul(
    xs: Sequence[Any], ys: Sequence[Any], zs: Sequence[Any], /, *, value: Any = 1.0, reuse: Sequence[Any] | None = None
) -> list[Any]:
    if not xs:
        return []
    if type(value) in _NUMBERS and _alike(xs, ys, zs):
        if reuse is None or not _writable(reuse, xs, ys, zs):
            return list(_kernels._foreach_addcmul(xs, ys, zs, value=value))
        _kernels._foreach_addcmul_(reuse, ys, zs, value=value)
        return list(reuse)
    return multi_add(xs, _kernels._foreach_mul(ys, zs), alpha=value)


def _alike(xs: Sequence[Any], *others: Sequence[Any]) -> bool:
    """Whether the arrays at one place are of one dtype, as addcdiv, addcmul and lerp require."""
    dtypes = list(map(_dtype, xs))
    return all(list(map(_dtype, ys)) == dtypes for ys in others)


def multi_all_finite(xs: Sequence[Any], /) -> Any:
    if _on_cpu(xs) and _finite_sum(xs):  # many times faster there; what overflows in sums alone is looked at below
        return torch.scalar_tensor(True, dtype=torch.bool)
    xs = [x for x in xs if x.is_floating_point() or x.is_complex()]
    if not xs:
        return torch.tensor(True)
    try:  # the largest magnitude of an array is finite if and only if all are
        largest = _kernels._foreach_norm(xs, float("inf"))
    except RuntimeError:  # an array without elements has none
        xs = [x for x in xs if x.numel()]
        return multi_all_finite(xs) if xs else torch.tensor(True)
    return torch.stack(largest).isfinite().all()


def _on_cpu(xs: Sequence[Any]) -> bool:
    """Whether a flag may be read at once: it costs nothing on a CPU, and would break a graph that is being compiled."""
    return not torch.compiler.is_compiling() and all(map(_is_cpu, xs))


def _finite_sum(xs: Sequence[Any]) -> bool:
    total = 0.0
    for x in xs:
        total += x.sum().item() if x.ndim else x.item()
    return total - total == 0  # NaN for NaN and infinities, of which none can make another disappear


def multi_divide(xs: Sequence[Any], ys: Sequence[Any], /) -> list[Any]:
    return _cast(_kernels._foreach_div(xs, ys), xs) if xs else []


def multi_lerp(
    xs: Sequence[Any], ys: Sequence[Any], /, *, weight: Any, reuse: Sequence[Any] | None = None
) -> list[Any]:
    if not xs:
        return []
    if type(weight) in _NUMBERS and _alike(xs, ys):
        if reuse is None or not _writable(reuse, xs, ys):
            return list(_kernels._foreach_lerp(xs, ys, weight))
        _kernels._foreach_lerp_(reuse, ys, weight)
        return list(reuse)
    return multi_add(xs, _kernels._foreach_sub(ys, xs), alpha=weight)


def multi_mean_square(
    xs: Sequence[Any], ys: Sequence[Any], /, *, decay: float, reuse: Sequence[Any] | None = None
) -> list[Any]:
    if not xs:
        return []
    if not _writable(xs, ys):
        return multi_add(_kernels._foreach_mul(xs, decay), _kernels._foreach_mul(ys, ys), alpha=1.0 - decay)
    means = reuse
    if means is None:
        means = _kernels._foreach_mul(xs, decay)
    else:
        _kernels._foreach_mul_(means, decay)
    _kernels._foreach_addcmul_(means, ys, ys, value=1.0 - decay)
    return list(means)


def _recorded(xs: Sequence[Any]) -> bool:
    """Whether autograd records what is done with the arrays; it may need what an in-place kernel would overwrite."""
    return any(map(_is_recorded, xs))


def multi_multiply(xs: Sequence[Any], ys: Sequence[Any], /) -> list[Any]:
    return _cast(_kernels._foreach_mul(xs, ys), xs) if xs else []


def multi_norm(xs: Sequence[Any], /) -> list[Any]:
    return list(_kernels._foreach_norm(xs)) if xs else []


def multi_scale(xs: Sequence[Any], scalar: Any, /) -> list[Any]:
    return _cast(_kernels._foreach_mul(xs, scalar), xs) if xs else []


def multi_shift(xs: Sequence[Any], scalar: Any, /) -> list[Any]:
    return _cast(_kernels._foreach_add(xs, scalar), xs) if xs else []


def multi_sign(xs: Sequence[Any], /) -> list[Any]:
    return list(_kernels._foreach_sign(xs)) if xs else []


def multi_sqrt(xs: Sequence[Any], /, *, shift: Any = 0.0) -> list[Any]:
    if not xs:
        return []
    roots = _kernels._foreach_sqrt(xs)
    if type(shift) in _NUMBERS and shift == 0:
        return list(roots)
    if _recorded(xs):
        return list(_kernels._foreach_add(roots, shift))
    _kernels._foreach_add_(roots, shift)
    return list(roots)


def multi_where(condition: Any, xs: Sequence[Any], ys: Sequence[Any], /) -> list[Any]:
    if isinstance(condition, bool):
        return list(xs if condition else ys)
    return [torch.where(condition, x, y) for x, y in zip(xs, ys, strict=True)]

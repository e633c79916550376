"""The operations of neural networks: torch.nn.functional, with the channel last by default.

An NHWC array is given to torch as the NCHW view of the same memory, which torch calls the channels_last format and
computes in without a copy; the result comes back as the NHWC view.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend as _SDPBackend, sdpa_kernel as _sdpa_kernel

from unisync._types import Axis, DataFormat, Padding, SequenceFormat
from unisync.backends.torch._depth import depth as _depth
from unisync.backends.torch._dtypes import native as _native
from unisync.errors import unknown as _unknown

relu = torch.relu
sigmoid = torch.sigmoid


def elu(x: torch.Tensor, /, *, alpha: float = 1.0) -> torch.Tensor:
    return F.elu(x, alpha)


def gelu(x: torch.Tensor, /, *, approximate: bool = False) -> torch.Tensor:
    return F.gelu(x, approximate="tanh" if approximate else "none")


def leaky_relu(x: torch.Tensor, /, *, negative_slope: float = 0.01) -> torch.Tensor:
    return F.leaky_relu(x, negative_slope)


def silu(x: torch.Tensor, /) -> torch.Tensor:
    return F.silu(x)


def softplus(x: torch.Tensor, /) -> torch.Tensor:
    # torch becomes linear above a threshold: at its default, 20, float64 would lose half its digits
    return F.softplus(x, 1.0, 40.0)


def softmax(x: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    return torch.softmax(x, axis)


def log_softmax(x: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    return torch.log_softmax(x, axis)


def logsumexp(x: torch.Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> torch.Tensor:
    if axis == ():
        return x.clone()
    return torch.logsumexp(x, tuple(range(x.ndim)) if axis is None else axis, keepdims)


def one_hot(x: torch.Tensor, /, num_classes: int, *, dtype: Any = None) -> torch.Tensor:
    classes = torch.arange(num_classes, dtype=x.dtype, device=x.device)
    return (x.unsqueeze(-1) == classes).to(torch.float32 if dtype is None else _native(dtype))


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, /) -> torch.Tensor:
    return F.linear(x, weight, bias)


def conv1d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    /,
    *,
    stride: int = 1,
    padding: Padding = 0,
    dilation: int = 1,
    groups: int = 1,
    data_format: SequenceFormat = "NLC",
) -> torch.Tensor:
    last = _channel_last(data_format, ("NLC", "NCL"))
    if last:
        x = x.permute(0, 2, 1)
    if not isinstance(padding, int):
        x, padding = _padded(x, weight, padding, (stride,), (dilation,))
    result = F.conv1d(x, weight, bias, stride, padding, dilation, groups)
    return result.permute(0, 2, 1) if last else result


def conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    /,
    *,
    stride: int | tuple[int, int] = 1,
    padding: Padding = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    data_format: DataFormat = "NHWC",
) -> torch.Tensor:
    last = _channel_last(data_format, ("NHWC", "NCHW"))
    if last:
        x = x.permute(0, 3, 1, 2)
    if not isinstance(padding, int):
        x, padding = _padded(x, weight, padding, _two(stride), _two(dilation))
    result = F.conv2d(x, weight, bias, stride, padding, dilation, groups)
    return result.permute(0, 2, 3, 1) if last else result


def _channel_last(data_format: str, known: tuple[str, str]) -> bool:
    if data_format not in known:
        raise _unknown("data_format", data_format, known)
    return data_format == known[0]


def _two(number: int | tuple[int, int]) -> tuple[int, int]:
    return (number, number) if isinstance(number, int) else number


def _padded(
    x: torch.Tensor, weight: torch.Tensor, padding: Any, stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[torch.Tensor, Any]:
    """x and the padding that is left for torch, which has "same" only for a stride of 1
    (https://github.com/pytorch/pytorch/issues/3867)."""
    if not isinstance(padding, str):
        return x, tuple(padding)
    if padding == "valid":
        return x, 0
    if padding != "same":
        raise _unknown("padding", padding, ("valid", "same"))
    before, after = [], []
    for length, size, step, spread in zip(x.shape[2:], weight.shape[2:], stride, dilation, strict=True):
        total = max((-(-length // step) - 1) * step + spread * (size - 1) + 1 - length, 0)
        before.append(total // 2)
        after.append(total - total // 2)
    if before == after:
        return x, tuple(before)
    last_first = [pad for pair in zip(reversed(before), reversed(after), strict=True) for pad in pair]
    return F.pad(x, last_first), 0


def avg_pool2d(
    x: torch.Tensor,
    /,
    window: int | tuple[int, int],
    *,
    stride: int | tuple[int, int] | None = None,
    padding: int | tuple[int, int] = 0,
    data_format: DataFormat = "NHWC",
) -> torch.Tensor:
    if not _channel_last(data_format, ("NHWC", "NCHW")):
        return F.avg_pool2d(x, window, stride, padding)
    return F.avg_pool2d(x.permute(0, 3, 1, 2), window, stride, padding).permute(0, 2, 3, 1)


def max_pool2d(
    x: torch.Tensor,
    /,
    window: int | tuple[int, int],
    *,
    stride: int | tuple[int, int] | None = None,
    padding: int | tuple[int, int] = 0,
    data_format: DataFormat = "NHWC",
) -> torch.Tensor:
    if not _channel_last(data_format, ("NHWC", "NCHW")):
        return torch.max_pool2d(x, window, stride or (), padding)
    return torch.max_pool2d(x.permute(0, 3, 1, 2), window, stride or (), padding).permute(0, 2, 3, 1)


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    /,
    *,
    ndim: int = 1,
    eps: float = 1e-5,
) -> torch.Tensor:
    return torch.layer_norm(x, x.shape[-ndim:], weight, bias, eps)


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None = None, /, *, eps: float | None = None) -> torch.Tensor:
    return torch.rms_norm(x, x.shape[-1:], weight, eps)


def group_norm(
    x: torch.Tensor,
    groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    /,
    *,
    eps: float = 1e-5,
    data_format: str = "NHWC",
) -> torch.Tensor:
    if data_format.startswith("NC"):
        return F.group_norm(x, groups, weight, bias, eps)
    return F.group_norm(x.movedim(-1, 1), groups, weight, bias, eps).movedim(1, -1)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    /,
    *,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    if mask is not None and mask.dtype is not torch.bool and mask.dtype is not query.dtype:
        mask = mask.to(query.dtype)
    if _depth.gradients > 1:
        # the fused kernels have no second derivative: https://github.com/pytorch/pytorch/issues/116350
        with _sdpa_kernel(_SDPBackend.MATH):
            return F.scaled_dot_product_attention(query, key, value, mask, 0.0, causal, scale=scale)
    return F.scaled_dot_product_attention(query, key, value, mask, 0.0, causal, scale=scale)


def embedding(weight: torch.Tensor, indices: torch.Tensor, /) -> torch.Tensor:
    return torch.embedding(weight, _as_index(indices))


def _as_index(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype is torch.int64 else x.to(torch.int64)


def softmax_cross_entropy_with_integer_labels(
    logits: torch.Tensor, labels: torch.Tensor, /, *, mean: bool = False
) -> torch.Tensor:
    labels = _as_index(labels)
    if logits.ndim > 2:
        values = softmax_cross_entropy_with_integer_labels(logits.flatten(0, -2), labels.flatten(), mean=mean)
        return values if mean else values.reshape(labels.shape)
    return F.cross_entropy(logits, labels, reduction="mean" if mean else "none")

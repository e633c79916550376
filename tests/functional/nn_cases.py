"""The cases of the nn primitives: one row each, used for values against torch and for gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import unisync as us


@dataclass(frozen=True, eq=False)
class Case:
    """us.nn.<name>(x, *rest, *weights, **kwargs), and torch's version of it as a function of torch tensors."""

    name: str
    arrays: tuple[np.ndarray, ...]
    torch: Callable[..., Any]
    rest: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    differentiable: int | None = None  # how many of the arrays, from the first; None for all

    def call(self, *arrays: Any) -> Any:
        """The value, from arrays of the backend; `rest` stands after the first."""
        kwargs = {k: us.asarray(v, like=arrays[0]) if isinstance(v, np.ndarray) else v for k, v in self.kwargs.items()}
        return getattr(us.nn, self.name)(arrays[0], *self.rest, *arrays[1:], **kwargs)

    def __str__(self) -> str:
        options = [k if isinstance(v, np.ndarray) else f"{k}={v}" for k, v in self.kwargs.items()]
        return "-".join([self.name, *options]).replace(" ", "")


_rng = np.random.default_rng(7)


def _x(*shape: int) -> np.ndarray:
    return _rng.normal(size=shape)


def _images(f: Callable[..., Any], data_format: str) -> Callable[..., Any]:
    """A torch function of channels-first arrays, for arrays of the data format."""
    if data_format in ("NCHW", "NCL"):
        return f
    return lambda x, *rest: f(x.movedim(-1, 1), *rest).movedim(1, -1)


def _conv(
    ndim: int, size: tuple[int, ...], kernel: tuple[int, ...], data_format: str, out=4, channels=4, **kwargs: Any
):
    import torch.nn.functional as tf

    groups = kwargs.get("groups", 1)
    shape = (2, *size, channels) if data_format[-1] == "C" else (2, channels, *size)
    arrays = (_x(*shape), _x(out, channels // groups, *kernel), _x(out))

    def with_torch(x, weight, bias):
        options = dict(kwargs)
        if options.get("padding") == "same":  # as the specification: ⌈length / stride⌉, the odd zero at the end
            options["padding"] = 0
            stride, dilation = (np.broadcast_to(kwargs.get(k, 1), ndim) for k in ("stride", "dilation"))
            pads = []
            for length, k, s, d in reversed(list(zip(x.shape[2:], kernel, stride, dilation, strict=True))):
                total = max((-(-length // s) - 1) * s + (k - 1) * d + 1 - length, 0)
                pads += [int(total // 2), int(total - total // 2)]
            x = tf.pad(x, pads)
        return (tf.conv1d if ndim == 1 else tf.conv2d)(x, weight, bias, **options)

    f = _images(with_torch, data_format)
    return Case(f"conv{ndim}d", arrays, f, kwargs={**kwargs, "data_format": data_format})


def _pool(name: str, size: tuple[int, int], window: Any, data_format: str, **kwargs: Any) -> Case:
    import torch.nn.functional as tf

    shape = (2, *size, 3) if data_format == "NHWC" else (2, 3, *size)
    pool = getattr(tf, name)
    f = _images(lambda x: pool(x, window, **kwargs), data_format)
    return Case(name, (_x(*shape),), f, (window,), {**kwargs, "data_format": data_format})


def _attention(mask: np.ndarray | None = None, **kwargs: Any) -> Case:
    import torch
    import torch.nn.functional as tf

    def with_torch(q, k, v):
        tensor = None if mask is None else torch.asarray(mask, dtype=None if mask.dtype == bool else q.dtype)
        return tf.scaled_dot_product_attention(
            q, k, v, attn_mask=tensor, is_causal=kwargs.get("causal", False), scale=kwargs.get("scale")
        )

    length = 4 if kwargs.get("causal") else 5
    arrays = (_x(2, 2, 4, 3), _x(2, 2, length, 3), _x(2, 2, length, 2))
    if mask is not None:
        kwargs = {**kwargs, "mask": mask}
    return Case("scaled_dot_product_attention", arrays, with_torch, kwargs=kwargs)


def _group_norm(data_format: str, *shape: int) -> Case:
    import torch.nn.functional as tf

    f = _images(lambda x, w, b: tf.group_norm(x, 2, w, b), data_format)
    arrays = (_x(*shape), _x(4), _x(4))
    return Case("group_norm", arrays, f, (2,), {"data_format": data_format})


MASK = np.asarray(_rng.integers(0, 2, (4, 5)), dtype=bool) | (np.arange(5) == 0)


def cases() -> list[Case]:
    """All cases; torch is the outside oracle, and is imported here."""
    import torch
    import torch.nn.functional as tf

    x = _x(3, 4)
    labels = np.asarray([2, 0, 3])
    return [
        Case("elu", (x,), tf.elu),
        Case("elu", (x,), lambda x: tf.elu(x, 0.5), kwargs={"alpha": 0.5}),
        Case("gelu", (x,), tf.gelu),
        Case("gelu", (x,), lambda x: tf.gelu(x, approximate="tanh"), kwargs={"approximate": True}),
        Case("leaky_relu", (x,), tf.leaky_relu),
        Case("leaky_relu", (x,), lambda x: tf.leaky_relu(x, 0.2), kwargs={"negative_slope": 0.2}),
        Case("relu", (x,), tf.relu),
        Case("sigmoid", (x * 5,), tf.sigmoid),
        Case("silu", (x,), tf.silu),
        Case("softplus", (x,), tf.softplus),
        Case("tanh", (x,), torch.tanh),
        Case("softmax", (x * 9,), lambda x: tf.softmax(x, -1)),
        Case("softmax", (x,), lambda x: tf.softmax(x, 0), kwargs={"axis": 0}),
        Case("log_softmax", (x * 9,), lambda x: tf.log_softmax(x, -1)),
        Case("log_softmax", (x,), lambda x: tf.log_softmax(x, 0), kwargs={"axis": 0}),
        Case("logsumexp", (x,), lambda x: torch.logsumexp(x, (0, 1))),
        Case("logsumexp", (x,), lambda x: torch.logsumexp(x, 1, keepdim=True), kwargs={"axis": 1, "keepdims": True}),
        Case("linear", (x, _x(2, 4), _x(2)), tf.linear),
        Case("linear", (_x(2, 3, 4), _x(2, 4)), tf.linear),
        Case("linear", (_x(4), _x(2, 4), _x(2)), tf.linear),
        _conv(1, (7,), (3,), "NLC"),
        _conv(1, (7,), (3,), "NLC", stride=2, padding=1),
        _conv(1, (7,), (2,), "NLC", stride=2, padding="same"),
        _conv(1, (7,), (3,), "NCL", dilation=2, groups=2),
        _conv(1, (6,), (3,), "NCL", padding="same", dilation=2),
        _conv(2, (5, 6), (3, 2), "NHWC"),
        _conv(2, (5, 6), (3, 2), "NHWC", stride=(2, 1), padding=(1, 0)),
        _conv(2, (5, 6), (3, 3), "NHWC", stride=2, padding="same"),
        _conv(2, (5, 6), (2, 3), "NHWC", padding="same", dilation=(2, 1)),
        _conv(2, (5, 5), (2, 2), "NHWC", dilation=2, padding=1, groups=2),
        _conv(2, (4, 4), (3, 3), "NHWC", groups=4, padding="valid"),
        _conv(2, (5, 6), (3, 2), "NCHW", stride=2, padding=1),
        _conv(2, (4, 5), (1, 1), "NCHW", groups=2, out=6),
        _pool("avg_pool2d", (5, 6), 2, "NHWC"),
        _pool("avg_pool2d", (5, 6), (3, 2), "NHWC", stride=2, padding=1),
        _pool("avg_pool2d", (5, 6), 2, "NCHW", stride=(1, 2)),
        _pool("max_pool2d", (5, 6), 2, "NHWC"),
        _pool("max_pool2d", (5, 6), (3, 2), "NHWC", stride=2, padding=1),
        _pool("max_pool2d", (5, 6), 3, "NCHW", stride=(1, 2), padding=(1, 0)),
        Case("layer_norm", (x,), lambda x: tf.layer_norm(x, (4,))),
        Case("layer_norm", (_x(2, 3, 4), _x(4), _x(4)), lambda x, w, b: tf.layer_norm(x, (4,), w, b)),
        Case(
            "layer_norm",
            (_x(2, 3, 4), _x(3, 4), _x(3, 4)),
            lambda x, w, b: tf.layer_norm(x, (3, 4), w, b, 1e-3),
            kwargs={"ndim": 2, "eps": 1e-3},
        ),
        Case("rms_norm", (x,), lambda x: tf.rms_norm(x, (4,))),
        Case("rms_norm", (x, _x(4)), lambda x, w: tf.rms_norm(x, (4,), w, 1e-3), kwargs={"eps": 1e-3}),
        _group_norm("NHWC", 2, 3, 2, 4),
        _group_norm("NCHW", 2, 4, 3, 2),
        _group_norm("NLC", 2, 3, 4),
        _attention(),
        _attention(causal=True),
        _attention(scale=0.3),
        _attention(mask=MASK),
        _attention(mask=_x(2, 1, 4, 5)),
        Case("embedding", (_x(5, 3), np.asarray([[4, 0], [4, 1]])), lambda w, i: tf.embedding(i, w), differentiable=1),
        Case(
            "softmax_cross_entropy_with_integer_labels",
            (x * 5, labels),
            lambda x, y: tf.cross_entropy(x, y, reduction="none"),
            differentiable=1,
        ),
        Case(
            "softmax_cross_entropy_with_integer_labels",
            (_x(2, 3, 4), np.asarray([[0, 1, 2], [3, 3, 0]])),
            lambda x, y: tf.cross_entropy(x.movedim(-1, 1), y, reduction="none"),
            differentiable=1,
        ),
        Case(
            "softmax_cross_entropy_with_integer_labels",
            (_x(2, 3, 4), np.asarray([[0, 1, 2], [3, 3, 0]])),
            lambda x, y: tf.cross_entropy(x.movedim(-1, 1), y),
            kwargs={"mean": True},
            differentiable=1,
        ),
    ]

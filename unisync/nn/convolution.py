"""Convolution and pooling layers. Arguments stand in torch's order; data is NHWC or NLC by default."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

from unisync._types import DataFormat, Padding, SequenceFormat
from unisync.errors import ArgumentError, unknown
from unisync.functional import nn as primitives
from unisync.functional.random import Key
from unisync.nn import _checks, initializers
from unisync.nn.layer import Layer, Params


@final
@dataclass(frozen=True, repr=False)
class Conv1d(Layer):
    """1-d convolution (cross-correlation, as in all frameworks).

    Params: weight (out, in / groups, K) and bias (out,), both first drawn from U(−1/√n, 1/√n) with n = in / groups · K.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: the length K of the window.
        stride: the step of the window.
        padding: zeros on both sides, "valid" for none, or "same" for an output of ⌈length / stride⌉.
        dilation: the distance of the window's elements.
        groups: into how many independent convolutions the channels are split.
        bias: whether to add a bias.
        data_format: "NLC" or "NCL".

    Example:
        >>> layer = us.nn.Conv1d(3, 5, 2)
        >>> params, _ = layer.init(0)
        >>> layer(params, us.ones((1, 8, 3))).shape
        (1, 7, 5)
    """

    in_channels: int
    out_channels: int
    kernel_size: int | tuple[int]
    stride: int = 1
    padding: Padding = 0
    dilation: int = 1
    groups: int = 1
    bias: bool = True
    data_format: SequenceFormat = "NLC"

    def __post_init__(self) -> None:
        _check_convolution(self, 1)

    def init_params(self, key: Key) -> Params:
        return _convolution_params(self, key, 1)

    def forward(self, params: Params, x: Any) -> Any:
        _check_input(self, x, self.in_channels, _pair(self.kernel_size, 1), self.padding, _pair(self.dilation, 1))
        return primitives.conv1d(
            x,
            params["weight"],
            params["bias"] if self.bias else None,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            data_format=self.data_format,
        )


@final
@dataclass(frozen=True, repr=False)
class Conv2d(Layer):
    """2-d convolution (cross-correlation, as in all frameworks).

    Params: weight (out, in / groups, KH, KW) and bias (out,), both first drawn from U(−1/√n, 1/√n) with
    n = in / groups · KH · KW.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: height and width of the window, or one number for both.
        stride: the step of the window.
        padding: zeros on both sides, one number or (height, width); "valid" for none, or "same" for an output of
            ⌈length / stride⌉.
        dilation: the distance of the window's elements.
        groups: into how many independent convolutions the channels are split.
        bias: whether to add a bias.
        data_format: "NHWC" or "NCHW".

    Example:
        >>> layer = us.nn.Conv2d(3, 5, 2)
        >>> params, _ = layer.init(0)
        >>> layer(params, us.ones((1, 8, 8, 3))).shape
        (1, 7, 7, 5)
    """

    in_channels: int
    out_channels: int
    kernel_size: int | tuple[int, int]
    stride: int | tuple[int, int] = 1
    padding: Padding = 0
    dilation: int | tuple[int, int] = 1
    groups: int = 1
    bias: bool = True
    data_format: DataFormat = "NHWC"

    def __post_init__(self) -> None:
        _check_convolution(self, 2)

    def init_params(self, key: Key) -> Params:
        return _convolution_params(self, key, 2)

    def forward(self, params: Params, x: Any) -> Any:
        _check_input(self, x, self.in_channels, _pair(self.kernel_size, 2), self.padding, _pair(self.dilation, 2))
        return primitives.conv2d(
            x,
            params["weight"],
            params["bias"] if self.bias else None,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            data_format=self.data_format,
        )


@final
@dataclass(frozen=True, repr=False)
class MaxPool2d(Layer):
    """The maximum over windows of an image.

    Args:
        window: height and width of the window, or one number for both.
        stride: the step of the window; default the window.
        padding: minus infinities on both sides; at most half the window.
        data_format: "NHWC" or "NCHW".

    Example:
        >>> us.nn.MaxPool2d(2)({}, us.ones((1, 4, 4, 3))).shape
        (1, 2, 2, 3)
    """

    window: int | tuple[int, int]
    stride: int | tuple[int, int] | None = None
    padding: int | tuple[int, int] = 0
    data_format: DataFormat = "NHWC"

    def __post_init__(self) -> None:
        _check_pooling(self)

    def forward(self, params: Params, x: Any) -> Any:
        _check_input(self, x, None, _pair(self.window, 2), self.padding, (1, 1))
        return primitives.max_pool2d(
            x, self.window, stride=self.stride, padding=self.padding, data_format=self.data_format
        )


@final
@dataclass(frozen=True, repr=False)
class AvgPool2d(Layer):
    """The mean over windows of an image.

    Args:
        window: height and width of the window, or one number for both.
        stride: the step of the window; default the window.
        padding: zeros on both sides, which count in the mean; at most half the window.
        data_format: "NHWC" or "NCHW".

    Example:
        >>> us.nn.AvgPool2d(2)({}, us.ones((1, 4, 4, 3))).shape
        (1, 2, 2, 3)
    """

    window: int | tuple[int, int]
    stride: int | tuple[int, int] | None = None
    padding: int | tuple[int, int] = 0
    data_format: DataFormat = "NHWC"

    def __post_init__(self) -> None:
        _check_pooling(self)

    def forward(self, params: Params, x: Any) -> Any:
        _check_input(self, x, None, _pair(self.window, 2), self.padding, (1, 1))
        return primitives.avg_pool2d(
            x, self.window, stride=self.stride, padding=self.padding, data_format=self.data_format
        )


def _pair(value: Any, ndim: int) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,) * ndim


def _check_convolution(layer: Any, ndim: int) -> None:
    for name in ("kernel_size", "stride", "padding", "dilation"):
        if isinstance(getattr(layer, name), list):  # a frozen recipe is hashable
            object.__setattr__(layer, name, tuple(getattr(layer, name)))
    _checks.sizes(
        layer,
        in_channels=layer.in_channels,
        out_channels=layer.out_channels,
        kernel_size=layer.kernel_size,
        stride=layer.stride,
        dilation=layer.dilation,
        groups=layer.groups,
    )
    if isinstance(layer.padding, str):
        if layer.padding not in ("same", "valid"):
            raise unknown("padding", layer.padding, ("same", "valid"))
    else:
        _checks.counts(layer, padding=layer.padding)
    _check_lengths(layer, ndim, "kernel_size", "stride", "padding", "dilation")
    _checks.divides(layer, "groups", "in_channels")
    _checks.divides(layer, "groups", "out_channels")
    _check_format(layer, ("NLC", "NCL") if ndim == 1 else ("NHWC", "NCHW"))


def _check_pooling(layer: Any) -> None:
    for name in ("window", "stride", "padding"):
        if isinstance(getattr(layer, name), list):
            object.__setattr__(layer, name, tuple(getattr(layer, name)))
    _checks.sizes(layer, window=layer.window)
    if layer.stride is not None:
        _checks.sizes(layer, stride=layer.stride)
    _checks.counts(layer, padding=layer.padding)
    _check_lengths(layer, 2, "window", "stride", "padding")
    if any(2 * p > w for p, w in zip(_pair(layer.padding, 2), _pair(layer.window, 2), strict=True)):
        raise ArgumentError(
            f"`padding` of {type(layer).__name__} must be at most half the window, got {layer.padding} and "
            f"{layer.window}. Try: padding=0."
        )
    _check_format(layer, ("NHWC", "NCHW"))


def _check_lengths(layer: Any, ndim: int, *names: str) -> None:
    for name in names:
        value = getattr(layer, name)
        if isinstance(value, tuple) and len(value) != ndim:
            raise ArgumentError(
                f"`{name}` of {type(layer).__name__} must be one number or {ndim}, got {value}. Try: {name}={value[0]}."
            )


def _check_format(layer: Any, known: tuple[str, ...]) -> None:
    if layer.data_format not in known:
        raise unknown("data_format", layer.data_format, known)


def _convolution_params(layer: Any, key: Key, ndim: int) -> Params:
    window = _pair(layer.kernel_size, ndim)
    fan_in = layer.in_channels // layer.groups * math.prod(window)
    shape = (layer.out_channels, layer.in_channels // layer.groups, *window)
    draw = key.generator()
    params = {"weight": initializers.fan_in_uniform(draw, shape, fan_in)}
    if layer.bias:
        params["bias"] = initializers.fan_in_uniform(draw, (layer.out_channels,), fan_in)
    return params


def _check_input(
    layer: Any, x: Any, channels: int | None, window: tuple[int, ...], padding: Any, dilation: tuple[int, ...]
) -> None:
    """Raises unless x is of the layer's rank, has its channels, and is as large as one window at least."""
    letters = layer.data_format
    ndim = len(letters)
    expected = None
    try:
        shape = x.shape
        fits = len(shape) == ndim
        at = 1 if letters[1] == "C" else ndim - 1
        if fits and channels is not None:
            fits = shape[at] == channels or shape[at] is None
        if fits and padding != "same":
            first = 2 if at == 1 else 1
            for axis, (k, p, d) in enumerate(zip(window, _sides(padding, len(window)), dilation, strict=True), first):
                if shape[axis] is not None and shape[axis] + 2 * p < d * (k - 1) + 1:
                    fits, expected = False, _at_least(letters, window, padding, dilation, channels)
    except AttributeError:
        _checks.rank(layer, x, ndim, letters)
        raise
    if not fits:
        raise _checks.shape_error(
            layer,
            expected or f"({', '.join(str(channels) if c == 'C' and channels else c for c in letters)})",
            shape,
            _cure(layer, shape, at, channels) if expected is None else "a smaller window, or more padding",
        )


def _sides(padding: Any, ndim: int) -> tuple[int, ...]:
    return (0,) * ndim if isinstance(padding, str) else _pair(padding, ndim)


def _at_least(
    letters: str, window: tuple[int, ...], padding: Any, dilation: tuple[int, ...], channels: int | None
) -> str:
    sizes = [
        f"{letter} ≥ {d * (k - 1) + 1 - 2 * p}"
        for letter, k, p, d in zip(
            letters.replace("N", "").replace("C", ""), window, _sides(padding, len(window)), dilation, strict=True
        )
    ]
    return f"({', '.join(str(channels) if c == 'C' and channels else c for c in letters)}) with {' and '.join(sizes)}"


def _cure(layer: Any, shape: Any, at: int, channels: int | None) -> str:
    ndim = len(layer.data_format)
    if len(shape) == ndim - 1:
        return (
            "x[..., None], if the channel axis is missing" if at != 1 else "x[:, None], if the channel axis is missing"
        )
    if len(shape) == ndim and shape[1 if at != 1 else ndim - 1] == channels:
        other = {"NHWC": "NCHW", "NCHW": "NHWC", "NLC": "NCL", "NCL": "NLC"}[layer.data_format]
        return f'data_format="{other}"'
    return f"an input in the layout {layer.data_format}"

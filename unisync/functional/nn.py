"""The operations that neural networks are made of.

Weights have torch's shapes on every backend. Images are NHWC and sequences NLC by default: the channel stands last,
and `data_format="NCHW"` (or "NCL") puts it second.
"""

from __future__ import annotations

from typing import Any

from unisync._dispatch import namespace, of
from unisync._types import Array, DataFormat, Padding, SequenceFormat
from unisync.errors import ArgumentError
from unisync.functional import random as _random


def elu(x: Array, /, *, alpha: float = 1.0) -> Array:
    """x above zero, alpha · (exp(x) − 1) below (Clevert et al. 2015).

    Args:
        x: floating-point array of any shape.
        alpha: the limit −alpha for large negative x.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.nn.elu(us.asarray([-1.0, 2.0]))
        array([-0.63212055,  2.        ], dtype=float32)
    """
    return of[type(x)].elu(x, alpha=alpha)


def gelu(x: Array, /, *, approximate: bool = False) -> Array:
    """x · Φ(x), with Φ the normal distribution function (Hendrycks & Gimpel 2016).

    Args:
        x: floating-point array of any shape.
        approximate: whether to use the tanh approximation instead of the exact form.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.nn.gelu(us.asarray([-1.0, 2.0]))
        array([-0.15865526,  1.9544997 ], dtype=float32)
    """
    return of[type(x)].gelu(x, approximate=approximate)


def leaky_relu(x: Array, /, *, negative_slope: float = 0.01) -> Array:
    """x above zero, negative_slope · x below.

    Args:
        x: floating-point array of any shape.
        negative_slope: the slope below zero.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.nn.leaky_relu(us.asarray([-1.0, 2.0]))
        array([-0.01,  2.  ], dtype=float32)
    """
    return of[type(x)].leaky_relu(x, negative_slope=negative_slope)


def relu(x: Array, /) -> Array:
    """max(x, 0); its gradient at 0 is 0.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.nn.relu(us.asarray([-1.0, 2.0]))
        array([0., 2.], dtype=float32)
    """
    return of[type(x)].relu(x)


def sigmoid(x: Array, /) -> Array:
    """1 / (1 + exp(−x)).

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.nn.sigmoid(us.asarray([0.0, 2.0]))
        array([0.5     , 0.880797], dtype=float32)
    """
    return of[type(x)].sigmoid(x)


def silu(x: Array, /) -> Array:
    """x · sigmoid(x), also called swish.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.nn.silu(us.asarray([0.0, 2.0]))
        array([0.      , 1.761594], dtype=float32)
    """
    return of[type(x)].silu(x)


def softplus(x: Array, /) -> Array:
    """log(1 + exp(x)) without overflow.

    Args:
        x: floating-point array of any shape.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.nn.softplus(us.asarray([0.0, 2.0]))
        array([0.6931472, 2.126928 ], dtype=float32)
    """
    return of[type(x)].softplus(x)


def softmax(x: Array, /, *, axis: int = -1) -> Array:
    """exp(x) scaled to sum to one along an axis.

    Args:
        x: floating-point array of any shape.
        axis: the axis.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.nn.softmax(us.asarray([0.0, 0.0]))
        array([0.5, 0.5], dtype=float32)
    """
    return of[type(x)].softmax(x, axis=axis)


def log_softmax(x: Array, /, *, axis: int = -1) -> Array:
    """The logarithm of `softmax`, without overflow.

    Args:
        x: floating-point array of any shape.
        axis: the axis.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.nn.log_softmax(us.asarray([0.0, 0.0]))
        array([-0.6931472, -0.6931472], dtype=float32)
    """
    return of[type(x)].log_softmax(x, axis=axis)


def logsumexp(x: Array, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
    """log(sum(exp(x))) without overflow.

    Args:
        x: floating-point array of any shape.
        axis: the axis or axes to reduce; None for all.
        keepdims: whether reduced axes stay with length 1.

    Returns:
        Array of x's dtype without the reduced axes.

    Example:
        >>> us.nn.logsumexp(us.asarray([1000.0, 1000.0]), axis=0)
        np.float32(1000.6932)
    """
    return of[type(x)].logsumexp(x, axis=axis, keepdims=keepdims)


def one_hot(x: Array, /, num_classes: int, *, dtype: Any = None) -> Array:
    """Rows that are one at the given class and zero elsewhere; all zero for a class out of range.

    Args:
        x: integer array of any shape.
        num_classes: the length of the new last axis.
        dtype: the result's dtype; default float32.

    Returns:
        Array of shape x.shape + (num_classes,).

    Example:
        >>> us.nn.one_hot(us.asarray([1, 0]), 2)
        array([[0., 1.],
               [1., 0.]], dtype=float32)
    """
    return of[type(x)].one_hot(x, num_classes, dtype=dtype)


def linear(x: Array, weight: Array, bias: Array | None = None, /) -> Array:
    """x · weightᵀ + bias.

    Args:
        x: floating-point array of shape (..., in).
        weight: array of shape (out, in).
        bias: array of shape (out,), or None.

    Returns:
        Array of shape (..., out).

    Example:
        >>> us.nn.linear(us.ones((4, 3)), us.ones((2, 3)), us.ones(2)).shape
        (4, 2)
    """
    return namespace(x, weight).linear(x, weight, bias)


def conv1d(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    /,
    *,
    stride: int = 1,
    padding: Padding = 0,
    dilation: int = 1,
    groups: int = 1,
    data_format: SequenceFormat = "NLC",
) -> Array:
    """1-d convolution (cross-correlation, as in all frameworks).

    Args:
        x: floating-point array of shape (N, L, C) (or (N, C, L) for NCL).
        weight: array of shape (out, in / groups, K).
        bias: array of shape (out,), or None.
        stride: the step of the window.
        padding: zeros on both sides: a number, one per axis, "valid" for none, or "same" for an output of
            ⌈length / stride⌉ (the extra zero, if any, at the end).
        dilation: the distance of the window's elements.
        groups: into how many independent convolutions the channels are split.
        data_format: where x and the result have their channels: "NLC" or "NCL".

    Returns:
        Array of x's dtype, of layout data_format.

    Example:
        >>> us.nn.conv1d(us.ones((1, 8, 3)), us.ones((5, 3, 2))).shape
        (1, 7, 5)
    """
    return namespace(x, weight).conv1d(
        x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups, data_format=data_format
    )


def conv2d(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    /,
    *,
    stride: int | tuple[int, int] = 1,
    padding: Padding = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    data_format: DataFormat = "NHWC",
) -> Array:
    """2-d convolution (cross-correlation, as in all frameworks).

    Args:
        x: floating-point array of shape (N, H, W, C) (or (N, C, H, W) for NCHW).
        weight: array of shape (out, in / groups, KH, KW).
        bias: array of shape (out,), or None.
        stride: the step of the window.
        padding: zeros on both sides: a number, one per axis, "valid" for none, or "same" for an output of
            ⌈length / stride⌉ (the extra zero, if any, at the end).
        dilation: the distance of the window's elements.
        groups: into how many independent convolutions the channels are split.
        data_format: where x and the result have their channels: "NHWC" or "NCHW".

    Returns:
        Array of x's dtype, of layout data_format.

    Example:
        >>> us.nn.conv2d(us.ones((1, 8, 8, 3)), us.ones((5, 3, 2, 2))).shape
        (1, 7, 7, 5)
    """
    return namespace(x, weight).conv2d(
        x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups, data_format=data_format
    )


def avg_pool2d(
    x: Array,
    /,
    window: int | tuple[int, int],
    *,
    stride: int | tuple[int, int] | None = None,
    padding: int | tuple[int, int] = 0,
    data_format: DataFormat = "NHWC",
) -> Array:
    """The mean over windows of an image.

    Args:
        x: floating-point array of shape (N, H, W, C) (or (N, C, H, W) for NCHW).
        window: height and width of the window.
        stride: the step of the window; default the window.
        padding: zeros on both sides, which count in the mean, as in torch.
        data_format: "NHWC" or "NCHW".

    Returns:
        Array of x's dtype; what does not fill a window at the end is left out.

    Example:
        >>> us.nn.avg_pool2d(us.ones((1, 4, 4, 2)), 2).shape
        (1, 2, 2, 2)
    """
    return of[type(x)].avg_pool2d(x, window, stride=stride, padding=padding, data_format=data_format)


def max_pool2d(
    x: Array,
    /,
    window: int | tuple[int, int],
    *,
    stride: int | tuple[int, int] | None = None,
    padding: int | tuple[int, int] = 0,
    data_format: DataFormat = "NHWC",
) -> Array:
    """The maximum over windows of an image.

    Args:
        x: floating-point array of shape (N, H, W, C) (or (N, C, H, W) for NCHW).
        window: height and width of the window.
        stride: the step of the window; default the window.
        padding: minus infinities on both sides; at most half the window.
        data_format: "NHWC" or "NCHW".

    Returns:
        Array of x's dtype; what does not fill a window at the end is left out.

    Example:
        >>> us.nn.max_pool2d(us.ones((1, 4, 4, 2)), 2).shape
        (1, 2, 2, 2)
    """
    return of[type(x)].max_pool2d(x, window, stride=stride, padding=padding, data_format=data_format)


def layer_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, /, *, ndim: int = 1, eps: float = 1e-5
) -> Array:
    """x to mean 0 and variance 1 over its last ndim axes, then · weight + bias (Ba et al. 2016).

    Args:
        x: floating-point array of shape (..., *shape).
        weight: array of shape `shape` (ndim axes), or None.
        bias: likewise.
        ndim: how many of the last axes to normalise over.
        eps: added to the variance.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.nn.layer_norm(us.asarray([[1.0, 3.0]]))
        array([[-0.999995,  0.999995]], dtype=float32)
    """
    return of[type(x)].layer_norm(x, weight, bias, ndim=ndim, eps=eps)


def rms_norm(x: Array, weight: Array | None = None, /, *, eps: float | None = None) -> Array:
    """x divided by the root of the mean square of its last axis, then · weight (Zhang & Sennrich 2019).

    Args:
        x: floating-point array of shape (..., D).
        weight: array of shape (D,), or None.
        eps: added to the mean square; default the dtype's machine epsilon, as in torch.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.nn.rms_norm(us.asarray([[3.0, 4.0]]))
        array([[0.84852815, 1.1313709 ]], dtype=float32)
    """
    return of[type(x)].rms_norm(x, weight, eps=eps)


def group_norm(
    x: Array,
    groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    /,
    *,
    eps: float = 1e-5,
    data_format: str = "NHWC",
) -> Array:
    """x to mean 0 and variance 1 over groups of channels and all positions, then · weight + bias (Wu & He 2018).

    Args:
        x: floating-point array of shape (N, ..., C); the channel second if data_format begins with "NC".
        groups: how many groups of consecutive channels; divides C.
        weight: array of shape (C,), or None.
        bias: likewise.
        eps: added to the variance.
        data_format: "NHWC", "NLC", "NCHW" or "NCL".

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.nn.group_norm(us.ones((2, 4, 4, 6)), 3).shape
        (2, 4, 4, 6)
    """
    return of[type(x)].group_norm(x, groups, weight, bias, eps=eps, data_format=data_format)


def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    /,
    *,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Array:
    """softmax(scale · query · keyᵀ) · value (Vaswani et al. 2017).

    Args:
        query: floating-point array of shape (..., L, E).
        key: array of shape (..., S, E).
        value: array of shape (..., S, V).
        mask: array that broadcasts with (..., L, S): boolean, True where attention is allowed, or floating-point, added
            to the scores; or None.
        causal: whether position i sees positions ≤ i only; not together with mask.
        scale: default 1/√E.

    Returns:
        Array of shape (..., L, V).

    Raises:
        ArgumentError: both mask and causal are given.

    Example:
        >>> x = us.ones((1, 3, 4))
        >>> us.nn.scaled_dot_product_attention(x, x, x, causal=True).shape
        (1, 3, 4)
    """
    if causal and mask is not None:
        raise ArgumentError("`mask` must be None if causal is True, got both. Try: put the causal part into the mask.")
    return of[type(query)].scaled_dot_product_attention(query, key, value, mask=mask, causal=causal, scale=scale)


def embedding(weight: Array, indices: Array, /) -> Array:
    """The rows of weight at the given positions.

    Args:
        weight: array of shape (rows, D).
        indices: integer array of any shape, with values in [0, rows). Others, −1 too, are undefined: torch raises,
            TensorFlow raises on a CPU and gives zeros on a GPU, NumPy counts −1 from the end and raises beyond, JAX
            raises if it has the numbers on a CPU and clamps in compiled functions and on accelerators.

    Returns:
        Array of shape indices.shape + (D,).

    Example:
        >>> us.nn.embedding(us.eye(3), us.asarray([2, 0]))
        array([[0., 0., 1.],
               [1., 0., 0.]], dtype=float32)
    """
    return namespace(weight, indices).embedding(weight, indices)


def softmax_cross_entropy_with_integer_labels(logits: Array, labels: Array, /, *, mean: bool = False) -> Array:
    """−log softmax(logits)[label], one number per sample; `us.losses.softmax_cross_entropy` averages them.

    Args:
        logits: floating-point array of shape (..., classes).
        labels: integer array of shape (...), with values in [0, classes); others are undefined (see
            `us.losses.softmax_cross_entropy`).
        mean: whether to average them, in the same kernel where there is one.

    Returns:
        Array of the labels' shape, or with mean of shape (), and the logits' dtype.

    Example:
        >>> us.nn.softmax_cross_entropy_with_integer_labels(us.zeros((1, 2)), us.asarray([1]))
        array([0.6931472], dtype=float32)
    """
    return namespace(logits, labels).softmax_cross_entropy_with_integer_labels(logits, labels, mean=mean)


def dropout(x: Array, /, rate: float, key: _random.Key) -> Array:
    """x with elements set to zero at random, the rest scaled by 1 / (1 − rate) (Srivastava et al. 2014).

    Args:
        x: floating-point array of any shape.
        rate: the probability of an element to become zero, in [0, 1].
        key: the source of randomness.

    Returns:
        Array of x's shape and dtype.

    Example:
        >>> us.nn.dropout(us.ones(3), 0.0, us.random.Key(0))
        array([1., 1., 1.], dtype=float32)
    """
    m = of[type(x)]
    if rate == 0.0:
        return x
    if rate == 1.0:
        return m.zeros_like(x)
    keep = m.bernoulli(key, 1.0 - rate, m.lengths(x), device=m.device(x))  # type: ignore[attr-defined]
    return m.where(keep, x / (1.0 - rate), 0.0)  # type: ignore[operator]

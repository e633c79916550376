"""Convolution where the kernels' gradients lack a case: dilation and groups, composed of what exists."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf


def convolve(x: Any, weight: Any, strides: tuple, padding: Any, dilations: tuple, groups: int) -> Any:
    """Cross-correlation of NHWC x with OIHW weight; padding is "SAME", "VALID" or TensorFlow's explicit list."""
    kernel = tf.transpose(weight, [2, 3, 1, 0])
    if groups == 1 and dilations == (1, 1):
        return tf.nn.conv2d(x, kernel, strides, padding)
    x = _padded(x, kernel, strides, padding, dilations)
    if dilations != (1, 1) and not _has_gradient(x.dtype, dilated=True):
        kernel, dilations = _spread(kernel, dilations), (1, 1)
    if groups == 1:
        return tf.nn.conv2d(x, kernel, strides, "VALID", dilations=dilations)
    if groups == x.shape[-1] and dilations == (1, 1) and strides[0] == strides[1]:
        return _depthwise(x, kernel, strides, groups)
    if _has_gradient(x.dtype, dilated=dilations != (1, 1), groups=True):
        return tf.nn.conv2d(x, kernel, strides, "VALID", dilations=dilations)
    parts = zip(tf.split(x, groups, -1), tf.split(kernel, groups, -1), strict=True)
    return tf.concat([tf.nn.conv2d(part, k, strides, "VALID", dilations=dilations) for part, k in parts], -1)


def _depthwise(x, kernel, strides, groups):
    height, width, _, out = kernel.shape
    filters = tf.reshape(kernel, [height, width, groups, out // groups])
    return tf.nn.depthwise_conv2d(x, filters, [1, *strides, 1], "VALID")


def _padded(x, kernel, strides, padding, dilations):
    """x with its zeros around it: the gradients of dilated and grouped kernels know no explicit padding."""
    if padding == "VALID":
        return x
    if padding != "SAME":
        return tf.pad(x, padding)
    around = [[0, 0]]
    for axis in (1, 2):
        length = x.shape[axis] if x.shape[axis] is not None else tf.shape(x)[axis]
        stride, reach = strides[axis - 1], (kernel.shape[axis - 1] - 1) * dilations[axis - 1] + 1
        total = (-(-length // stride) - 1) * stride + reach - length
        total = max(total, 0) if isinstance(total, int) else tf.maximum(total, 0)
        around.append([total // 2, total - total // 2])
    return tf.pad(x, [*around, [0, 0]])


def _spread(kernel, dilations):
    """The kernel with zeros between its elements, which a dilated convolution skips."""
    for axis, dilation in enumerate(dilations):
        if dilation == 1:
            continue
        n = kernel.shape[axis]
        kernel = tf.expand_dims(kernel, axis + 1)
        kernel = tf.pad(kernel, [[0, dilation - 1 if a == axis + 1 else 0] for a in range(5)])
        shape = [*kernel.shape[:axis], n * dilation, *kernel.shape[axis + 2 :]]
        kernel = tf.gather(tf.reshape(kernel, shape), tf.range((n - 1) * dilation + 1), axis=axis)
    return kernel


@functools.cache
def _has_gradient(dtype: Any, *, dilated: bool, groups: bool = False) -> bool:
    """Whether this machine's kernels can differentiate such a convolution.

    On the CPU only oneDNN's can, for the dtypes that it takes on this processor:
    https://github.com/tensorflow/tensorflow/issues/29005
    """
    length, dilation = (2, 2) if dilated else (3, 1)
    with tf.init_scope():  # which also stops tapes: the gradients' ops are called by name
        x, kernel = tf.ones([1, 4, 4, 4], dtype), tf.ones([2, 2, 2 if groups else 4, 4], dtype)
        how = {
            "out_backprop": tf.ones([1, length, length, 4], dtype),
            "strides": [1, 1, 1, 1],
            "padding": "VALID",
            "dilations": [1, dilation, dilation, 1],
        }
        try:
            tf.raw_ops.Conv2DBackpropInput(input_sizes=x.shape, filter=kernel, **how)
            tf.raw_ops.Conv2DBackpropFilter(input=x, filter_sizes=kernel.shape, **how)
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
            return False
    return True

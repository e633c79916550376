"""First values of parameters: drawn on the host in float64, so that one key gives the same bits on every backend."""

from __future__ import annotations

import math

import numpy as np

from unisync._types import Shape


def uniform(generator: np.random.Generator, shape: Shape, bound: float) -> np.ndarray:
    """Evenly distributed in [−bound, bound).

    Args:
        generator: of `key.generator()`.
        shape: the parameter's shape.
        bound: the limit.

    Returns:
        float64 NumPy array.

    Example:
        >>> us.nn.initializers.uniform(us.random.Key(0).generator(), (2, 3), 0.1).shape
        (2, 3)
    """
    return generator.uniform(-bound, bound, shape)


def fan_in_uniform(generator: np.random.Generator, shape: Shape, fan_in: int) -> np.ndarray:
    """Evenly distributed within ±1/√fan_in: torch's default for linear and convolution layers, weight and bias alike.

    torch writes it as Kaiming-uniform with a = √5.

    Args:
        generator: of `key.generator()`.
        shape: the parameter's shape.
        fan_in: how many inputs each output sums over.

    Returns:
        float64 NumPy array.

    Example:
        >>> us.nn.initializers.fan_in_uniform(us.random.Key(0).generator(), (5, 4), 4).shape
        (5, 4)
    """
    return uniform(generator, shape, 1.0 / math.sqrt(fan_in))


def kaiming_uniform(generator: np.random.Generator, shape: Shape, gain: float = math.sqrt(2.0)) -> np.ndarray:
    """Evenly distributed within ±gain · √(3 / fan_in) (He et al. 2015); the default gain suits ReLU.

    Args:
        generator: of `key.generator()`.
        shape: the weight's shape: (out, in, *window).
        gain: the scale that the following activation asks for.

    Returns:
        float64 NumPy array.

    Example:
        >>> us.nn.initializers.kaiming_uniform(us.random.Key(0).generator(), (5, 4)).shape
        (5, 4)
    """
    return uniform(generator, shape, gain * math.sqrt(3.0 / math.prod(shape[1:])))


def xavier_uniform(generator: np.random.Generator, shape: Shape, gain: float = 1.0) -> np.ndarray:
    """Evenly distributed within ±gain · √(6 / (fan_in + fan_out)) (Glorot & Bengio 2010).

    Args:
        generator: of `key.generator()`.
        shape: the weight's shape: (out, in, *window).
        gain: the scale that the following activation asks for.

    Returns:
        float64 NumPy array.

    Example:
        >>> us.nn.initializers.xavier_uniform(us.random.Key(0).generator(), (5, 4)).shape
        (5, 4)
    """
    window = math.prod(shape[2:])
    return uniform(generator, shape, gain * math.sqrt(6.0 / ((shape[0] + shape[1]) * window)))


def normal(generator: np.random.Generator, shape: Shape, std: float = 1.0) -> np.ndarray:
    """Normally distributed with mean 0.

    Args:
        generator: of `key.generator()`.
        shape: the parameter's shape.
        std: the standard deviation.

    Returns:
        float64 NumPy array.

    Example:
        >>> us.nn.initializers.normal(us.random.Key(0).generator(), (3,)).shape
        (3,)
    """
    return generator.normal(0.0, std, shape)

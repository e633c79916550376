"""The error function for NumPy, which has none for arrays.

Sources: in float64, W. J. Cody, "Rational Chebyshev approximation for the error function", Mathematics of Computation
23 (1969), as in netlib's CALERF. In float32, the two polynomials of N. Juffa (https://stackoverflow.com/a/35148199):
one for erf itself near zero, one for log(1 − erf) elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_NEAR32 = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
_FAR32 = (
    -1.72853470e-5, 3.83197126e-4, -3.88396438e-3, 2.42546219e-2, -1.06777877e-1, -6.34846687e-1, -1.28717512e-1,
)  # fmt: skip

_A = (
    1.85777706184603153e-1, 3.16112374387056560e00, 1.13864154151050156e02, 3.77485237685302021e02,
    3.20937758913846947e03,
)  # fmt: skip
_B = (1.0, 2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03, 2.84423683343917062e03)
_C = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e00, 6.61191906371416295e01,
    2.98635138197400131e02, 8.81952221241769090e02, 1.71204761263407058e03, 2.05107837782607147e03,
    1.23033935479799725e03,
)  # fmt: skip
_D = (
    1.0, 1.57449261107098347e01, 1.17693950891312499e02, 5.37181101862009858e02, 1.62138957456669019e03,
    3.29079923573345963e03, 4.36261909014324716e03, 3.43936767414372164e03, 1.23033935480374942e03,
)  # fmt: skip
_P = (
    1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
    1.60837851487422766e-2, 6.58749161529837803e-4,
)  # fmt: skip
_Q = (
    1.0, 2.56852019228982242e00, 1.87295284992346725e00, 5.27905102951428412e-1, 6.05183413124413191e-2,
    2.33520497626869185e-3,
)  # fmt: skip
_INV_SQRT_PI = 5.6418958354775628695e-1

_BLOCK = 1 << 15  # elements: what one block needs stays in the cache


def erf(x: Any) -> Any:
    """The error function in x's dtype, to within 2e-7 in float32 and 4e-16 in float64."""
    x = np.asarray(x)
    wide = np.float64 if x.dtype == np.float64 else np.float32
    function = _erf64 if wide is np.float64 else _erf32
    flat = np.ascontiguousarray(x, dtype=wide).reshape(-1)
    result = _in_blocks(function, flat)
    return result.reshape(x.shape).astype(x.dtype, copy=False)[()]


def _in_blocks(function: Callable[[np.ndarray], np.ndarray], flat: np.ndarray) -> np.ndarray:
    result = np.empty_like(flat)
    for i in range(0, flat.size, _BLOCK):
        result[i : i + _BLOCK] = function(flat[i : i + _BLOCK])
    return result


def _erf32(x: np.ndarray) -> np.ndarray:
    x = np.clip(x, -4.0, 4.0)  # erf(4) is 1 in float32
    size = np.abs(x)
    near = _polynomial(_NEAR32, x * x)
    near *= x
    near += x
    far = _polynomial(_FAR32, size)
    far *= size
    far -= size
    np.exp(far, out=far)
    np.subtract(1.0, far, out=far)
    return _select(size <= 0.927734375, near, np.copysign(far, x, out=far))


def _select(condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x where the condition holds, else y, both finite or both NaN; np.where takes ten times as long."""
    x -= y
    x *= condition
    x += y
    return x


def _erf64(x: np.ndarray) -> np.ndarray:
    size = np.abs(x)
    far = _complement(size)
    tail = size > 4.0
    if tail.any():
        far[tail] = _far_complement(size[tail])
    np.subtract(1.0, far, out=far)
    np.copysign(far, x, out=far)
    small = size <= 0.46875
    far *= ~small
    far += _near(np.clip(x, -0.5, 0.5)) * small  # and NaN stays NaN
    return far


def _near(x: np.ndarray) -> np.ndarray:
    square = x * x
    return x * _polynomial(_A, square) / _polynomial(_B, square)


def _complement(size: np.ndarray) -> np.ndarray:
    """1 − erf on (0.46875, 4]."""
    size = np.minimum(size, 4.0)
    return np.exp(-size * size) * _polynomial(_C, size) / _polynomial(_D, size)


def _far_complement(size: np.ndarray) -> np.ndarray:
    """1 − erf beyond 4; from 6 on erf is 1 in float64."""
    size = np.minimum(size, 6.0)
    inverse = 1.0 / (size * size)
    series = inverse * _polynomial(_P, inverse) / _polynomial(_Q, inverse)
    return np.exp(-size * size) * (_INV_SQRT_PI - series) / size


def _polynomial(coefficients: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    """Horner's scheme, the highest power first."""
    result = x * coefficients[0]
    for c in coefficients[1:-1]:
        result += c
        result *= x
    result += coefficients[-1]
    return result

"""The error function for NumPy, which has none for arrays.

Source: W. J. Cody, "Rational Chebyshev approximation for the error function", Mathematics of Computation 23 (1969), as in
the netlib routine CALERF.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_A = (
    1.85777706184603153e-1,
    3.16112374387056560e00,
    1.13864154151050156e02,
    3.77485237685302021e02,
    3.20937758913846947e03,
)
_B = (1.0, 2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03, 2.84423683343917062e03)
_C = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e00, 6.61191906371416295e01, 2.98635138197400131e02,
    8.81952221241769090e02, 1.71204761263407058e03, 2.05107837782607147e03, 1.23033935479799725e03,
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


def erf(x: Any) -> Any:
    """The error function, to about 1 unit in the last place of x's dtype."""
    x = np.asarray(x)
    wide = x.astype(np.float64, copy=False)
    size = np.minimum(np.abs(wide), 6.0)  # erf(6) is 1 in float64
    square = wide * wide
    small = size <= 0.46875
    result = np.where(small, wide * _ratio(_A, _B, np.where(small, square, 0.0)), 0.0)
    middle = np.exp(-size * size) * _ratio(_C, _D, size)
    inverse = 1.0 / np.maximum(size, 1.0) ** 2
    tail = np.exp(-size * size) * (_INV_SQRT_PI - inverse * _ratio(_P, _Q, inverse)) / np.maximum(size, 1.0)
    result = np.where(small, result, np.copysign(1.0 - np.where(size <= 4.0, middle, tail), wide))
    return result.astype(x.dtype, copy=False)[()]


def _ratio(numerator: tuple[float, ...], denominator: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    return _polynomial(numerator, x) / _polynomial(denominator, x)


def _polynomial(coefficients: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    result = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        result *= x
        result += c
    return result

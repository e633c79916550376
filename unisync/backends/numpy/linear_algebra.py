"""Products of matrices and vectors."""

from __future__ import annotations

import numpy as np

from unisync.backends.numpy import _operations
from unisync.backends.numpy._tape import anp, is_traced as _is_traced
from unisync.backends.numpy.elementwise import _binary, _operands

matmul = _binary(np.matmul)


def matrix_transpose(x, /):
    return anp.swapaxes(x, -1, -2) if _is_traced(x) else np.swapaxes(x, -1, -2)


def tensordot(x1, x2, /, *, axes=2):
    x1, x2 = _operands(x1, x2, False)
    return anp.tensordot(x1, x2, axes) if _is_traced(x1) or _is_traced(x2) else np.tensordot(x1, x2, axes)


def vecdot(x1, x2, /, *, axis=-1):
    x1, x2 = _operands(x1, x2, False)
    if _is_traced(x1) or _is_traced(x2):
        return _operations.sum(anp.conj(x1) * x2, axis, False)
    return np.vecdot(x1, x2, axis=axis)  # type: ignore[arg-type]

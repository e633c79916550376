"""The digits that come with scikit-learn: 1797 real scans of handwritten digits."""

from __future__ import annotations

import numpy as np

from unisync.data.dataset import Dataset, split
from unisync.errors import MissingDependencyError


def digits(*, test_fraction: float = 0.2, seed: int = 0) -> Dataset:
    """Scans of handwritten digits, 8×8 pixels in [0, 1], and which of 0 ... 9 they show.

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (UCI, 1998), as bundled with
    scikit-learn: nothing is downloaded.

    Args:
        test_fraction: the part to test on, in (0, 1), with every class in proportion.
        seed: settles the split.

    Returns:
        Dataset of kind "image": x (N, 8, 8, 1) float32, y (N,) int64.

    Raises:
        MissingDependencyError: scikit-learn is not installed.

    Example:
        >>> us.data.digits().x_train.shape
        (1438, 8, 8, 1)
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingDependencyError(
            f"the digits data comes with scikit-learn, which cannot be imported here ({error}). "
            "Try, in unisync's source folder: pip install '.[examples]'."
        ) from error
    pixels, labels = load_digits(return_X_y=True)
    x = (pixels.reshape(-1, 8, 8, 1) / 16.0).astype(np.float32)
    y = labels.astype(np.int64)
    train, test = split(len(x), test_fraction, seed, y)
    return Dataset("digits", "image", x[train], y[train], x[test], y[test], classes=tuple("0123456789"))

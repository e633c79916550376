"""Shared fixtures: each test that takes `backend` runs on every backend under test.

`UNISYNC_TEST_BACKENDS` names them, separated by commas; without it, all that are installed. One that was asked for and
does not import is a failure, not a skip.
"""

from __future__ import annotations

import os

# jax and tensorflow settle the number of their CPU devices when they make the first array; worlds need up to four.
os.environ.setdefault("UNISYNC_JAX_DEVICES", "4")
os.environ.setdefault("UNISYNC_TF_DEVICES", "4")

import numpy as np
import pytest
from under_test import BACKENDS

import unisync as us


@pytest.fixture(params=BACKENDS)
def backend(request):
    """The name of a backend, made the current one for the test."""
    with us.backend(request.param):
        yield request.param


@pytest.fixture
def rng():
    """A NumPy generator with a fixed seed."""
    return np.random.default_rng(20240229)

"""One process for each backend, with one math thread: what a benchmark of several replicas runs in."""

from __future__ import annotations

import os
import subprocess
import sys

from unisync import _dispatch
from unisync.backends import installed


def backend(module: str, title: str, **variables: str) -> None:
    """Run `python -m benchmarks.<module> <backend>` for every installed backend, under a heading."""
    print(f"\n## {title}", flush=True)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    for name in _dispatch.BACKENDS:
        if installed(name):
            environment = {**os.environ, **threads, "TF_CPP_MIN_LOG_LEVEL": "1", **variables}
            subprocess.run([sys.executable, "-m", f"benchmarks.{module}", name], env=environment, check=True)

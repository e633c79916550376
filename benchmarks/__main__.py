"""Run every benchmark and print Markdown: `python -m benchmarks [name ...]`."""

from __future__ import annotations

import importlib
import sys

NAMES = ("dispatch", "import_time", "training_step", "replicas", "collectives", "launched", "ddp", "launching")

if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        importlib.import_module(f"benchmarks.{name}").main()

"""What `import unisync` costs beyond `import numpy`, in fresh interpreters, interleaved."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

_PROGRAM = (
    "import time, numpy; start = time.perf_counter(); import unisync; print(time.perf_counter() - start); "
    "import sys; assert not {'torch', 'jax', 'tensorflow', 'autograd'} & set(sys.modules)"
)


def main(runs: int = 15) -> None:
    """Print the median and the range of the import's own time."""
    times = [
        float(subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True).stdout)
        for _ in range(runs + 1)
    ][1:]
    print("\n## Import\n\n| | median | min | max | limit |\n|---|--:|--:|--:|--:|")
    low, middle, high = (f"{1e3 * t:.1f} ms" for t in (min(times), np.median(times), max(times)))
    print(f"| import unisync beyond import numpy | {middle} | {low} | {high} | 150 ms |")


if __name__ == "__main__":
    main()

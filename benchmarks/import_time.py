"""What `import unisync` costs beyond `import numpy`, in fresh interpreters: by the clock, and in processor time.

The two are the same on an idle machine; other programs disturb the processor time less.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np

_PROGRAM = (
    "import time, numpy; clock, cpu = time.perf_counter(), time.process_time(); import unisync; "
    "print(time.perf_counter() - clock, time.process_time() - cpu); "
    "import sys; assert not {'torch', 'jax', 'tensorflow', 'autograd'} & set(sys.modules)"
)


def main(runs: int = 15) -> None:
    """Print the median and the range of both times."""
    times = [
        subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True).stdout.split()
        for _ in range(runs + 1)
    ][1:]
    print("\n## Import\n\n| import unisync beyond import numpy | median | min | max | limit |\n|---|--:|--:|--:|--:|")
    for name, values in zip(("by the clock", "processor time"), np.array(times, float).T, strict=True):
        low, middle, high = (f"{1e3 * t:.1f} ms" for t in (min(values), np.median(values), max(values)))
        print(f"| {name} | {middle} | {low} | {high} | 150 ms |")


if __name__ == "__main__":
    main()

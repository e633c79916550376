"""A data-parallel step of torch over two processes: ours against DistributedDataParallel, in the same processes.

Both train the same model on the same samples over the same gloo group, taking turns. `--mbit 100` shapes the loopback
interface of a network namespace of its own (root only).
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np

import unisync as us
from benchmarks.paired import CONTROL, compare, show
from unisync import losses
from unisync.backends import installed

WIDTH, DEPTH, BATCH, PROCESSES = 1024, 3, 64, 2
LEARNING_RATE, MOMENTUM = 0.01, 0.9
MAX_RATIO = 1.03


def run(rounds: int) -> None:
    """Measure as one of the processes; the first prints."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    us.set_backend("torch")
    draws = np.random.default_rng(0)
    with us.init_distributed() as world:
        x = draws.normal(size=(world.size * BATCH, WIDTH)).astype(np.float32)
        y = draws.integers(0, 10, world.size * BATCH)
        begin = world.process_index * BATCH
        own_x, own_y = torch.from_numpy(x[begin : begin + BATCH]), torch.from_numpy(y[begin : begin + BATCH])

        sizes = [WIDTH] * (DEPTH + 1)
        layers = [layer for a, b in itertools.pairwise(sizes) for layer in (us.nn.Linear(a, b), us.nn.ReLU())]
        model = us.nn.Sequential([*layers, us.nn.Linear(WIDTH, 10)])
        trainer = us.parallelize(
            model,
            loss=losses.softmax_cross_entropy,
            optimizer=us.optim.sgd(LEARNING_RATE, momentum=MOMENTUM),
            metrics={},
        )

        def by_ddp() -> object:
            native: list[nn.Module] = []
            for a, b in itertools.pairwise(sizes):
                native += [nn.Linear(a, b), nn.ReLU()]
            network = nn.Sequential(*native, nn.Linear(WIDTH, 10))
            network.load_state_dict(us.nn.to_torch_state_dict(model, trainer.params))
            wrapped = DistributedDataParallel(network)
            optimizer = torch.optim.SGD(wrapped.parameters(), LEARNING_RATE, MOMENTUM, foreach=True)

            def step() -> float:
                optimizer.zero_grad(set_to_none=True)
                loss = nn.functional.cross_entropy(wrapped(own_x), own_y)
                loss.backward()
                optimizer.step()
                return loss.item()

            return step

        def ours() -> float:
            return trainer.step((x, y)).loss

        theirs = by_ddp()
        first = ours(), us.to_numpy(us.all_reduce(us.asarray(theirs())))
        assert np.isclose(*first, rtol=1e-5), f"they compute something else: {first}"
        candidates = {"DistributedDataParallel": theirs, "us.parallelize": ours, CONTROL: by_ddp()}
        found = compare("DistributedDataParallel", candidates, rounds=rounds)
        if world.process_index == 0:
            show(f"torch, mlp of {DEPTH} x {WIDTH}, batch {BATCH} per process, {world.size} gloo processes", found)
            own = next(c for c in found if c.name == "us.parallelize")
            verdict = "holds" if own.ratio_low <= MAX_RATIO else "DOES NOT HOLD"
            print(f"\nAt most {MAX_RATIO} of DistributedDataParallel: {verdict}.", flush=True)


def main(rounds: int = 60, mbit: int | None = None) -> None:
    """Measure in two processes with one math thread each."""
    if not installed("torch"):
        return
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "unisync", "run", "--backend", "torch", "--replicas", str(PROCESSES),
               "-m", "benchmarks.ddp", "--process", str(rounds)]  # fmt: skip
    if mbit is not None:
        shape = f"ip link set lo up && tc qdisc add dev lo root tbf rate {mbit}mbit burst 128kb latency 400ms"
        command = ["unshare", "--net", "sh", "-c", shape + ' && exec "$@"', "sh", *command]
        print(f"\nOver a link of {mbit} Mbit/s:")
    subprocess.run(command, env={**os.environ, **threads}, check=True)


if __name__ == "__main__":
    if "--process" in sys.argv:
        run(int(sys.argv[-1]))
    elif "--mbit" in sys.argv:
        main(12, int(sys.argv[-1]))
    else:
        main()

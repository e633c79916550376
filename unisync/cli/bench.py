"""`unisync bench collectives`: how fast a collective is, whether it is right, and what the engine takes by hand."""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, final

import numpy as np
import typer

import unisync as us
from unisync.backends import import_by_hand
from unisync.backends._by_hand import OPS
from unisync.errors import ArgumentError, unknown

SCHEMA = "unisync.bench.collectives/1"
FACTOR = 4  # from one size to the next
WARM_UP = 3

app = typer.Typer(name="bench", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Measure what this machine can do."""


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One size. Names and conventions are those of nccl-tests; GB = 1e9 bytes.

    Attributes:
        bytes: the larger of what a replica brings and what it gets.
        count: how many elements a replica brings.
        time_us: of one call, the median.
        algbw_gb_per_s: bytes / time.
        busbw_gb_per_s: what a link between replicas would carry: algbw times a factor that depends on the op.
        errors: how many elements differ from NumPy's, on all replicas.
        by_hand_us: the same by the engine's own means.
        ratio: the median over rounds of time / by hand.
    """

    bytes: int
    count: int
    dtype: str
    op: str
    time_us: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    errors: int
    by_hand_us: float
    ratio: float


@app.command()
def collectives(
    backend: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="numpy, torch, jax or tensorflow [default: UNISYNC_BACKEND, else numpy]."),
    ] = None,
    replicas: Annotated[int, typer.Option(metavar="N", help="Replicas in this process.")] = 2,
    op: Annotated[str, typer.Option(metavar="NAME", help=f"{', '.join(OPS[:-1])} or {OPS[-1]}.")] = "all_reduce",
    min_bytes: Annotated[
        str, typer.Option(metavar="SIZE", help="Smallest size; K, M and G are powers of 1024.")
    ] = "1K",
    max_bytes: Annotated[
        str, typer.Option(metavar="SIZE", help=f"Largest size; each is {FACTOR} times the one before.")
    ] = "16M",
    engine: Annotated[
        str | None, typer.Option(metavar="NAME", help="threads, shard_map, pmap or mirrored [default: the backend's].")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="KIND", help="Kind of device, such as cpu [default: accelerators].")
    ] = None,
    iterations: Annotated[int, typer.Option(metavar="N", help="Timed calls per size.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Time a collective for arrays of growing size, beside the same by the engine's own means."""
    if op not in OPS:
        raise unknown("op", op, OPS)
    if iterations < 1:
        raise ArgumentError(f"`--iterations` must be at least 1, got {iterations}. Try: --iterations 50.")
    sizes = _sizes(min_bytes, max_bytes)
    with (
        us.backend(backend or us.current_backend()),
        us.init_distributed(replicas=replicas, engine=engine, device=device) as world,
    ):
        rows = [measure(world, op, size, iterations) for size in sizes]
        about = {"backend": world.backend, "engine": world.engine, "replicas": world.size, "iterations": iterations}
    if as_json:
        print(json.dumps({"schema": SCHEMA, **about, "rows": [dataclasses.asdict(row) for row in rows]}))
    else:
        _show(about, rows)
    if any(row.errors for row in rows):
        raise typer.Exit(1)


def measure(world: us.World, op: str, size_bytes: int, iterations: int) -> Row:
    """Check a collective of about size_bytes against NumPy, and time it, turn about with the engine by hand."""
    by_hand, p = import_by_hand(world.backend), world.size
    total = max(p, size_bytes // 4 // p * p)  # float32 elements, so many that p divides them
    count = total // p if op == "all_gather" else total
    draws = np.random.default_rng(0)
    host = [draws.integers(-8, 8, count).astype(np.float32) for _ in range(p)]  # whose sums are exact
    value = world.scatter(np.concatenate(host))
    spmd = us.spmd(_function(op, p))
    expected = _expected(op, host)
    errors = sum(_wrong(got, right) for got, right in zip(spmd(value), expected, strict=True))

    def ours() -> None:
        by_hand.wait(spmd(value))

    with by_hand.collective(op, value, world._engine) as theirs:
        if any(_wrong(got, right) for got, right in zip(by_hand.results(theirs()), expected, strict=True)):
            raise RuntimeError(f"{op} by hand on {world.engine} is wrong")
        own, other = _paired(ours, theirs, iterations)
    time_s = statistics.median(own)
    algbw = 4 * total / time_s / 1e9
    return Row(
        4 * total,
        count,
        "float32",
        op,
        round(time_s * 1e6, 1),
        round(algbw, 3),
        round(algbw * _bus_factor(op, p), 3),
        errors,
        round(statistics.median(other) * 1e6, 1),
        round(statistics.median(a / b for a, b in zip(own, other, strict=True)), 3),
    )


def _paired(a: Callable[[], object], b: Callable[[], object], rounds: int) -> tuple[list[float], list[float]]:
    """The seconds that a and b take, next to each other in time, the other one first in every second round."""
    times: tuple[list[float], list[float]] = [], []
    for i in range(-WARM_UP, rounds):
        for which in (0, 1) if i % 2 else (1, 0):
            start = time.perf_counter()
            (a, b)[which]()
            if i >= 0:
                times[which].append(time.perf_counter() - start)
    return times


def _function(op: str, p: int) -> Callable[[Any], Any]:
    if op in ("all_reduce", "reduce_scatter"):
        return lambda x: getattr(us, op)(x, op="sum")
    if op == "permute":
        return lambda x: us.permute(x, [(i, (i + 1) % p) for i in range(p)])
    return lambda x: getattr(us, op)(x)


def _expected(op: str, xs: list[np.ndarray]) -> list[np.ndarray]:
    """Each replica's result, by NumPy."""
    p, together = len(xs), np.concatenate(xs)
    if op in ("all_reduce", "reduce_scatter"):
        total = sum(xs[1:], xs[0])
        return [total] * p if op == "all_reduce" else np.split(total, p)
    if op == "all_to_all":
        return list(together.reshape(p, p, -1).swapaxes(0, 1).reshape(p, -1))
    return {"all_gather": [together] * p, "broadcast": [xs[0]] * p, "permute": [xs[-1], *xs[:-1]]}[op]


def _wrong(got: Any, expected: np.ndarray) -> int:
    array = us.to_numpy(got)
    return int((array != expected).sum()) if array.shape == expected.shape else expected.size


def _bus_factor(op: str, p: int) -> float:
    if op in ("broadcast", "permute"):
        return 1.0
    return (2 if op == "all_reduce" else 1) * (p - 1) / p


def _sizes(smallest: str, largest: str) -> list[int]:
    low, high = _bytes("--min-bytes", smallest), _bytes("--max-bytes", largest)
    if low > high:
        raise ArgumentError(f"`--min-bytes` must be at most `--max-bytes`, got {smallest} and {largest}. Try: 1K 16M.")
    sizes = [low]
    while sizes[-1] * FACTOR <= high:
        sizes.append(sizes[-1] * FACTOR)
    return sizes


def _bytes(option: str, text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]?)(?:I?B)?", text.strip().upper())
    if found is None or int(found[1]) == 0:
        raise ArgumentError(f"`{option}` must be a number of bytes such as 512, 4K or 16M, got {text!r}. Try: 4K.")
    return int(found[1]) * 1024 ** " KMG".index(found[2] or " ")


def _show(about: dict[str, Any], rows: list[Row]) -> None:
    print(
        f"{about['backend']}, engine {about['engine']}, {about['replicas']} replicas, median of {about['iterations']} "
        "calls\ntime and by hand in µs; algbw and busbw in GB/s, 1 GB = 1e9 bytes"
    )
    width = len(rows[0].op)
    print(
        f"{'bytes':>8} {'count':>7} {'dtype':7} {'op':{width}} {'time':>7} {'algbw':>5} {'busbw':>5} {'errors':>6} "
        f"{'by hand':>7} {'ratio':>5}"
    )
    for r in rows:
        print(
            f"{r.bytes:>8} {r.count:>7} {r.dtype:7} {r.op} {r.time_us:>7.1f} {r.algbw_gb_per_s:>5.2f} "
            f"{r.busbw_gb_per_s:>5.2f} {r.errors:>6} {r.by_hand_us:>7.1f} {r.ratio:>5.2f}"
        )

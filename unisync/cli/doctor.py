"""`unisync doctor`: what is installed, what it runs on, how fast memory is, and what is missing with the cure."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, final

import numpy as np
import typer

import unisync as us
from unisync import _dispatch
from unisync.backends import installed
from unisync.errors import MissingDependencyError

_COPY_BYTES = 8 * 2**20  # larger arrays get fresh pages each time, whose making would be timed instead
_COPIES = 64  # until an allocator gives the same memory again
_OPTIONAL = {  # module → (what it is for, extra)
    "torch": ("the torch backend", "torch"),
    "jax": ("the jax backend", "jax"),
    "tensorflow": ("the tensorflow backend", "tensorflow"),
    "sklearn": ("the digits data", "examples"),
    "mpi4py": ("NumPy on many machines", "mpi"),
    "tensorboardX": ("TensorBoard logs", "tensorboard"),
    "matplotlib": ("plots", "plot"),
}


@final
@dataclass(frozen=True, slots=True)
class BackendReport:
    """What one backend says of itself; `error` says why it cannot be used."""

    name: str
    version: str | None = None
    devices: tuple[str, ...] = ()
    copy_gb_per_s: float | None = None
    error: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Missing:
    """A library that is not installed, what it would be for, and how to get it."""

    module: str
    purpose: str
    cure: str


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Show backends, devices, copy speeds, and what is missing."""
    reports = [examine(name) for name in _dispatch.BACKENDS]
    machine = _machine()
    missing = [
        Missing(module, purpose, f"pip install '.[{extra}]'")
        for module, (purpose, extra) in _OPTIONAL.items()
        if importlib.util.find_spec(module) is None
    ]
    if as_json:
        content = {"machine": machine, "backends": reports, "missing": missing}
        print(json.dumps(content, default=dataclasses.asdict, indent=1))
    else:
        _show(machine, reports, missing)


def examine(name: str) -> BackendReport:
    """Load a backend, ask it for its devices, and measure how fast it moves 8 MiB on its default device."""
    try:
        module = _dispatch.load(name)
    except MissingDependencyError as error:
        return BackendReport(name, error=str(error))
    facts = module.describe()
    return BackendReport(
        name, str(facts["version"]), tuple(str(d) for d in facts["devices"]), round(_copy_bandwidth(module), 1)
    )


def _copy_bandwidth(module: Any) -> float:
    """GB moved from one array to another per second (each byte counted once; 1 GB = 1e9 bytes), best of 64.

    8 MiB can stay in a CPU's cache. Measured on a negation, since frameworks whose arrays cannot change do not copy
    when asked to.
    """
    x = module.asarray(np.ones(_COPY_BYTES // 4, np.float32))
    best = float("inf")
    for _ in range(_COPIES):
        start = time.perf_counter()
        module.block_until_ready(module.negative(x))
        best = min(best, time.perf_counter() - start)
    return _COPY_BYTES / best / 1e9


def _machine() -> dict[str, Any]:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "unisync": us.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": available,
        **_memory(),
    }


def _memory() -> dict[str, float | None]:
    """Total and available memory in GB (1e9 bytes); null where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        return {
            "memory_gb": round(kib["MemTotal"] * 1024 / 1e9, 1),
            "memory_available_gb": round(kib["MemAvailable"] * 1024 / 1e9, 1),
        }
    except (OSError, KeyError, ValueError, IndexError):
        return {"memory_gb": None, "memory_available_gb": None}


def _show(machine: dict[str, Any], reports: list[BackendReport], missing: list[Missing]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    console.print("unisync {unisync}, Python {python}, {system}".format(**machine))
    console.print("{cores} cores, {memory_gb} GB memory, {memory_available_gb} GB of it available".format(**machine))
    table = Table("backend", "version", "devices", "engine")
    table.add_column("copy GB/s", justify="right")
    for r in reports:
        if r.error is None:
            table.add_row(r.name, r.version, "\n".join(r.devices), "one replica", str(r.copy_gb_per_s))
        else:
            table.add_row(r.name, "cannot be imported" if installed(r.name) else "not installed", "", "", "")
    console.print(table)
    for r in reports:
        if r.error is not None and installed(r.name):
            console.print(f"{r.name}: {r.error}")
    if missing:
        table = Table("not installed", "needed for", "get it, in unisync's source folder")
        for m in missing:
            table.add_row(m.module, m.purpose, m.cure)
        console.print(table)

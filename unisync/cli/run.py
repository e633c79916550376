"""`unisync run`: start a program as many processes that work together, on this machine or on several."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import unisync as us
from unisync import _config
from unisync._dispatch import BACKENDS
from unisync.distributed.launch.output import Output
from unisync.distributed.launch.plan import Job
from unisync.distributed.launch.supervisor import Supervisor
from unisync.distributed.launch.watch import Outcome
from unisync.errors import ArgumentError, unknown

_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class RunCommand(TyperCommand):
    """Leaves all that follows the script, or `-m MODULE`, to the program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = False
        takes_value = {name for p in self.params for name in p.opts if not getattr(p, "is_flag", True)}
        place = 0
        while place < len(args) and args[place].startswith("-") and args[place] not in ("-", "--"):
            if args[place] in ("-m", "--module"):
                args = [*args[: place + 2], "--", *args[place + 2 :]]
                break
            place += 2 if args[place] in takes_value else 1
        return super().parse_args(ctx, args)


def run(
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT ARGS...", help="A Python file, and its own arguments.", show_default=False),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option("-m", "--module", metavar="MODULE", help="Run a module in place of a file, as python -m does."),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="numpy, torch, jax or tensorflow. [default: $UNISYNC_BACKEND, else numpy]"),
    ] = None,
    replicas: Annotated[int, typer.Option(metavar="N", help="Processes on this machine.")] = 1,
    nnodes: Annotated[int, typer.Option(metavar="K", help="Machines; the command is started on each.")] = 1,
    node_rank: Annotated[int, typer.Option(metavar="R", help="Which of them this is, from 0.")] = 0,
    rendezvous: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where the first machine listens to the others.")
    ] = None,
    log_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep each rank's output there, as rank-0.log, ...")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="S", help="Seconds that a collective waits for a replica. [default: 600]"),
    ] = None,
) -> None:
    """Start a program once per replica, each in a process of its own."""
    job = Job(
        arguments=_arguments(program or [], module),
        backend=_backend(backend),
        replicas=replicas,
        timeout_s=timeout,
        log_dir=log_dir,
        nodes=nnodes,
        node=node_rank,
        rendezvous=rendezvous,
    )
    job.check()
    _make_folder(log_dir)
    outcome = _supervised(job)
    if outcome.code:
        typer.echo(f"unisync: {outcome.text}", err=True)
        raise typer.Exit(outcome.code)


def _arguments(program: list[str], module: str | None) -> tuple[str, ...]:
    if module is not None:
        return ("-m", module, *program)
    if not program or program[0] == "-":
        raise ArgumentError("`script` must be a Python file, got none. Try: unisync run --replicas 2 script.py.")
    if not Path(program[0]).exists():
        raise ArgumentError(
            f"`script` must be a Python file, got {program[0]}, which does not exist. "
            f"Try: its path, or -m {program[0].removesuffix('.py')} for a module."
        )
    return tuple(program)


def _make_folder(log_dir: Path | None) -> None:
    if log_dir is None:
        return
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"`--log-dir` must be a folder that can be made, got {log_dir} ({error.strerror}). Try: --log-dir logs."
        ) from error


def _backend(name: str | None) -> str:
    if name is not None and name not in BACKENDS:
        raise unknown("backend", name, BACKENDS)
    return name or us.current_backend()


def _supervised(job: Job) -> Outcome:
    plain = bool(_config.variable("NO_COLOR"))
    colour = [name for name in ("out", "err") if not plain and getattr(sys, f"std{name}").isatty()]
    supervisor = Supervisor(job, lambda closed: Output(sys.stdout, sys.stderr, job.log_dir, colour, closed))
    before = {number: signal.signal(number, lambda number, frame: supervisor.stop(number)) for number in _ENDING}
    try:
        return supervisor.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

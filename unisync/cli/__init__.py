"""The command line: `unisync train`, `unisync run`, `unisync doctor`, `unisync bench`. A thin face over the library."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import unisync as us
from unisync.cli.bench import app as bench
from unisync.cli.doctor import doctor
from unisync.cli.run import RunCommand, run
from unisync.cli.train import train
from unisync.errors import UnisyncError


class _Commands(TyperGroup):
    """Turns an error that the user can mend into one line on stderr and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UnisyncError as error:
            if ctx.params["debug"]:
                raise
            typer.echo(f"unisync: {error}", err=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=_Commands,
    name="unisync",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(train)
app.command(cls=RunCommand)(run)
app.command()(doctor)
app.add_typer(bench)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unisync {us.__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Write a model once, train it on NumPy, PyTorch, JAX or TensorFlow by flag."""


def main() -> None:
    """Run the command line."""
    app()

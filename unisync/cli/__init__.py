"""The command line: `unisync train`, `unisync doctor`, `unisync bench`. A thin face over the library."""

from __future__ import annotations

import sys

import typer

from unisync.cli.bench import app as bench
from unisync.cli.doctor import doctor
from unisync.cli.train import train
from unisync.errors import UnisyncError

app = typer.Typer(
    name="unisync",
    help="Write a model once, train it on NumPy, PyTorch, JAX or TensorFlow by flag.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(train)
app.command()(doctor)
app.add_typer(bench)


def main() -> None:
    """Run the command line; an error that the user can mend is one line on stderr and exit code 1."""
    try:
        app()
    except UnisyncError as error:
        sys.exit(f"unisync: {error}")
    except KeyboardInterrupt:
        sys.exit(130)

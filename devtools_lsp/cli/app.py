"""The command table. Heavy imports stay inside the commands, so that `--help` and the proxy start quickly."""

from __future__ import annotations

import json
import sys
import traceback

import typer

from devtools_lsp import __version__
from devtools_lsp.cli import bridge, calls, people, setup
from devtools_lsp.cli.options import EXIT_REFUSED
from devtools_lsp.errors import StepFailedError

app = typer.Typer(
    name="devtools-lsp",
    help="One warm daemon per repository: safe one-call tools for agents, live view and approval for people.",
    epilog="Editors run `devtools-lsp stdio [--root DIR]`: a thin proxy that starts the daemon when none runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

setup.register(app)
calls.register(app)
people.register(app)
bridge.register(app)


def _version(show: bool) -> None:
    if show:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(  # pyright: ignore[reportUnusedFunction] -- typer calls it
    version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True, callback=_version),
) -> None:
    """Options of the program itself."""


def main() -> None:
    """Run the command line. A fault of ours ends it like a failure: exit code 1 says that a call was done."""
    try:
        app()
    except Exception as error:
        traceback.print_exc()
        fault = StepFailedError(f"this is a bug of ours ({type(error).__name__}: {error})", retry="no")
        print(json.dumps(fault.to_wire(), ensure_ascii=True), file=sys.stderr)
        sys.exit(EXIT_REFUSED)

"""The command table. Heavy imports stay inside the commands, so that `--help` and the proxy start quickly."""

from __future__ import annotations

import typer

from devtools_lsp import __version__
from devtools_lsp.cli import bridge, calls, people, setup

app = typer.Typer(
    name="devtools-lsp",
    help="One warm daemon per repository: safe one-call tools for agents, live view and approval for people.",
    epilog="Editors run `devtools-lsp stdio [--root DIR]`: a thin proxy that starts the daemon when none runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
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
    """Run the command line."""
    app()

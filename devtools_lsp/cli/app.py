"""The command table. Heavy imports stay inside the commands, so that `--help` and the proxy start quickly."""

from __future__ import annotations

import sys
import traceback
from typing import cast

import typer

from devtools_lsp import __version__
from devtools_lsp.cli import bridge, calls, people, setup
from devtools_lsp.cli.options import EXIT_REFUSED, tell
from devtools_lsp.errors import BadArgumentError, DevToolsError, StepFailedError

_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])
"""What every misuse of the command line is raised as; typer exports only its subclasses."""

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
    """Run the command line and end the process: 0 to 2 as SPEC 8.0.1 says, 130 after Ctrl-C.

    A fault of ours ends it like a failure: exit code 1 says that a call was done.
    """
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except _UsageError as error:
        context = error.ctx
        command = context.command_path if context is not None else "devtools-lsp"
        message = f"{error.format_message().rstrip('.')}; `{command} --help` says what it takes"
        fault: DevToolsError = BadArgumentError(message, reason="malformed")
    except DevToolsError as error:
        fault = error
    except OSError as error:
        fault = StepFailedError(f"{error.filename or 'the system refused'}: {error.strerror}", retry="no")
    except Exception as error:
        traceback.print_exc()
        fault = StepFailedError(f"this is a bug of ours ({type(error).__name__}: {error})", retry="no")
    else:
        sys.exit(code if isinstance(code, int) else 0)
    tell(fault)
    sys.exit(EXIT_REFUSED)

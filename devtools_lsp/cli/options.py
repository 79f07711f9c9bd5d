"""What every command shares: the root, machine-readable output, exit codes, and how errors are told.

An error goes to standard error: as its JSON object for programs, as sentences where a person looks (a terminal, and
no `--json`). Standard output holds what was asked for and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console

from devtools_lsp import discovery
from devtools_lsp.client import Client
from devtools_lsp.core.refusal import known_lines
from devtools_lsp.errors import BadArgumentError, DevToolsError

EXIT_OK = 0
EXIT_ERROR_DIAGNOSTICS = 1
EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130

RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root",
        help="The workspace root; default: the nearest directory up with devtools.toml, pyproject.toml or .git.",
        show_default=False,
        readable=False,  # Whether it may be a root is judged, and said, in one place for every command and client.
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs, errors included.")]
SessionOption = Annotated[
    str | None,
    typer.Option(
        "--session",
        help="A name for who reads and edits: edit_file takes only files that the same session has read. Calls with "
        "the same name share one; without it each call, and each run of mcp, is a session of its own.",
    ),
]

Value = TypeVar("Value")


class InterruptedCallError(Exception):
    """Ctrl-C ended a call; `cause` says what became of it."""

    def __init__(self, cause: DevToolsError) -> None:
        super().__init__(cause.message)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where one command prints: `out` for what was asked for, standard error for everything else."""

    as_json: bool
    out: Console

    @classmethod
    def of(cls, as_json: bool) -> Terminal:
        """A terminal for a command; colours only where a person looks."""
        return cls(as_json, Console(highlight=False, soft_wrap=True))

    def show(self, value: Any) -> None:
        """Print a value as JSON."""
        print(json.dumps(value, indent=2, ensure_ascii=False))


def checked_root(root: Path | None) -> Path:
    """The root that the options name, or the nearest one; ends the command when there is none."""
    try:
        return discovery.checked_root(root) if root is not None else discovery.find_root(Path.cwd())
    except DevToolsError as error:
        refuse(error)


def refuse(error: DevToolsError, code: int = EXIT_REFUSED) -> NoReturn:
    """End with exit code 2 (or another) and the error on standard error."""
    tell(error)
    raise typer.Exit(code)


def tell(error: DevToolsError) -> None:
    """Print an error: where it may come from before the options are known, the command line itself is looked at."""
    if "--json" in sys.argv or not sys.stderr.isatty():
        print(json.dumps(error.to_wire(), ensure_ascii=False), file=sys.stderr)
    else:
        for line in error_lines(error):
            print(line, file=sys.stderr)


def error_lines(error: DevToolsError) -> list[str]:
    """An error for a person: what is wrong and what to do, then what else is known of it."""
    about = [error.code, *([error.reason] if error.reason is not None else [])]
    return [*error.message.splitlines(), f"  ({', '.join(about)})", *(f"  {line}" for line in known_lines(error))]


def run(work: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine to its end; the taxonomy's errors end the command with exit code 2."""
    try:
        return asyncio.run(work)
    except DevToolsError as error:
        refuse(error)
    except InterruptedCallError as error:
        refuse(error.cause, EXIT_INTERRUPTED)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def read_json(text: str | None, what: str) -> Any:
    """JSON from an option, or from standard input when the option is absent or `-`."""
    source, given = what, text or ""
    try:
        if text is None or text == "-":
            source = f"standard input (there is no {what})" if text is None else "standard input"
            if sys.stdin.isatty():
                typer.echo(f"reading the JSON for {what} from standard input; Ctrl-D ends it", err=True)
            given = sys.stdin.read()
        if not given.strip():
            refuse(BadArgumentError(f"{source} is empty; give JSON, `{{}}` for nothing", reason="malformed"))
        return json.loads(given)
    except ValueError as error:
        refuse(BadArgumentError(f"{source} is not valid JSON: {error}", reason="malformed"))


def tell_version(client: Client) -> None:
    """Say on standard error when the daemon is of another version than this command."""
    if client.version_note is not None:
        typer.echo(client.version_note, err=True)

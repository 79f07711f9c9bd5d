"""What every command shares: the root, machine-readable output, exit codes, and how errors are told."""

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
from devtools_lsp.errors import BadArgumentError, DevToolsError

EXIT_OK = 0
EXIT_ERROR_DIAGNOSTICS = 1
EXIT_REFUSED = 2

RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root",
        help="The workspace root; default: the nearest directory up with devtools.toml, pyproject.toml or .git.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

Value = TypeVar("Value")


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


def refuse(error: DevToolsError) -> NoReturn:
    """End with exit code 2 and the error object on standard error."""
    print(json.dumps(error.to_wire(), ensure_ascii=False), file=sys.stderr)
    raise typer.Exit(EXIT_REFUSED)


def run(work: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine to its end; the taxonomy's errors end the command with exit code 2."""
    try:
        return asyncio.run(work)
    except DevToolsError as error:
        refuse(error)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def read_json(text: str | None, what: str) -> Any:
    """JSON from an option, or from standard input when the option is absent or `-`."""
    source = sys.stdin.read() if text is None or text == "-" else text
    try:
        return json.loads(source)
    except ValueError as error:
        refuse(BadArgumentError(f"{what} is not valid JSON: {error}", reason="malformed"))


def tell_version(client: Client) -> None:
    """Say on standard error when the daemon is of another version than this command."""
    if client.version_note is not None:
        typer.echo(client.version_note, err=True)

"""The command that serves MCP clients: nothing but MCP goes to standard output."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from devtools_lsp import discovery
from devtools_lsp.cli.options import EXIT_INTERRUPTED, RootOption, SessionOption, checked_root, refuse
from devtools_lsp.errors import DevToolsError, InvalidConfigError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("mcp")(mcp)


def mcp(
    root: RootOption = None,
    surface: Annotated[
        Literal["granular", "composite", "workspace"],
        typer.Option("--surface", help="granular (default), composite for frontier models, or workspace."),
    ] = "granular",
    session: SessionOption = None,
) -> None:
    """Serve the tools of a root over MCP on stdin and stdout; starts the daemon when none runs.

    Ends when stdin closes; exit code 2 when the root or the installation is not fit.
    """
    if sys.stdin is None or sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] -- so when closed
        # The next file that we open would take their place, and be taken for the client.
        refuse(InvalidConfigError("`devtools-lsp mcp` speaks on stdin and stdout, and one of them is closed"))
    found = checked_root(root)
    try:
        # A place that no socket can have is told now; what a person may mend meanwhile is told with each call.
        discovery.socket_path(found)
        discovery.state_directory(found)
    except DevToolsError as error:
        refuse(error)
    from devtools_lsp.mcp_bridge import require_sdk
    from devtools_lsp.mcp_bridge.proxy import Proxy

    try:
        require_sdk()
        code = Proxy(found, surface, session).run()
    except DevToolsError as error:
        refuse(error)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)

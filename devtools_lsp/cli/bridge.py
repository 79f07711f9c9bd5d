"""The command that serves MCP clients: nothing but MCP goes to standard output."""

from __future__ import annotations

import logging
from typing import Annotated, Literal

import typer

from devtools_lsp import discovery
from devtools_lsp.cli.options import RootOption, SessionOption, checked_root, refuse, run
from devtools_lsp.errors import DevToolsError


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
    found = checked_root(root)
    logging.basicConfig(level=logging.WARNING, format="devtools-lsp mcp: %(message)s")
    try:
        # A place that no socket can have is told now; what a person may mend meanwhile is told with each call.
        discovery.socket_path(found)
        discovery.state_directory(found)
    except DevToolsError as error:
        refuse(error)
    from devtools_lsp.mcp_bridge import serve_mcp

    run(serve_mcp(found, surface=surface, session=session))

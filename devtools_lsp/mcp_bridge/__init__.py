"""`devtools-lsp mcp`: the tools of one root for any MCP client, over stdin and stdout (SPEC 8.0.15).

The bridge is a client of the daemon's socket like any other and holds no rule about what may happen. The MCP SDK is
an optional extra, because installed into a project's own environment its web framework would meet the project's.
"""

from __future__ import annotations

import logging
import threading
from importlib.util import find_spec
from pathlib import Path

from devtools_lsp import discovery
from devtools_lsp.errors import DevToolsError, InvalidConfigError
from devtools_lsp.wire.messages import Surface

__all__ = ["serve_mcp"]

_log = logging.getLogger(__name__)


async def serve_mcp(root: Path, *, surface: Surface, session: str | None) -> None:
    """Serve a checked root on stdin and stdout until stdin ends. Raises InvalidConfigError without the MCP SDK."""
    if find_spec("mcp") is None:
        raise InvalidConfigError(
            "`devtools-lsp mcp` needs the MCP SDK, which is not installed: pip install 'devtools-lsp[mcp]'"
        )
    threading.Thread(target=_start_daemon, args=(root,), daemon=True).start()
    # Half a second of imports that no other command pays for, while the daemon starts in its own process.
    from devtools_lsp.mcp_bridge.serving import serve

    await serve(root, surface, session)


def _start_daemon(root: Path) -> None:
    """Have the daemon up when the client introduces itself; what prevents it is told then, to the client, too."""
    try:
        discovery.connect_or_start(root).close()
    except (DevToolsError, OSError) as error:
        _log.warning("no daemon yet: %s", error)

"""MCP (SPEC 8.0.15): `devtools-lsp mcp` copies a client's lines to the daemon, where the SDK serves them.

`proxy` is the process at the client's pipes. It is small and starts at once: the imports of the SDK, most of a second,
are the daemon's, once. The rest runs in the daemon and holds no rule about what may happen: it is a client of the
agents' door like any other. The SDK is an optional extra, because installed into a project's own environment its web
framework would meet the project's. Only `dispatcher`, `eras` and `serving` know it.
"""

from __future__ import annotations

from importlib.util import find_spec

from devtools_lsp.errors import InvalidConfigError


def require_sdk() -> None:
    """Raise InvalidConfigError when the MCP SDK is not installed."""
    if find_spec("mcp") is None:
        raise InvalidConfigError(
            "`devtools-lsp mcp` needs the MCP SDK, which is not installed: pip install 'devtools-lsp[mcp]'"
        )

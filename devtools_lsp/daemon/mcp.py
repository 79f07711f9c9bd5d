"""MCP clients: whoever asks for `devtools/mcp` sends messages of that protocol in frames from then on.

Owns loading the MCP SDK, once and in a thread, and the end of such a client. What the messages mean is the business of
`mcp_bridge`.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import logging
from typing import TYPE_CHECKING

from devtools_lsp.daemon.calls import CallBounds
from devtools_lsp.daemon.doors import AgentDoor, Channel, Peer
from devtools_lsp.daemon.inner import InnerClients
from devtools_lsp.errors import InvalidConfigError
from devtools_lsp.mcp_bridge import require_sdk
from devtools_lsp.wire.messages import McpParams

if TYPE_CHECKING:
    from devtools_lsp.mcp_bridge.serving import Session

_log = logging.getLogger(__name__)

_SERVING = "devtools_lsp.mcp_bridge.serving"


@functools.cache
def _load() -> None:
    """Import what serves MCP: most of a second, which nobody pays for who has no MCP client. For a thread.

    Raises InvalidConfigError when the SDK is not installed, or is not one that we know.
    """
    require_sdk()
    try:
        importlib.import_module(_SERVING)
    except ImportError as error:
        raise InvalidConfigError(
            f"the MCP SDK in the daemon's environment does not fit: {error}; pip install 'devtools-lsp[mcp]'"
        ) from error
    # It stays for good, and the collector need not go over it now and then.
    gc.freeze()


class McpClient:
    """One MCP client behind a connection, which may speak for several agents: see `peers`."""

    def __init__(self, clients: InnerClients, session: Session, label: str, close_s: float) -> None:
        self._clients = clients
        self._session = session
        self._label = label
        self._close_s = close_s
        self.receive = session.receive
        """Takes one message of the client; returns what has to be awaited before the next one, mostly nothing."""

    @classmethod
    async def open(
        cls, door: AgentDoor, channel: Channel, label: str, params: McpParams, *, bounds: CallBounds, close_s: float
    ) -> McpClient:
        """Begin to serve one. Raises InvalidConfigError when the MCP SDK is not installed here."""
        if not _load.cache_info().currsize:
            # Whoever comes while it is being imported waits in a thread as well, not on the loop.
            await asyncio.to_thread(_load)
        from devtools_lsp.mcp_bridge.serving import open_session

        clients = InnerClients(door, label, bounds, params.root)
        surface = params.surface or "granular"
        session = open_session(clients.connect, channel.send, channel.drain, surface=surface, session=params.session)
        return cls(clients, session, label, close_s)

    def peers(self) -> list[Peer]:
        """The agents that have introduced themselves."""
        return self._clients.peers()

    async def end(self, reason: str) -> None:
        """Cancel what runs, with its answers, and end the session within a bound."""
        await self._clients.end(reason)
        try:
            async with asyncio.timeout(self._close_s):
                await self._session.closed()
        except Exception:
            _log.exception("%s: the MCP session did not end well", self._label)

"""MCP clients: whoever asks for `devtools/mcp` sends messages of that protocol in frames from then on.

Owns loading the MCP SDK, once and in a thread, and the end of such a client. What the messages mean is the business of
`mcp_bridge`.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import sys
from typing import TYPE_CHECKING

from devtools_lsp.daemon.calls import CallBounds
from devtools_lsp.daemon.doors import AgentDoor, Channel, Peer
from devtools_lsp.daemon.inner import InnerClients
from devtools_lsp.mcp_bridge import require_sdk
from devtools_lsp.wire.messages import McpParams

if TYPE_CHECKING:
    from devtools_lsp.mcp_bridge.serving import Session

_log = logging.getLogger(__name__)

_SERVING = "devtools_lsp.mcp_bridge.serving"


class McpClient:
    """One MCP client behind a connection, which may speak for several agents: see `peers`."""

    def __init__(self, clients: InnerClients, session: Session, label: str, close_s: float) -> None:
        self._clients = clients
        self._session = session
        self._label = label
        self._close_s = close_s

    @classmethod
    async def open(
        cls, door: AgentDoor, channel: Channel, label: str, params: McpParams, *, bounds: CallBounds, close_s: float
    ) -> McpClient:
        """Begin to serve one. Raises InvalidConfigError when the MCP SDK is not installed here."""
        require_sdk()
        if _SERVING not in sys.modules:
            # Most of a second of imports, which nobody pays for who has no MCP client. They stay for good, and the
            # collector need not go over them now and then.
            await asyncio.to_thread(importlib.import_module, _SERVING)
            gc.freeze()
        from devtools_lsp.mcp_bridge.serving import open_session

        clients = InnerClients(door, label, bounds, params.root)
        surface = params.surface or "granular"
        session = open_session(clients.connect, channel.send, channel.drain, surface=surface, session=params.session)
        return cls(clients, session, label, close_s)

    def peers(self) -> list[Peer]:
        """The agents that have introduced themselves."""
        return self._clients.peers()

    async def receive(self, body: bytes) -> None:
        """One message of the client."""
        await self._session.receive(body)

    async def end(self, reason: str) -> None:
        """Cancel what runs, with its answers, and end the session within a bound."""
        await self._clients.end(reason)
        try:
            async with asyncio.timeout(self._close_s):
                await self._session.closed()
        except Exception:
            _log.exception("%s: the MCP session did not end well", self._label)

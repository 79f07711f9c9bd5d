"""The way from an MCP session to the daemon's tools: one client for each agent, made when it is needed.

Owns noticing that the offered tools changed. Knows nothing of MCP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from devtools_lsp.client import Client, NotificationCallback
from devtools_lsp.errors import DevToolsError, WorkspaceBoundsError
from devtools_lsp.mcp_bridge.words import Agent
from devtools_lsp.wire.messages import Surface

_log = logging.getLogger(__name__)

TOOLS_CHANGED = "devtools/toolsChanged"
MAX_AGENTS = 32
"""For how many agents one MCP client may speak; each is a peer of the daemon until that client is gone."""


class Connect(Protocol):
    """Makes a client that has introduced itself; raises DevToolsError when it is refused."""

    async def __call__(
        self,
        *,
        name: str,
        version: str,
        surface: Surface | None,
        session: str | None,
        on_notification: NotificationCallback | None = None,
    ) -> Client:
        """The client."""
        ...


class Upstream:
    """The clients of one session. `on_tools_changed` is called on the loop, without waiting."""

    def __init__(
        self, connect: Connect, surface: Surface, session: str | None, on_tools_changed: Callable[[], None]
    ) -> None:
        self._connect = connect
        self._surface: Surface = surface
        self._session = session
        self._on_tools_changed = on_tools_changed
        self._clients: dict[Agent, Client] = {}
        self._connecting = asyncio.Lock()
        self._offered: list[dict[str, Any]] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._stale = False

    async def client(self, agent: Agent) -> Client:
        """The client of an agent. Raises DevToolsError when it is refused."""
        found = self._clients.get(agent)
        if found is not None:
            return found
        async with self._connecting:
            found = self._clients.get(agent)
            if found is None:
                if len(self._clients) >= MAX_AGENTS:
                    raise WorkspaceBoundsError(
                        f"this connection speaks for {MAX_AGENTS} agents already; use one of their names, or another "
                        "connection"
                    )
                found = self._clients[agent] = await self._connect(
                    name=agent.name,
                    version=agent.version,
                    surface=self._surface,
                    session=self._session,
                    on_notification=lambda method, _params: self._told(agent, method),
                )
        return found

    async def tools(self, agent: Agent) -> list[dict[str, Any]]:
        """The tools as they are offered now."""
        client = await self.client(agent)
        self._offered = await client.tools()
        return self._offered

    async def close(self) -> None:
        """Disconnect; what still runs is cancelled."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    def _told(self, agent: Agent, method: str) -> None:
        if method == TOOLS_CHANGED and self._offered is not None:
            self._refresh(agent)

    def _refresh(self, agent: Agent) -> None:
        self._stale = True
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._compare(agent), name="offered tools")

    async def _compare(self, agent: Agent) -> None:
        """Ask for the tools again, and tell only when they are not those that were listed last."""
        while self._stale:
            self._stale = False
            client = self._clients.get(agent)
            if client is None:
                return
            try:
                fresh = await client.tools()
            except DevToolsError as error:
                # Whoever asks next is told.
                _log.info("the offered tools are not known: %s", error.message)
                return
            if fresh != self._offered:
                self._offered = fresh
                self._on_tools_changed()

"""The bridge's way to the daemon: one connection for each agent, made when needed and made anew when lost.

Owns starting, reconnecting, and noticing that the offered tools changed. Knows nothing of MCP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from devtools_lsp.client import Client, connect
from devtools_lsp.errors import DevToolsError
from devtools_lsp.mcp_bridge.words import Agent
from devtools_lsp.wire.messages import Surface

_log = logging.getLogger(__name__)

TOOLS_CHANGED = "devtools/toolsChanged"


class Upstream:
    """Connections to the daemon of one root. `on_tools_changed` is called on the loop, without waiting."""

    def __init__(self, root: Path, surface: Surface, session: str | None, on_tools_changed: Callable[[], None]) -> None:
        self._root = root
        self._surface: Surface = surface
        self._session = session
        self._on_tools_changed = on_tools_changed
        self._clients: dict[Agent, Client] = {}
        self._watching: dict[Client, asyncio.Task[None]] = {}
        self._connecting = asyncio.Lock()
        self._offered: list[dict[str, Any]] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._stale = False

    async def client(self, agent: Agent) -> Client:
        """The connection for an agent; the daemon is started when none runs. Raises DevToolsError when it cannot be."""
        found = self._clients.get(agent)
        if found is not None:
            return found
        async with self._connecting:
            found = self._clients.get(agent)
            if found is None:
                found = await self._connect(agent)
        return found

    async def tools(self, agent: Agent) -> list[dict[str, Any]]:
        """The tools as they are offered now."""
        client = await self.client(agent)
        self._offered = await client.tools()
        return self._offered

    async def close(self) -> None:
        """Disconnect; what still runs is cancelled in the daemon."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        for client, task in list(self._watching.items()):
            task.cancel()
            await client.close()
        self._clients.clear()

    async def _connect(self, agent: Agent) -> Client:
        client = await connect(
            self._root,
            name=agent.name,
            version=agent.version,
            surface=self._surface,
            session=self._session,
            on_notification=lambda method, _params: self._told(agent, method),
        )
        if client.version_note is not None:
            _log.warning("%s", client.version_note)
        self._clients[agent] = client
        self._watching[client] = asyncio.create_task(self._watch(agent, client), name=f"daemon of {agent.name}")
        if self._offered is not None:
            # Another daemon than before, perhaps with another configuration.
            self._refresh(agent)
        return client

    async def _watch(self, agent: Agent, client: Client) -> None:
        lost = await client.lost()
        if self._clients.get(agent) is client:
            del self._clients[agent]
        del self._watching[client]
        _log.warning("%s; the next call connects again", lost.message)
        await client.close()

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
                # Whoever asks next is told; a lost connection refreshes when it is made again.
                _log.info("the offered tools are not known: %s", error.message)
                return
            if fresh != self._offered:
                self._offered = fresh
                self._on_tools_changed()

"""The two ways in which an MCP client introduces itself, on one connection (the SDK's server behind both).

Until 2025 a client shakes hands once, with `initialize`; since 2026-07-28 every request carries in `_meta` who sends it
and which revision it speaks. The first request decides for the connection, and the other way is refused from then on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

import mcp_types as types
from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.lowlevel.server import Server
from mcp.server.models import InitializationOptions
from mcp.server.runner import ServerRunner, aclose_shielded, serve_one
from mcp.shared.dispatcher import DispatchContext, Outbound
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.shared.transport_context import TransportContext
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS

Params = Mapping[str, Any] | None
Context = DispatchContext[TransportContext]


class Eras:
    """The SDK's server for one client, whichever way it speaks. `on_request` and `on_notify` are for a dispatcher."""

    def __init__(self, server: Server[Any], outbound: Outbound, options: InitializationOptions) -> None:
        self._server = server
        self._told = NotifyOnlyOutbound(outbound)
        self._connection = Connection.for_loop(outbound)
        self._handshake = ServerRunner(server, self._connection, None, init_options=options)
        self._modern: bool | None = None

    def on_request(self, context: Context, method: str, params: Params) -> Awaitable[dict[str, Any]]:
        """Answer one request; raises MCPError, at once or when it is awaited, or what the handler raises."""
        enveloped = method != "initialize" and _has_envelope(params)
        if self._modern is None:
            self._modern = enveloped
        if self._modern:
            return self._answer_modern(context, method, params)
        if enveloped:
            raise MCPError(
                types.INVALID_REQUEST,
                "this connection began with the handshake; requests with an envelope of their own are not for it",
            )
        return self._handshake.on_request(context, method, params)

    async def on_notify(self, context: Context, method: str, params: Params) -> None:
        """Hear one notification."""
        if not self._modern:
            await self._handshake.on_notify(context, method, params)
            return
        # A notification carries no envelope, and nothing in one depends on the revision.
        connection = Connection.from_envelope(LATEST_MODERN_VERSION, None, None, outbound=self._told)
        try:
            await ServerRunner(self._server, connection, None).on_notify(context, method, params)
        finally:
            await aclose_shielded(connection)

    async def close(self) -> None:
        """Undo what handlers have left with the connection."""
        await aclose_shielded(self._connection)

    async def _answer_modern(self, context: Context, method: str, params: Params) -> dict[str, Any]:
        if method == "initialize":
            raise MCPError(
                types.UNSUPPORTED_PROTOCOL_VERSION,
                f"this connection speaks {LATEST_MODERN_VERSION}, which has no handshake",
                {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": (params or {}).get("protocolVersion")},
            )
        route = classify_inbound_request({"method": method, "params": params})
        if isinstance(route, InboundLadderRejection):
            raise MCPError(route.code, route.message, route.data)
        connection = Connection.from_envelope(
            route.protocol_version, route.client_info, route.client_capabilities, outbound=self._told
        )
        return await serve_one(self._server, context, method, params, connection=connection, lifespan_state=None)


def _has_envelope(params: Params) -> bool:
    # What a client sends is plain JSON.
    meta: Any = params.get("_meta") if params else None
    return isinstance(meta, dict) and types.PROTOCOL_VERSION_META_KEY in meta

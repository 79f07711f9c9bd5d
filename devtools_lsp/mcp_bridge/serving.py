"""The MCP server itself: requests of the SDK's low-level server, each a few lines that call the daemon.

The only module that knows the SDK. `structuredContent` is the call's result as the socket gives it, or an error's
`data`; text is made in `words`. An error of the taxonomy is a tool result with `isError`, never a protocol error.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from devtools_lsp import __version__
from devtools_lsp.agent.render import refusal_text
from devtools_lsp.client import Client
from devtools_lsp.errors import DevToolsError
from devtools_lsp.mcp_bridge import words
from devtools_lsp.mcp_bridge.dispatcher import MessageDispatcher
from devtools_lsp.mcp_bridge.eras import Eras
from devtools_lsp.mcp_bridge.progress import ProgressRelay
from devtools_lsp.mcp_bridge.upstream import Connect, Upstream
from devtools_lsp.mcp_bridge.words import Agent
from devtools_lsp.wire.messages import Surface

_log = logging.getLogger(__name__)

LISTED_ARTIFACTS = 20

Context = ServerRequestContext[Any, Any]


class Bridge:
    """One MCP client's session over one root."""

    def __init__(self, connect: Connect, surface: Surface, session: str | None) -> None:
        self._upstream = Upstream(connect, surface, session, self._tools_changed)
        self._artifacts: deque[tuple[str, str, int]] = deque(maxlen=LISTED_ARTIFACTS)
        self._agent = words.agent(None, None)
        self._handshake: ServerSession | None = None
        self._bus = InMemorySubscriptionBus()
        self._telling: set[asyncio.Task[None]] = set()
        self.server: Server[Any] = Server(
            "devtools-lsp",
            version=__version__,
            title="devtools-lsp",
            on_list_tools=self._list_tools,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.server.add_request_handler("tools/call", types.CallToolRequestParams, self._call_tool_completely)
        self.server.add_notification_handler("notifications/initialized", types.NotificationParams, self._initialized)
        # The SDK would wrap every message in a tracing span; nobody traces this process, and a call pays for it.
        self.server.middleware[:] = [self._serve]

    async def close(self) -> None:
        """Let go of the daemon."""
        for task in self._telling:
            task.cancel()
        await self._upstream.close()

    # -- introduction --------------------------------------------------------------------------------------------

    async def _serve(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/call" and _has_shaken_hands(ctx):
            # A middleware may answer by itself. The SDK would judge the params twice, and what we made of them after
            # that; with the newer revision it completes results as well.
            params = types.CallToolRequestParams.model_validate(ctx.params or {}, by_name=False)
            return await self._call_tool(ctx, params)
        if ctx.method in ("initialize", "server/discover"):
            return await self._introduce(ctx, call_next)
        return await call_next(ctx)

    async def _introduce(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Give the answer to an introduction its instructions, which depend on what the daemon offers."""
        given = (ctx.params or {}).get("clientInfo")
        if isinstance(given, dict):
            stated: dict[str, Any] = given  # pyright: ignore[reportUnknownVariableType] -- JSON, judged by the SDK below
            self._agent = words.agent(stated.get("name"), stated.get("version"))
        result = await call_next(ctx)
        dumped = result.model_dump(by_alias=True, exclude_none=True) if isinstance(result, BaseModel) else result
        return {**(dumped or {}), "instructions": await self._instructions(self._agent_of(ctx))}

    async def _instructions(self, agent: Agent) -> str:
        try:
            client = await self._upstream.client(agent)
            tools = await self._upstream.tools(agent)
        except DevToolsError as error:
            _log.info("an MCP client was refused: %s", error.message)
            raise MCPError(types.INTERNAL_ERROR, error.message, error.to_wire()) from error
        gate: Any = client.server.gate
        mode = gate.get("mode") if isinstance(gate, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] -- another version's JSON
        return words.instructions(
            client.server.root, tools, mode if isinstance(mode, str) else None, client.version_note
        )

    async def _initialized(self, context: Context, _params: types.NotificationParams) -> None:
        self._handshake = context.session

    def _agent_of(self, context: Context) -> Agent:
        """Who calls: the client as it named itself with this request, or in the handshake."""
        given = context.session.client_params
        if given is None:
            return self._agent
        return words.agent(given.client_info.name, given.client_info.version)

    # -- tools ---------------------------------------------------------------------------------------------------

    async def _list_tools(
        self, context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        try:
            offered = await self._upstream.tools(self._agent_of(context))
        except DevToolsError as error:
            raise MCPError(types.INTERNAL_ERROR, error.message, error.to_wire()) from error
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in offered])

    async def _call_tool_completely(self, context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        """A result as the newer revision has it."""
        return {**await self._call_tool(context, params), "resultType": "complete"}

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        """A `CallToolResult` as plain data, which the SDK would make of its model."""
        try:
            client = await self._upstream.client(self._agent_of(context))
            if context.meta and "progress_token" in context.meta:
                result = await self._call_with_progress(client, context, params)
            else:
                # Everything that a call waits for has a bound of its own in the daemon: a person's decision, a command,
                # an engine, another call's files.
                result = await client.call(params.name, params.arguments, timeout_s=None)
        except DevToolsError as error:
            return tool_result(refusal_text(error), error.to_wire(), is_error=True)
        artifact = result["artifact"]
        self._artifacts.append((artifact["handle"], params.name, artifact["total"]))
        return tool_result(words.result_text(result), result, is_error=False)

    async def _call_with_progress(
        self, client: Client, context: Context, params: types.CallToolRequestParams
    ) -> dict[str, Any]:
        async def send(number: float, text: str) -> None:
            await context.session.report_progress(number, message=text)

        async with ProgressRelay(send) as relay:
            return await client.call(params.name, params.arguments, progress=relay.put, timeout_s=None)

    def _tools_changed(self) -> None:
        task = asyncio.create_task(self._tell_tools_changed(), name="tools/list_changed")
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell_tools_changed(self) -> None:
        if self._handshake is not None:
            await self._handshake.send_tool_list_changed()
        # Clients of the protocol without a handshake have subscribed, or do not want to know.
        await self._bus.publish(ToolsListChanged())

    # -- artifacts -----------------------------------------------------------------------------------------------

    async def _list_resources(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """The newest results of this session; older ones are read by their handle."""
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    name=f"{tool} {handle}",
                    title=f"Full result of {tool} ({total} diagnostics)",
                    uri=words.artifact_uri(handle),
                    mime_type="application/json",
                )
                for handle, tool, total in reversed(self._artifacts)
            ]
        )

    async def _list_templates(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    name="artifact",
                    title="Full result",
                    uri_template=words.ARTIFACT_TEMPLATE,
                    description="Every diagnostic of a result, in pages; a page says how to read the next one.",
                    mime_type="application/json",
                )
            ]
        )

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        try:
            address = words.read_artifact_uri(uri)
            client = await self._upstream.client(self._agent_of(context))
            page = await client.artifact(address.handle, **address.filters)
        except DevToolsError as error:
            raise MCPError(types.INVALID_PARAMS, error.message, error.to_wire()) from error
        text = types.TextResourceContents(uri=uri, mime_type="application/json", text=words.page_text(uri, page))
        return types.ReadResourceResult(contents=[text])


def tool_result(text: str, structured: dict[str, Any], *, is_error: bool) -> dict[str, Any]:
    """A tool's result in the form that the SDK's own model of it has as plain data."""
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured, "isError": is_error}


def _has_shaken_hands(context: Context) -> bool:
    return context.session.client_params is not None and context.protocol_version not in MODERN_PROTOCOL_VERSIONS


class Session:
    """One MCP client's session; implements `doors.McpSession`."""

    def __init__(self, bridge: Bridge, dispatcher: MessageDispatcher, eras: Eras) -> None:
        self._bridge = bridge
        self._dispatcher = dispatcher
        self._eras = eras
        self.receive = dispatcher.receive
        """Takes one message of the client; returns what has to be awaited before the next one, mostly nothing."""

    async def closed(self) -> None:
        """The client is gone: cancel what runs."""
        await self._dispatcher.close()
        await self._eras.close()
        await self._bridge.close()


def open_session(
    connect: Connect,
    send: Callable[[bytes], None],
    room: Callable[[], Awaitable[None]],
    *,
    surface: Surface,
    session: str | None,
) -> Session:
    """A session whose messages go out through `send` and `room`, as `MessageDispatcher` says."""
    bridge = Bridge(connect, surface, session)
    options = bridge.server.create_initialization_options(NotificationOptions(tools_changed=True))
    dispatcher = MessageDispatcher(send, room)
    eras = Eras(bridge.server, dispatcher, options)
    dispatcher.serve(eras.on_request, eras.on_notify)
    return Session(bridge, dispatcher, eras)

"""One accepted connection: messages judged, the role fixed, every request answered exactly once.

The first request fixes the role (SPEC 8.0.3). An agent's or terminal's `devtools/*` requests run as `Calls`;
an editor's LSP messages go to its session, and its `devtools/*` requests run as `Calls` as well; after
`devtools/mcp` every message is an MCP client's and goes to its session. Everything that is wrong with a frame or a
message is answered here with the standard codes. Knows nothing of what any method does, and touches no other
connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from devtools_lsp import __version__
from devtools_lsp.daemon.calls import Answer, CallBounds, Calls, internal_error
from devtools_lsp.daemon.channel import ABORT_BYTES, HIGH_WATER_BYTES, STALL_S, StreamChannel
from devtools_lsp.daemon.doors import Doors, EditorSession, Peer
from devtools_lsp.daemon.intake import Intake
from devtools_lsp.daemon.introduction import editor_peer, introduced_peer, unnamed_peer
from devtools_lsp.daemon.mcp import McpClient
from devtools_lsp.errors import DevToolsError
from devtools_lsp.wire.framing import Fault
from devtools_lsp.wire.messages import (
    INVALID_REQUEST,
    PARSE_ERROR,
    SERVER_NOT_INITIALIZED,
    CancelParams,
    ErrorAnswer,
    Incoming,
    InvalidParamsError,
    McpParams,
    MethodNotFoundError,
    RequestId,
    RpcError,
    UnusableMessageError,
    decode_incoming,
    decode_params,
    encode,
    error_object,
)

_log = logging.getLogger(__name__)

_OF_ITSELF = frozenset({"devtools/stop", "devtools/initialize", "devtools/mcp"})
"""Requests that are about the connection, or the daemon, and not for the agents' door."""


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """How long a client may dawdle and how much may wait for it. Durations in seconds, sizes in bytes."""

    frame_stall_s: float = 30.0
    id_stall_s: float = 1.0
    attach_s: float = 30.0
    close_s: float = 5.0
    high_water_bytes: int = HIGH_WATER_BYTES
    abort_bytes: int = ABORT_BYTES
    write_stall_s: float = STALL_S
    calls: CallBounds = field(default_factory=CallBounds)


class Connection:
    """One client, from accept to its end. `run` returns when it is gone and everything of it has ended."""

    def __init__(
        self,
        transport: asyncio.Transport,
        doors: Doors,
        identity: str,
        stop: Callable[[str], None],
        bounds: ConnectionBounds | None = None,
    ) -> None:
        self._bounds = bounds or ConnectionBounds()
        self._channel = StreamChannel(
            transport,
            identity,
            high_water_bytes=self._bounds.high_water_bytes,
            abort_bytes=self._bounds.abort_bytes,
            stall_s=self._bounds.write_stall_s,
        )
        self._doors = doors
        self._identity = identity
        self._stop = stop
        self._peer: Peer | None = None
        self._attached = False
        self._calls: Calls | None = None
        self._session: EditorSession | None = None
        self._mcp: McpClient | None = None
        self._started = time.monotonic()
        self._end_reason = "the client disconnected"
        self._intake = Intake(
            transport,
            self._channel,
            identity,
            self._receive,
            self._tell,
            frame_stall_s=self._bounds.frame_stall_s,
            id_stall_s=self._bounds.id_stall_s,
        )

    @property
    def peers(self) -> list[Peer]:
        """Who it is, once the first request told; an MCP client may speak for several."""
        if self._mcp is not None:
            return self._mcp.peers()
        return [self._peer] if self._peer is not None else []

    @property
    def age_s(self) -> float:
        """Seconds since it was accepted."""
        return time.monotonic() - self._started

    def shut(self, reason: str, socket_path: str) -> None:
        """Begin its end from our side: nothing more is read, its calls are cancelled with the reason, it is closed."""
        self._end_reason = reason
        if self._session is not None:
            # An editor comes back by itself after a crash, and must not bring back what a person has stopped: it
            # waits until there is a socket again.
            self._channel.notify("devtools/stopping", {"reason": reason, "socket": socket_path})
        self._intake.cancel()

    async def run(self) -> None:
        """Serve until either side ends it; everything of it has ended then."""
        try:
            await self._intake.ended()
        finally:
            self._intake.cancel()
            await self._end()

    # -- refusals ------------------------------------------------------------------------------------------------

    def _tell(self, fault: Fault) -> None:
        _log.info("%s: %s", self._identity, fault.message)
        self._refuse(fault.request_id, RpcError(fault.code, fault.message))

    def _refuse(self, request_id: RequestId | None, error: RpcError | DevToolsError) -> None:
        self._channel.send(encode(ErrorAnswer(id=request_id, error=error_object(error))))

    # -- messages ------------------------------------------------------------------------------------------------

    def _receive(self, body: bytes) -> Awaitable[None] | None:
        """One message; what has to be awaited before the next one."""
        try:
            message = decode_incoming(body)
        except UnusableMessageError as error:
            _log.info("%s: %s", self._identity, error.message)
            self._refuse(error.request_id, error)
            return None
        if isinstance(message.method, msgspec.UnsetType):
            return self._receive_answer(message, body)
        if isinstance(message.id, int | str):
            return self._receive_request(message.id, message.method, message, body)
        return self._receive_notification(message.method, message, body)

    def _receive_answer(self, message: Incoming, body: bytes) -> Awaitable[None] | None:
        if self._session is None or not isinstance(message.id, int | str):
            _log.info("%s: an answer to nothing that was asked is dropped", self._identity)
            return None
        return self._inform_session(body)

    def _receive_notification(self, method: str, message: Incoming, body: bytes) -> Awaitable[None] | None:
        if method == "$/cancelRequest" and self._cancel(message):
            return None
        if self._session is not None and not method.startswith("devtools/"):
            if _structured(message.params):
                return self._inform_session(body)
            _log.info("%s: %s with malformed params is dropped", self._identity, method)
        elif method == "exit" and self._peer is None:
            self._channel.close()
        elif not method.startswith("$/"):
            _log.info("%s: the notification %r is dropped; nobody takes it", self._identity, method[:100])
        return None

    def _cancel(self, message: Incoming) -> bool:
        """Cancel a call of ours; false when the id is not one, so that the editor's session may know it."""
        if self._calls is None:
            return False
        try:
            request_id = decode_params(message.params, CancelParams).id
        except RpcError as error:
            _log.info("%s: $/cancelRequest: %s", self._identity, error.message)
            return True
        return self._calls.cancel(request_id)

    def _receive_request(
        self, request_id: RequestId, method: str, message: Incoming, body: bytes
    ) -> Awaitable[None] | None:
        if self._calls is None or not self._attached or not method.startswith("devtools/") or method in _OF_ITSELF:
            return self._route_safely(request_id, method, message, body)
        try:
            self._calls.start(request_id, method, _params_of(message))
        except (Exception, SystemExit) as error:
            self._report_fault(request_id, method, error)
        return None

    async def _route_safely(self, request_id: RequestId, method: str, message: Incoming, body: bytes) -> None:
        try:
            await self._route(request_id, method, message, body)
        except (RpcError, DevToolsError) as error:
            self._refuse(request_id, error)
        except (Exception, SystemExit) as error:
            self._report_fault(request_id, method, error)

    def _report_fault(self, request_id: RequestId, method: str, error: BaseException) -> None:
        """Answer for a fault of ours."""
        _log.error("%s: %s failed", self._identity, method[:100], exc_info=error)
        self._refuse(request_id, internal_error(method[:100], type(error).__name__))

    async def _route(self, request_id: RequestId, method: str, message: Incoming, body: bytes) -> None:
        if method == "devtools/stop":
            # Clients of any version, introduced or not, with whatever params, can end the daemon.
            Answer(self._channel, request_id, method).result({"stopping": True, "pid": os.getpid()})
            self._stop("a client asked for it")
        elif method == "devtools/initialize":
            await self._introduce_agent(request_id, message)
        elif method == "initialize":
            await self._introduce_editor(message)
            await self._to_session(body)
        elif method == "devtools/mcp":
            await self._introduce_mcp(request_id, message)
        elif method.startswith("devtools/"):
            calls = self._calls
            if calls is None:
                calls = self._fix_role(unnamed_peer(self._identity, self._channel))
            await self._attach()
            calls.start(request_id, method, _params_of(message))
        elif self._session is not None:
            if not _structured(message.params):
                raise InvalidParamsError("malformed params: an object or an array is expected")
            await self._to_session(body)
        elif self._peer is None:
            raise RpcError(SERVER_NOT_INITIALIZED, f"send `initialize` before {method[:100]!r}")
        else:
            raise MethodNotFoundError(method)

    async def _inform_session(self, body: bytes) -> None:
        """Hand on a message that has no answer, so that what is wrong can only be logged."""
        try:
            await self._to_session(body)
        except RpcError as error:
            self._refuse(None, error)
        except (Exception, SystemExit):
            _log.exception("%s: the editor's session failed", self._identity)

    async def _to_session(self, body: bytes) -> None:
        if self._session is None:
            return
        try:
            message = msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise RpcError(PARSE_ERROR, f"the body is not JSON: {error}") from None
        await self._session.receive(message)

    # -- roles ---------------------------------------------------------------------------------------------------

    def _fix_role(self, peer: Peer) -> Calls:
        self._peer = peer
        self._calls = Calls(self._doors.agents, peer, self._channel, self._bounds.calls)
        return self._calls

    def _require_no_role(self) -> None:
        if self._peer is not None:
            raise RpcError(
                INVALID_REQUEST,
                f"the first request fixed this connection as {self._peer.role}; open another connection",
            )

    async def _introduce_agent(self, request_id: RequestId, message: Incoming) -> None:
        self._require_no_role()
        self._fix_role(introduced_peer(message.params, self._identity, self._channel))
        try:
            result = await self._attach()
        except BaseException:
            # Who was refused may try again, as somebody else.
            self._peer = self._calls = None
            raise
        Answer(self._channel, request_id, "devtools/initialize").result(result)

    async def _introduce_editor(self, message: Incoming) -> None:
        self._require_no_role()
        if not _structured(message.params):
            raise InvalidParamsError("malformed params: an object is expected")
        peer = editor_peer(message.params, self._identity, self._channel)
        session = await self._doors.editors.open(peer)
        self._fix_role(peer)
        self._session = session

    async def _introduce_mcp(self, request_id: RequestId, message: Incoming) -> None:
        self._require_no_role()
        bounds = self._bounds
        self._mcp = await McpClient.open(
            self._doors.agents,
            self._channel,
            self._identity,
            decode_params(message.params, McpParams),
            bounds=bounds.calls,
            close_s=bounds.close_s,
        )
        self._intake.receive = self._mcp.receive
        Answer(self._channel, request_id, "devtools/mcp").result({"server": "devtools-lsp", "version": __version__})

    async def _attach(self) -> object:
        """Tell the agents' door of this peer, once; its result is the answer to an introduction."""
        if self._attached or self._peer is None:
            return None
        async with asyncio.timeout(self._bounds.attach_s):
            result = await self._doors.agents.attach(self._peer)
        self._attached = True
        return result

    # -- the end -------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        # Whoever is leaving does not count any more, while what it began is still being ended.
        peer, self._peer = self._peer, None
        if self._mcp is not None:
            await self._mcp.end(self._end_reason)
        if self._session is not None:
            self._session.leaving()
        if self._calls is not None:
            await self._calls.close(self._end_reason)
        if self._session is not None:
            try:
                async with asyncio.timeout(self._bounds.close_s):
                    await self._session.closed()
            except Exception:
                _log.exception("%s: the editor's session did not end well", self._identity)
        if self._attached and peer is not None:
            try:
                self._doors.agents.detached(peer)
            except Exception:
                _log.exception("%s: detached failed", self._identity)
        await self._channel.wait_closed()


def _params_of(message: Incoming) -> msgspec.Raw:
    return message.params if isinstance(message.params, msgspec.Raw) else msgspec.Raw(b"{}")


def _structured(params: msgspec.Raw | msgspec.UnsetType) -> bool:
    """Whether params are what JSON-RPC allows: absent, null (which clients do send), an object or an array."""
    return isinstance(params, msgspec.UnsetType) or bytes(memoryview(params)[:1]) in (b"{", b"[", b"n")

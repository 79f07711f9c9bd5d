"""JSON-RPC for the MCP SDK, between one client's messages and the SDK's handlers.

The SDK's own dispatcher passes each message through two queues and a task group, which costs an edit more than
everything else about MCP. Owns ids, who is being answered, cancellation and the order of the introduction; methods and
params are the SDK's to judge. Nothing is ever asked of the client: only told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import anyio
import mcp_types as types
import msgspec
from mcp.shared.dispatcher import CallOptions, OnNotify, OnRequest, as_request_id
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data, progress_token_from_params
from mcp.shared.transport_context import TransportContext

from devtools_lsp.mcp_bridge.ids import meant_request
from devtools_lsp.wire.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorAnswer,
    ErrorObject,
    Notification,
    RequestId,
    ResultAnswer,
    UnusableMessageError,
    decode_incoming,
    encode,
)

_log = logging.getLogger(__name__)

MAX_REQUESTS = 4096
"""How many requests of one client may be open; its calls have a smaller bound of their own."""

_TRANSPORT = TransportContext(kind="stdio", can_send_request=False)
_decode_params = msgspec.json.Decoder(dict[str, Any] | None).decode
_CLOSED = ErrorObject(types.CONNECTION_CLOSED, "Connection closed")


class Asked(msgspec.Struct, eq=False):
    """One message of the client and what may be told about it while it is handled: the SDK's `DispatchContext`."""

    dispatcher: MessageDispatcher
    request_id: RequestId | None
    params: Mapping[str, Any] | None
    unwanted: bool = False
    """The client has cancelled it, so it is never answered."""
    over: bool = False
    task: asyncio.Task[None] | None = None
    cancelled: anyio.Event | None = None
    transport: TransportContext = _TRANSPORT
    can_send_request: bool = False
    message_metadata: None = None

    @property
    def cancel_requested(self) -> anyio.Event:
        """Set when the client cancels it."""
        if self.cancelled is None:
            self.cancelled = anyio.Event()
            if self.unwanted:
                self.cancelled.set()
        return self.cancelled

    def cancel(self) -> None:
        """The client does not want it any more."""
        self.unwanted = True
        if self.cancelled is not None:
            self.cancelled.set()
        if self.task is not None:
            self.task.cancel()

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Tell the client something that belongs to it."""
        if not self.over:
            await self.dispatcher.notify(method, params, opts)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Nothing is asked of the client."""
        del params, opts
        raise NoBackChannelError(method)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell how far it is, when the client gave a token for that."""
        token = progress_token_from_params(self.params)
        if token is None:
            return
        known = {"progressToken": token, "progress": progress, "total": total, "message": message}
        await self.notify("notifications/progress", {name: value for name, value in known.items() if value is not None})


class MessageDispatcher:
    """One client, behind whoever hands on its messages (`receive`) and takes ours (`send`, which must not wait).

    `send` raises FrameTooLargeError for what it cannot take; `room` waits for a client that reads slowly. `serve` comes
    before the first message.
    """

    def __init__(self, send: Callable[[bytes], None], room: Callable[[], Awaitable[None]]) -> None:
        self._send = send
        self._room = room
        self._handled: dict[RequestId, Asked] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._introduction: asyncio.Task[None] | None = None
        self._closed = False
        self._on_request: OnRequest | None = None
        self._on_notify: OnNotify | None = None

    def serve(self, on_request: OnRequest, on_notify: OnNotify) -> None:
        """Say who handles what arrives."""
        self._on_request, self._on_notify = on_request, on_notify

    async def close(self) -> None:
        """Nothing more arrives: what is still handled is cancelled, and answered as such."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Tell the client something; after the end it is dropped."""
        del opts
        if self._closed:
            return
        self._write(Notification(method=method, params=msgspec.UNSET if params is None else params))
        await self._room()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Nothing is asked of the client."""
        del params, opts
        raise NoBackChannelError(method)

    # -- what arrives --------------------------------------------------------------------------------------------

    def receive(self, body: bytes) -> Awaitable[None] | None:
        """One message of the client; what has to be awaited before the next one is given, mostly nothing.

        While the client is being introduced, what follows waits for the end of that.
        """
        if self._introduction is not None:
            return self._receive_later(self._introduction, body)
        try:
            message = decode_incoming(body)
        except UnusableMessageError as error:
            self._refuse(error.request_id, error.code, error.message)
            return None
        if not isinstance(message.method, str):
            # An answer, and nothing was asked.
            return None
        try:
            params = _decode_params(message.params) if isinstance(message.params, msgspec.Raw) else None
        except (msgspec.DecodeError, RecursionError) as error:
            request_id = message.id if isinstance(message.id, int | str) else None
            code = INVALID_REQUEST if isinstance(error, msgspec.ValidationError) else PARSE_ERROR
            self._refuse(request_id, code, f"params must be an object: {error}")
            return None
        if isinstance(message.id, int | str):
            self._receive_request(message.id, message.method, params)
        else:
            self._receive_notification(message.method, params)
        return None

    async def _receive_later(self, introduction: asyncio.Task[None], body: bytes) -> None:
        await asyncio.wait([introduction])
        self._introduction = None
        self.receive(body)

    def _receive_request(self, request_id: RequestId, method: str, params: dict[str, Any] | None) -> None:
        before = self._handled.get(request_id)
        if before is not None and not before.unwanted and not before.over:
            self._refuse(request_id, INVALID_REQUEST, f"a request with id {request_id!r} still runs; use a fresh id")
            return
        if len(self._handled) >= MAX_REQUESTS:
            self._refuse(request_id, INTERNAL_ERROR, f"{MAX_REQUESTS:,} requests are open already; wait for answers")
            return
        asked = Asked(self, request_id, params)
        self._handled[request_id] = asked
        asked.task = asyncio.get_running_loop().create_task(
            self._answer(asked, request_id, method, params), name=method
        )
        self._tasks.add(asked.task)
        asked.task.add_done_callback(partial(self._forget, asked, request_id))
        if method == "initialize":
            self._introduction = asked.task

    def _receive_notification(self, method: str, params: dict[str, Any] | None) -> None:
        if method == "notifications/cancelled":
            named = as_request_id((params or {}).get("requestId"))
            request_id = None if named is None else meant_request(named, self._handled)
            if request_id is not None:
                self._handled[request_id].cancel()
        task = asyncio.get_running_loop().create_task(self._hear(method, params), name=method)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hear(self, method: str, params: dict[str, Any] | None) -> None:
        assert self._on_notify is not None
        try:
            await self._on_notify(Asked(self, None, params), method, params)
        except Exception:
            _log.exception("%s could not be dealt with", method)

    # -- answers -------------------------------------------------------------------------------------------------

    async def _answer(self, asked: Asked, request_id: RequestId, method: str, params: dict[str, Any] | None) -> None:
        """Handle one request: exactly one answer, and none to what the client has cancelled."""
        assert self._on_request is not None
        answer: ResultAnswer | ErrorAnswer
        try:
            answer = ResultAnswer(id=request_id, result=await self._on_request(asked, method, params))
        except asyncio.CancelledError:
            answer = ErrorAnswer(id=request_id, error=_CLOSED)
        except Exception as error:
            answer = ErrorAnswer(id=request_id, error=_error_of(error, method))
        asked.over = True
        if not asked.unwanted:
            self._write(answer)
            await self._room()

    def _forget(self, asked: Asked, request_id: RequestId, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not asked.over and not asked.unwanted:
            # Cancelled before it began.
            self._write(ErrorAnswer(id=request_id, error=_CLOSED))
        asked.over = True
        if self._handled.get(request_id) is asked:
            del self._handled[request_id]

    def _refuse(self, request_id: RequestId | None, code: int, message: str) -> None:
        self._write(ErrorAnswer(id=request_id, error=ErrorObject(code, message)))

    def _write(self, message: ResultAnswer | ErrorAnswer | Notification) -> None:
        try:
            self._send(encode(message))
        except (TypeError, ValueError) as error:
            # It is no JSON, or too large for a frame; a notification is dropped for that, an answer is not.
            _log.warning("something cannot be told to an MCP client: %s", error)
            if isinstance(message, ResultAnswer):
                self._write(ErrorAnswer(id=message.id, error=ErrorObject(INTERNAL_ERROR, f"no answer: {error}")))


def _error_of(error: Exception, method: str) -> ErrorObject:
    """What the client is told of a failure: the SDK's own words for its errors, nothing but the fact for a fault."""
    told = handler_exception_to_error_data(error)
    if told is None:
        _log.error("%s failed", method, exc_info=error)
        return ErrorObject(INTERNAL_ERROR, "internal error; the daemon's log has the details")
    return ErrorObject(told.code, told.message, told.data)

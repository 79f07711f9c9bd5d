"""pygls for one connection of many: what must differ from a program that serves one client and then exits.

Owns every private name of pygls that this project touches; `tests/daemon/test_pygls_probe.py` fails when an upgrade
changes one of them. Bytes, frames and everything that is no well-formed message are the connection's; what an
editor may do is the session's (`EditorHandlers`).

Different from pygls: `exit` ends this connection only; each request is answered exactly once, malformed, unknown or
early ones included; errors carry our taxonomy and no traceback; cancelling reaches the running handler; futures are
forgotten when they are done; late answers are dropped; documents are the session's own (`daemon/documents.py`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, Protocol, cast

from cattrs import Converter
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.protocol import JsonRPCResponseMessage, LanguageServerProtocol, default_converter

from devtools_lsp import __version__
from devtools_lsp.daemon.doors import Channel
from devtools_lsp.errors import DevToolsError
from devtools_lsp.wire.framing import FrameTooLargeError
from devtools_lsp.wire.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    REQUEST_CANCELLED,
    ErrorAnswer,
    ErrorObject,
    InvalidParamsError,
    MethodNotFoundError,
    RequestId,
    RpcError,
    error_object,
)

_log = logging.getLogger(__name__)


class EditorHandlers(Protocol):
    """What an editor may ask and tell. Errors that may be told are DevToolsError and RpcError."""

    def initializing(self, params: types.InitializeParams) -> None:
        """`initialize`, before the capabilities are computed."""
        ...

    def offer(self, capabilities: types.ServerCapabilities) -> None:
        """Complete what the server says it can do."""
        ...

    def initialized(self) -> None:
        """The editor is ready."""
        ...

    def opened(self, params: types.DidOpenTextDocumentParams) -> None:
        """didOpen."""
        ...

    def changed(self, params: types.DidChangeTextDocumentParams) -> None:
        """didChange."""
        ...

    def saved(self, params: types.DidSaveTextDocumentParams) -> None:
        """didSave."""
        ...

    def closed_document(self, params: types.DidCloseTextDocumentParams) -> None:
        """didClose."""
        ...

    def code_actions(self, params: types.CodeActionParams) -> list[types.CodeAction | types.Command]:
        """What can be done here."""
        ...

    async def execute(self, command: str, arguments: list[Any]) -> object:
        """Run one of the commands that were offered."""
        ...

    async def content(self, uri: str) -> str:
        """The text of a document that only we have."""
        ...

    def leaving(self) -> None:
        """`shutdown`: nothing is asked of this editor any more."""
        ...


@lru_cache(maxsize=1)
def shared_converter() -> Converter:
    """One converter for all connections: making one costs 8 ms, and the first use of each type as much again."""
    return default_converter()


def prepare() -> None:
    """Do once, in a thread, what the first editor would otherwise wait for."""
    converter = shared_converter()
    samples: tuple[tuple[type, dict[str, Any]], ...] = (
        (
            types.InitializeRequest,
            {"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}},
        ),
        (
            types.CodeActionRequest,
            {
                "id": 1,
                "method": "textDocument/codeAction",
                "params": {
                    "textDocument": {"uri": "file:///"},
                    "range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}},
                    "context": {"diagnostics": []},
                },
            },
        ),
    )
    for kind, sample in samples:
        converter.unstructure(converter.structure({"jsonrpc": "2.0", **sample}, kind))


class EditorServer(LanguageServer):
    """pygls' server object for one editor. It never starts anything: the connection brings the messages."""

    def __init__(self, handlers: EditorHandlers, channel: Channel) -> None:
        self.handlers = handlers
        self.channel = channel
        super().__init__(  # pyright: ignore[reportUnknownMemberType] -- pygls leaves *args untyped
            "devtools-lsp",
            __version__,
            protocol_cls=EditorProtocol,
            converter_factory=shared_converter,
        )

    @property
    def editor(self) -> EditorProtocol:
        """The protocol, by its own type."""
        return cast("EditorProtocol", self.protocol)

    def report_server_error(self, error: Exception, source: object) -> None:
        """To the log: editors show such messages to people, who can do nothing about them."""
        _log.error("an editor's message could not be handled (%s): %s", source, error, exc_info=error)


class EditorProtocol(LanguageServerProtocol):
    """The protocol of one connection. `accept` takes its messages in order; it never raises for what a client sent."""

    def __init__(self, server: EditorServer, converter: Converter) -> None:
        self._own = server
        self._unanswered: set[RequestId] = set()
        self._asked: set[RequestId] = set()
        self._count = itertools.count(1)
        self._state = "new"
        super().__init__(server, converter)
        self._taken = self._take_over()

    # -- in ------------------------------------------------------------------------------------------------------

    def accept(self, message: Mapping[str, Any]) -> None:
        """One well-formed JSON-RPC message."""
        method = message.get("method")
        if not isinstance(method, str):
            self._accept_answer(message)
        elif "id" in message:
            try:
                self._accept_request(message["id"], method, message)
            except RpcError as error:
                self.refuse(message["id"], error)
        else:
            self._accept_notification(method, message)

    def _accept_request(self, request_id: RequestId, method: str, message: Mapping[str, Any]) -> None:
        if request_id in self._unanswered:
            raise RpcError(INVALID_REQUEST, f"a request with id {request_id!r} is still running; use a fresh id")
        if self._state == "left":
            raise RpcError(INVALID_REQUEST, "shut down: only exit is taken now")
        if method == types.INITIALIZE and self._state != "new":
            raise RpcError(INVALID_REQUEST, "initialize may be sent once")
        if method not in self._taken:
            raise MethodNotFoundError(method)
        structured = self._structured(method, message)
        self._unanswered.add(request_id)
        self.handle_message(structured)

    def _accept_notification(self, method: str, message: Mapping[str, Any]) -> None:
        if method != types.CANCEL_REQUEST and method not in self._taken:
            if not method.startswith("$/"):
                _log.debug("the notification %r is not taken", method[:100])
            return
        if self._state == "left" and method != types.EXIT:
            return
        try:
            structured = self._structured(method, message)
        except RpcError as error:
            _log.info("%s is dropped: %s", method, error.message)
            return
        if method == types.CANCEL_REQUEST and structured.params.id not in self._unanswered:
            # Editors cancel what was answered meanwhile all day long; pygls would log a warning each time.
            return
        self.handle_message(structured)

    def _structured(self, method: str, message: Mapping[str, Any]) -> Any:
        kind = self.get_message_type(method)
        if kind is None:
            raise MethodNotFoundError(method)
        given = dict(message)
        if given.get("params") is None:
            given.pop("params", None)
        try:
            return self._converter.structure(given, kind)
        except Exception as error:
            # cattrs reports what is wrong with a foreign value by many kinds of exceptions.
            raise InvalidParamsError(f"malformed params of {method}: {_first_fault(error)}") from None

    def _accept_answer(self, message: Mapping[str, Any]) -> None:
        request_id = message.get("id")
        if request_id not in self._asked:
            _log.info("a late or foreign answer is dropped")
            return
        self._asked.discard(request_id)
        future = self._request_futures.pop(request_id, None)
        kind = self._result_types.pop(request_id, None) or JsonRPCResponseMessage
        if future is None or future.done():
            return
        if message.get("error") is not None:
            error = cast("Mapping[str, Any]", message["error"])
            future.set_exception(JsonRpcException(str(error.get("message", "")), code=error.get("code")))
            return
        try:
            future.set_result(self._converter.structure(dict(message), kind).result)
        except Exception as error:
            # As above: whatever the editor answered, it is not what it was asked for.
            future.set_exception(JsonRpcException(f"malformed result: {_first_fault(error)}"))

    # -- out -----------------------------------------------------------------------------------------------------

    def _send_data(self, data: Any) -> None:
        self._own.channel.send(self._converter.unstructure(data))

    def _send_response(
        self, msg_id: RequestId, result: Any | None = None, error: types.ResponseError | None = None
    ) -> None:
        if error is not None:
            self.refuse(msg_id, RpcError(error.code, error.message))
            return
        if msg_id not in self._unanswered:
            _log.error("a second answer to %r was dropped", msg_id)
            return
        self._unanswered.discard(msg_id)
        kind = self._result_types.pop(msg_id, JsonRPCResponseMessage)
        try:
            self._send_data(kind(id=msg_id, result=result, jsonrpc=self.VERSION))
        except FrameTooLargeError as fault:
            self._unanswered.add(msg_id)
            self.refuse(msg_id, RpcError(INTERNAL_ERROR, str(fault)))

    def refuse(self, request_id: RequestId, error: RpcError | DevToolsError) -> None:
        """Answer a request with an error."""
        self._unanswered.discard(request_id)
        self._result_types.pop(request_id, None)
        self._own.channel.send(ErrorAnswer(id=request_id, error=error_object(error)))

    def _send_handler_result(self, future: Future[Any], *, msg_id: RequestId) -> None:
        if future.cancelled():
            self.refuse(msg_id, RpcError(REQUEST_CANCELLED, "the request was cancelled"))
            return
        fault = future.exception()
        if fault is None:
            self._send_response(msg_id, result=future.result())
        elif isinstance(fault, DevToolsError | RpcError):
            self.refuse(msg_id, fault)
        elif isinstance(fault, JsonRpcException):
            self.refuse(msg_id, RpcError(fault.code, fault.message))
        else:
            _log.error("an editor's request failed", exc_info=fault)
            self._own.channel.send(
                ErrorAnswer(
                    id=msg_id,
                    error=ErrorObject(INTERNAL_ERROR, f"it failed inside the daemon ({type(fault).__name__})"),
                )
            )
            self._unanswered.discard(msg_id)

    async def ask(self, method: str, params: object) -> Any:
        """Send a request and await its answer. When the caller is cancelled, so is the request at the editor."""
        request_id = f"devtools-{next(self._count)}"
        self._asked.add(request_id)
        try:
            return await self.send_request_async(method, params, msg_id=request_id)
        except asyncio.CancelledError:
            self._own.channel.notify(types.CANCEL_REQUEST, {"id": request_id})
            raise
        finally:
            self._asked.discard(request_id)
            self._request_futures.pop(request_id, None)
            self._result_types.pop(request_id, None)

    # -- book-keeping --------------------------------------------------------------------------------------------

    def _execute_handler(
        self,
        msg_id: RequestId,
        handler: Callable[..., Any],
        callback: Callable[[Future[Any]], None],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        def finished(future: Future[Any]) -> None:
            self._request_futures.pop(msg_id, None)
            callback(future)

        super()._execute_handler(msg_id, handler, finished, args, kwargs)

    def get_message_type(  # pyright: ignore[reportIncompatibleVariableOverride] -- pygls' is wrapped by its cache
        self, method: str
    ) -> type[Any] | None:
        """Without pygls' cache on the class, which would keep every connection alive."""
        return types.METHOD_TO_TYPES.get(method, (None,))[0]

    def get_result_type(  # pyright: ignore[reportIncompatibleVariableOverride] -- as above
        self, method: str
    ) -> type[Any] | None:
        """As above."""
        return types.METHOD_TO_TYPES.get(method, (None, None))[1]

    def end(self) -> None:
        """The connection is gone: cancel what runs and what waits for the editor."""
        self._state = "left"
        for future in list(self._request_futures.values()):
            future.cancel()
        self._request_futures.clear()

    # -- methods -------------------------------------------------------------------------------------------------

    def _take_over(self) -> frozenset[str]:
        """Everything that an editor may send, in one table; pygls' own handlers of the same name are replaced."""
        handlers = self._own.handlers
        table: dict[str, Callable[..., Any]] = {
            types.INITIALIZE: self._initialize,
            types.INITIALIZED: lambda *_params: handlers.initialized(),
            types.SHUTDOWN: self._shut_down,
            types.EXIT: lambda *_params: self._own.channel.close(),
            types.TEXT_DOCUMENT_DID_OPEN: handlers.opened,
            types.TEXT_DOCUMENT_DID_CHANGE: handlers.changed,
            types.TEXT_DOCUMENT_DID_SAVE: handlers.saved,
            types.TEXT_DOCUMENT_DID_CLOSE: handlers.closed_document,
            types.TEXT_DOCUMENT_CODE_ACTION: handlers.code_actions,
            types.WORKSPACE_EXECUTE_COMMAND: self._execute,
            types.WORKSPACE_TEXT_DOCUMENT_CONTENT: self._content,
        }
        for method, handler in table.items():
            self.fm.add_builtin_feature(method, handler)  # pyright: ignore[reportUnknownMemberType] -- bare Callable
        return frozenset(table)

    def _initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        self._own.handlers.initializing(params)
        self._state = "initialized"
        result: types.InitializeResult = yield from self.lsp_initialize(params)
        self._own.handlers.offer(result.capabilities)
        return result

    def _shut_down(self, *_params: Any) -> None:
        """Cancel what runs; the answer is null."""
        for future in list(self._request_futures.values()):
            future.cancel()
        self._state = "left"
        self._own.handlers.leaving()

    async def _execute(self, params: types.ExecuteCommandParams) -> object:
        """A coroutine, so that cancelling the request reaches it."""
        return await self._own.handlers.execute(params.command, list(params.arguments or []))

    async def _content(self, params: types.TextDocumentContentParams) -> types.TextDocumentContentResult:
        return types.TextDocumentContentResult(text=await self._own.handlers.content(params.uri))


def _first_fault(error: BaseException) -> str:
    """The innermost first cause that cattrs found, in few words."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    words = str(error) or type(error).__name__
    return words if len(words) <= 200 else words[:200] + "…"

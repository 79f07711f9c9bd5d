"""One attached editor: its documents, what it is shown, and how it comes and goes.

Implements `doors.EditorSession`, the hub's `Sink` and `ApprovalView`. It holds no state that another editor would
miss: when it goes, nothing goes with it but its own buffers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
from lsprotocol import types
from pygls.capabilities import ServerCapabilitiesBuilder
from pygls.exceptions import JsonRpcException

from devtools_lsp.daemon.approval_payload import REQUESTED, Approval, Resolution, encode_announcement
from devtools_lsp.daemon.approval_words import headline
from devtools_lsp.daemon.buffers import Change
from devtools_lsp.daemon.calls import Answer, internal_error
from devtools_lsp.daemon.doors import Peer
from devtools_lsp.daemon.editor_desk import COMMANDS, DIFF_SCHEME, EditorDesk
from devtools_lsp.daemon.editor_rooms import EditorRooms
from devtools_lsp.daemon.lsp_protocol import EditorServer
from devtools_lsp.daemon.lsp_rim import PositionEncoding, UriMap
from devtools_lsp.errors import DevToolsError
from devtools_lsp.pipeline.off_loop import off_loop
from devtools_lsp.wire.messages import (
    INVALID_REQUEST,
    REQUEST_CANCELLED,
    CancelParams,
    InvalidParamsError,
    RequestId,
    RpcError,
)

_log = logging.getLogger(__name__)

DIAGNOSTICS_ID = "devtools-lsp"
BACKLOG_SLICE = 20


class _DocumentId(msgspec.Struct, rename="camel"):
    uri: str


class _PullParams(msgspec.Struct, rename="camel"):
    text_document: _DocumentId
    previous_result_id: str | None = None


class _PreviousResult(msgspec.Struct):
    uri: str
    value: str


class _PullAllParams(msgspec.Struct, rename="camel"):
    previous_result_ids: list[_PreviousResult] = msgspec.field(default_factory=list[_PreviousResult])


class EditorSession:
    """One editor's session, from its `initialize` to the end of its connection."""

    def __init__(
        self, rooms: EditorRooms, peer: Peer, *, pull: bool, came_or_went: Callable[[EditorSession, bool], None]
    ) -> None:
        self.peer = peer
        self._rooms = rooms
        self._channel = channel = peer.channel
        self._came_or_went = came_or_went
        self._server = EditorServer(self, channel)
        self._desk = EditorDesk(rooms.approvals, rooms.hub, channel, self._server.editor, rooms.scratch)
        self._pull_configured = pull
        self._pulls = False
        self._refreshes = False
        self._encoding: PositionEncoding = "utf-16"
        self._uris = UriMap(rooms.root)
        self._attached = False
        self._catching_up = False
        self._backlog: deque[Approval] = deque()
        self._announcing: asyncio.Task[None] | None = None
        self._running: dict[RequestId, asyncio.Task[None]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._pulled: dict[str, Callable[[Any], Awaitable[object]]] = {
            types.TEXT_DOCUMENT_DIAGNOSTIC: self._pull_one,
            types.WORKSPACE_DIAGNOSTIC: self._pull_all,
        }

    # -- doors.EditorSession -------------------------------------------------------------------------------------

    async def receive(self, message: dict[str, Any]) -> None:
        """One message, in order. Long work is started as a task."""
        method, request_id = message.get("method"), message.get("id")
        if self._pulls and request_id is not None and method in self._pulled:
            # Ten thousand diagnostics are too many for pygls, so that pulls are answered past it.
            self._start(request_id, method, message.get("params"))
        elif method == types.CANCEL_REQUEST and self._cancel(message.get("params")):
            return
        else:
            self._server.editor.accept(message)

    async def closed(self) -> None:
        """The editor is gone; what waits for approval waits on for others."""
        self.leaving()
        self._rooms.buffers.gone(self)
        self._server.editor.end()
        tasks = [*self._running.values(), *(task for task in (self._refreshing, self._announcing) if task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._desk.close()

    # -- EditorHandlers ------------------------------------------------------------------------------------------

    def initializing(self, params: types.InitializeParams) -> None:
        """Negotiate encoding, names of files, and what the editor can show."""
        encoding = ServerCapabilitiesBuilder.choose_position_encoding(params.capabilities)
        self._encoding = cast("PositionEncoding", getattr(encoding, "value", encoding))
        folders = [folder.uri for folder in params.workspace_folders or []]
        self._uris = UriMap(self._rooms.root, [*folders, *([params.root_uri] if params.root_uri else [])])
        documents, workspace = params.capabilities.text_document, params.capabilities.workspace
        self._pulls = self._pull_configured and documents is not None and documents.diagnostic is not None
        self._refreshes = (
            workspace is not None and workspace.diagnostics is not None and bool(workspace.diagnostics.refresh_support)
        )
        self._desk.negotiate(params)

    def offer(self, capabilities: types.ServerCapabilities) -> None:
        """Say what this server does, and no more."""
        capabilities.text_document_sync = types.TextDocumentSyncOptions(
            open_close=True, change=types.TextDocumentSyncKind.Incremental, save=types.SaveOptions(include_text=False)
        )
        capabilities.code_action_provider = types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])
        capabilities.execute_command_provider = types.ExecuteCommandOptions(commands=list(COMMANDS))
        capabilities.workspace = types.WorkspaceOptions(
            text_document_content=types.TextDocumentContentOptions(schemes=[DIFF_SCHEME])
        )
        if self._pulls:
            capabilities.diagnostic_provider = types.DiagnosticOptions(
                identifier=DIAGNOSTICS_ID, inter_file_dependencies=True, workspace_diagnostics=True
            )

    def initialized(self) -> None:
        """Show what there is, and count as somebody to ask; not before, since an editor may be asked nothing then."""
        if self._attached:
            return
        self._attached = True
        self._came_or_went(self, True)
        self._rooms.hub.attach(self)
        self._catching_up = True
        self._rooms.approvals.attach(self, decides=True)
        self._catching_up = False
        if self._backlog:
            self._announcing = asyncio.get_running_loop().create_task(self._announce_backlog())

    def leaving(self) -> None:
        """Nothing is shown and nothing is asked from here on."""
        if not self._attached:
            return
        self._attached = False
        self._rooms.approvals.detach(self)
        self._rooms.hub.detach(self)
        self._came_or_went(self, False)

    def opened(self, params: types.DidOpenTextDocumentParams) -> None:
        """A document of ours or of somebody else's."""
        document = params.text_document
        path = self._uris.from_lsp_uri(document.uri)
        if path is not None:
            self._rooms.buffers.opened(self, path, document.text, document.version, self._encoding)
            self._rooms.hub.opened(self, path)

    def changed(self, params: types.DidChangeTextDocumentParams) -> None:
        """Changes in the order in which they were made."""
        path = self._uris.from_lsp_uri(params.text_document.uri)
        if path is not None:
            changes = [_from_lsp_change(change) for change in params.content_changes]
            self._rooms.buffers.edited(self, path, changes, params.text_document.version)

    def saved(self, params: types.DidSaveTextDocumentParams) -> None:
        """The editor has written it."""
        path = self._uris.from_lsp_uri(params.text_document.uri)
        if path is not None:
            self._rooms.buffers.saved(self, path)

    def closed_document(self, params: types.DidCloseTextDocumentParams) -> None:
        """The editor let go of it."""
        path = self._uris.from_lsp_uri(params.text_document.uri)
        if path is not None:
            self._rooms.buffers.closed(self, path)

    def code_actions(self, params: types.CodeActionParams) -> list[types.CodeAction | types.Command]:
        """The approvals that mark this place."""
        path = self._uris.from_lsp_uri(params.text_document.uri)
        return self._desk.code_actions(path, params) if path is not None else []

    async def execute(self, command: str, arguments: list[Any]) -> object:
        """A person's gesture."""
        return await self._desk.execute(command, arguments)

    async def content(self, uri: str) -> str:
        """A diff as a document."""
        return await self._desk.content(uri)

    # -- ApprovalView --------------------------------------------------------------------------------------------

    def requested(self, approval: Approval) -> None:
        """Ask in a message where no file can carry the question. New ones are announced to all editors at once."""
        if self._catching_up:
            self._backlog.append(approval)
        elif not approval.existing:
            self._desk.ask(approval)

    async def _announce_backlog(self) -> None:
        """Offer what waited before this editor came, a few at a time: there may be a thousand."""
        while self._backlog:
            for _ in range(min(BACKLOG_SLICE, len(self._backlog))):
                approval = self._backlog.popleft()
                message = await _asked_still(approval)
                if message is None:
                    continue
                self.send(message)
                if not approval.existing:
                    self._desk.ask(approval)
            await self._channel.drain()
            await asyncio.sleep(0)

    def updated(self, approval: Approval) -> None:
        """Announced to all editors at once."""

    def resolved(self, approval: Approval, resolution: Resolution) -> None:
        """Take the question back; an expiry is never silent."""
        self._desk.forget(approval)
        if resolution.status == "expired":
            words = f"Nobody answered in time, so it was declined: {headline(approval)}"
            self._desk.tell(words, types.MessageType.Warning)

    # -- Sink ----------------------------------------------------------------------------------------------------

    @property
    def encoding(self) -> PositionEncoding:
        """What was negotiated."""
        return self._encoding

    @property
    def uris(self) -> UriMap:
        """This editor's names for files."""
        return self._uris

    @property
    def pulls(self) -> bool:
        """Whether diagnostics are pulled."""
        return self._pulls

    def send(self, payload: bytes) -> None:
        """Enqueue one message."""
        self._channel.send(payload)

    def refresh(self) -> None:
        """Ask an editor that pulls to pull again; at most one such request is under way."""
        if self._refreshes and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def _refresh(self) -> None:
        try:
            await self._server.editor.ask(types.WORKSPACE_DIAGNOSTIC_REFRESH, None)
        except JsonRpcException as error:
            _log.info("an editor did not refresh its diagnostics: %s", error)

    # -- pulls ---------------------------------------------------------------------------------------------------

    def _start(self, request_id: RequestId, method: str, params: Any) -> None:
        answer = Answer(self._channel, request_id, method)
        if request_id in self._running:
            answer.error(RpcError(INVALID_REQUEST, f"a request with id {request_id!r} is still running"))
            return
        task = asyncio.get_running_loop().create_task(self._answer(answer, method, params))
        self._running[request_id] = task
        task.add_done_callback(lambda _task: self._running.pop(request_id, None))

    async def _answer(self, answer: Answer, method: str, params: Any) -> None:
        try:
            answer.result(await self._pulled[method](params))
        except (RpcError, DevToolsError) as error:
            answer.error(error)
        except asyncio.CancelledError:
            answer.error(RpcError(REQUEST_CANCELLED, "the request was cancelled"))
        except Exception as error:
            _log.exception("%s failed", method)
            answer.error(internal_error(method, type(error).__name__))

    def _cancel(self, params: Any) -> bool:
        try:
            task = self._running.get(msgspec.convert(params, CancelParams).id)
        except msgspec.ValidationError:
            return False
        return task is not None and task.cancel()

    async def _pull_one(self, params: Any) -> object:
        wanted = _convert(params, _PullParams)
        path = self._uris.from_lsp_uri(wanted.text_document.uri)
        if path is None:
            return {"kind": "full", "items": []}
        return await self._report(path, wanted.previous_result_id)

    async def _pull_all(self, params: Any) -> object:
        previous = {entry.uri: entry.value for entry in _convert(params, _PullAllParams).previous_result_ids}
        known = {path for uri in previous if (path := self._uris.from_lsp_uri(uri)) is not None}
        items: list[dict[str, Any]] = []
        for path in sorted({*self._rooms.hub.shown_paths(), *known}):
            uri = self._uris.to_lsp_uri(path)
            items.append({"uri": uri, "version": None, **await self._report(path, previous.get(uri))})
        return {"items": items}

    async def _report(self, path: str, previous: str | None) -> dict[str, Any]:
        version = self._rooms.hub.version(path)
        if previous == version:
            return {"kind": "unchanged", "resultId": version}
        return {"kind": "full", "resultId": version, "items": await self._rooms.hub.pull(self, path)}


async def _asked_still(approval: Approval) -> bytes | None:
    """The announcement of what waits, as it is by now; None when it does not wait any more."""
    while approval.status == "pending":
        shown = approval.shown
        message = await off_loop(approval.weight, encode_announcement, REQUESTED, approval)
        if approval.status == "pending" and approval.shown is shown:
            return message
    return None


def _from_lsp_change(change: types.TextDocumentContentChangeEvent) -> Change:
    if isinstance(change, types.TextDocumentContentChangePartial):
        start, end = change.range.start, change.range.end
        return Change(change.text, (start.line, start.character), (end.line, end.character))
    return Change(change.text)


def _convert(params: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(params or {}, kind)
    except msgspec.ValidationError as error:
        raise InvalidParamsError(f"malformed params: {error}") from None

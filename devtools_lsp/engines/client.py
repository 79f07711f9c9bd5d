"""A minimal LSP client over one server process: requests, notifications, and every question answered.

Owns the conversation: ids, time limits, dynamic registrations by id, configuration, progress, pushed
diagnostics and refresh requests. Malformed input, floods and silence end in an error within a bound. It knows
nothing of documents, engines or what answers mean.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from devtools_lsp.engines.frames import FrameError, FrameReader, frame
from devtools_lsp.engines.messages import (
    ConfigurationParams,
    FileStatus,
    Incoming,
    PublishDiagnostics,
    Registration,
    RegistrationParams,
    ResponseError,
    UnregistrationParams,
)

T = TypeVar("T")

MESSAGES_PER_TURN = 64
"""How many messages one turn of the loop handles before others get theirs: a flood must not stop the daemon."""
MAX_FAULTS = 8
MAX_PUSHED_DOCUMENTS = 4096
NO_TIME_S = 0.001
"""What a question may take whose deadline has passed already."""

METHOD_NOT_FOUND = -32601
CONTENT_MODIFIED = -32801
SERVER_CANCELLED = -32802
REQUEST_CANCELLED = -32800


class ServerGoneError(Exception):
    """The server ended, or broke the protocol so that nothing it says can be trusted; the message says how."""


class ServerTimeoutError(Exception):
    """The server did not answer in time; the request was cancelled and a late answer will be dropped."""


class ServerRefusedError(Exception):
    """The server answered with an error."""

    def __init__(self, method: str, error: ResponseError) -> None:
        super().__init__(f"{method}: {error.message} ({error.code})")
        self.code = error.code
        self.data = error.data


class Connection:
    """One conversation. `send` writes bytes, `broken` is called once when the server cannot be trusted any more."""

    def __init__(
        self,
        send: Callable[[bytes], None],
        *,
        settings: Mapping[str, Any],
        workspace_folders: list[dict[str, str]],
        pause: Callable[[], None],
        resume: Callable[[], None],
        broken: Callable[[], None],
        cancels: bool = True,
    ) -> None:
        """`cancels` tells whether requests that are given up are cancelled, or left to run to their end."""
        self._send = send
        self._settings = settings
        self._folders = workspace_folders
        self._pause = pause
        self._resume = resume
        self._broken = broken
        self._reader = FrameReader()
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(Incoming)
        self._cancels = cancels
        self._abandoned: set[asyncio.Future[msgspec.Raw]] = set()
        self._waiting: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._methods: dict[int, str] = {}
        self._next_id = 0
        self._faults = 0
        self._draining = False
        self._gone: str | None = None
        self._silent_since: float | None = None
        self._changed = asyncio.Event()
        self.ended = asyncio.Event()
        self.registrations: dict[str, Registration] = {}
        self.pushed: dict[str, PublishDiagnostics] = {}
        self.idle: set[str] = set()
        """Documents with which the server says it is done, since it last published for them."""
        self.progress: set[int | str] = set()
        self.log: deque[str] = deque(maxlen=50)

    # -- asking

    async def request(self, method: str, params: Any, answer: msgspec.json.Decoder[T], *, timeout_s: float) -> T:
        """Ask and decode the answer with the decoder given.

        Raises ServerTimeoutError after `timeout_s`, ServerRefusedError for an error answer and ServerGoneError
        when the server ends or its answer is not of the type asked for.
        """
        raw = await self._ask(method, params, timeout_s)
        try:
            return answer.decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ServerGoneError(f"the answer to {method} is malformed: {error}") from error

    async def _ask(self, method: str, params: Any, timeout_s: float) -> msgspec.Raw:
        if self._gone is not None:
            raise ServerGoneError(self._gone)
        self._next_id += 1
        number = self._next_id
        future: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._methods[number] = method
        self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as error:
            self._give_up(number)
            if self._silent_since is None:
                self._silent_since = time.monotonic() - timeout_s
            told = f"was not answered within {timeout_s:.3g} s" if timeout_s > NO_TIME_S else "found no time left"
            raise ServerTimeoutError(f"{method} {told}") from error
        except asyncio.CancelledError:
            self._give_up(number)
            raise
        finally:
            if self._waiting.get(number) is future:
                self._forget(number)

    def _forget(self, number: int) -> None:
        self._waiting.pop(number, None)
        self._methods.pop(number, None)

    def _give_up(self, number: int) -> None:
        """Nobody waits for this answer any more. It will not be read; where cancelling is safe, it is not computed."""
        if self._gone is not None:
            return
        if self._cancels:
            self._forget(number)
            self.notify("$/cancelRequest", {"id": number})
            return
        future: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._abandoned.add(future)
        future.add_done_callback(lambda done: self._arrived_late(number, done))

    def _arrived_late(self, number: int, future: asyncio.Future[msgspec.Raw]) -> None:
        self._forget(number)
        self._abandoned.discard(future)
        if not future.cancelled():
            future.exception()  # Retrieved, so that nobody is told of an error that nobody waits for.

    @property
    def unsettled(self) -> bool:
        """Whether the server still works on something that was given up."""
        return bool(self._abandoned)

    async def settled(self, deadline: float) -> bool:
        """Wait until it does not, or until a monotonic time; whether it is so."""
        if self._abandoned:
            await asyncio.wait(set(self._abandoned), timeout=max(deadline - time.monotonic(), 0))
        return not self._abandoned

    def notify(self, method: str, params: Any) -> None:
        """Tell; nothing happens when the server is gone."""
        if self._gone is None:
            self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def _write(self, message: Mapping[str, Any]) -> None:
        try:
            body = self._encoder.encode(message)
        except UnicodeEncodeError as error:
            # A lone surrogate in a text cannot be sent; the server stays as it was.
            raise ServerGoneError(f"the text cannot be encoded as UTF-8: {error}") from error
        self._send(frame(body))

    async def changed(self) -> None:
        """Return when something arrived that is not an answer: a push, a registration, progress, a refresh."""
        self._changed.clear()
        if self._gone is not None:
            raise ServerGoneError(self._gone)
        await self._changed.wait()
        if self._gone is not None:
            raise ServerGoneError(self._gone)

    # -- receiving

    def receive(self, data: bytes) -> None:
        """Bytes from the server."""
        self._silent_since = None
        self._reader.feed(data)
        if not self._draining:
            self._drain()

    def _drain(self) -> None:
        self._draining = False
        for _ in range(MESSAGES_PER_TURN):
            if self._gone is not None:
                return
            try:
                body = self._reader.next()
            except FrameError as error:
                self.end(f"it broke the framing of the protocol: {error}", trusted=False)
                return
            if body is None:
                self._resume()
                return
            self._handle(body)
        self._pause()
        self._draining = True
        asyncio.get_running_loop().call_soon(self._drain)

    def _handle(self, body: bytes) -> None:
        try:
            message = self._decoder.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            self._fault(f"invalid message: {error}")
            return
        if message.method is None:
            self._settle(message)
        elif message.id is None:
            self._notified(message.method, message.params)
        else:
            self._asked(message.id, message.method, message.params)

    def _fault(self, what: str) -> None:
        self.log.append(what)
        self._faults += 1
        if self._faults >= MAX_FAULTS:
            self.end(f"it sent {self._faults} malformed messages; the last: {what}", trusted=False)

    def _settle(self, message: Incoming) -> None:
        future = self._waiting.get(message.id) if isinstance(message.id, int) else None
        if future is None or future.done():
            return  # The answer to a request that was given up: never read (it may describe another state).
        if message.error is not None:
            assert isinstance(message.id, int)
            future.set_exception(ServerRefusedError(self._methods[message.id], message.error))
        else:
            future.set_result(message.result)

    def _notified(self, method: str, params: msgspec.Raw) -> None:
        try:
            if method == "textDocument/publishDiagnostics":
                report = msgspec.json.decode(params, type=PublishDiagnostics)
                if len(self.pushed) >= MAX_PUSHED_DOCUMENTS and report.uri not in self.pushed:
                    self.pushed.pop(next(iter(self.pushed)))
                self.pushed[report.uri] = report
                self.idle.discard(report.uri)
                self._changed.set()
            elif method == "textDocument/clangd.fileStatus":
                self._stated(msgspec.json.decode(params, type=FileStatus))
            elif method == "$/progress":
                self._progressed(msgspec.json.decode(params))
            elif method in ("window/logMessage", "window/showMessage"):
                self.log.append(str(msgspec.json.decode(params).get("message", ""))[:500])
        except (msgspec.DecodeError, AttributeError, RecursionError) as error:
            self._fault(f"invalid {method}: {error}")

    def _stated(self, status: FileStatus) -> None:
        if status.state != "idle":
            self.idle.discard(status.uri)
        elif status.uri in self.pushed:
            self.idle.add(status.uri)
            self._changed.set()

    def _progressed(self, params: Any) -> None:
        token, value = params.get("token"), params.get("value")
        if not isinstance(token, int | str) or not isinstance(value, dict):
            return
        kind: Any = value.get("kind")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] -- JSON
        if kind == "begin" and len(self.progress) < 1024:
            self.progress.add(token)
        elif kind == "end":
            self.progress.discard(token)
            self._changed.set()

    def _asked(self, number: int | str, method: str, params: msgspec.Raw) -> None:
        try:
            result = self._answer(method, params)
        except (msgspec.DecodeError, AttributeError, RecursionError) as error:
            self._fault(f"invalid {method}: {error}")
            self._refuse(number, -32602, f"invalid parameters: {error}")
            return
        except KeyError:
            self._refuse(number, METHOD_NOT_FOUND, f"{method} is not supported by this client")
            return
        self._write({"jsonrpc": "2.0", "id": number, "result": result})

    def _refuse(self, number: int | str, code: int, message: str) -> None:
        self._write({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}})

    def _answer(self, method: str, params: msgspec.Raw) -> Any:
        """The result of a server's request; raises KeyError for a method that this client does not know."""
        match method:
            case "workspace/configuration":
                asked = msgspec.json.decode(params, type=ConfigurationParams)
                return [section_of(self._settings, item.section or "") for item in asked.items]
            case "client/registerCapability":
                for registration in msgspec.json.decode(params, type=RegistrationParams).registrations:
                    self.registrations[registration.id] = registration
                self._changed.set()
                return None
            case "client/unregisterCapability":
                for gone in msgspec.json.decode(params, type=UnregistrationParams).unregisterations:
                    self.registrations.pop(gone.id, None)
                self._changed.set()
                return None
            case "workspace/workspaceFolders":
                return self._folders
            case "workspace/applyEdit":
                return {"applied": False, "failureReason": "edits are taken from code actions only"}
            case "window/showDocument":
                return {"success": False}
            case "window/workDoneProgress/create" | "window/showMessageRequest":
                return None
            case _ if method.startswith("workspace/") and method.endswith("/refresh"):
                self._changed.set()
                return None
            case _:
                raise KeyError(method)

    @property
    def silent_s(self) -> float:
        """For how long the server has said nothing at all although it was asked; 0 while it answers."""
        return 0.0 if self._silent_since is None else time.monotonic() - self._silent_since

    # -- ending

    def end(self, why: str, *, trusted: bool = True) -> None:
        """Everything that waits fails with ServerGoneError(why). Not `trusted`: the owner is told to kill it."""
        if self._gone is not None:
            return
        self._gone = why
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ServerGoneError(why))
        self._changed.set()
        self.ended.set()
        if not trusted:
            self._broken()

    @property
    def gone(self) -> str | None:
        """Why the conversation is over, or None."""
        return self._gone


def section_of(settings: Mapping[str, Any], section: str) -> Any:
    """The settings of a dotted section; the whole for `""`, null where nothing is configured."""
    if not section:
        return settings
    if section in settings:
        return settings[section]
    value: Any = settings
    for part in section.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]  # pyright: ignore[reportUnknownVariableType] -- JSON
    return value  # pyright: ignore[reportUnknownVariableType] -- JSON

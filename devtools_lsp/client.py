"""The Python client of the daemon's socket: every `devtools/*` method, typed, over one connection.

::

    async with await connect(root, name="my-agent") as client:
        result = await client.call("check", {"paths": ["src/**"]})

What the daemon refuses is raised as the DevToolsError that it is; faults of the protocol itself as RpcError.
When the connection is lost every waiting call fails at once with ConnectionLostError. Every wait has a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from devtools_lsp import __version__, discovery
from devtools_lsp.errors import (
    ConflictError,
    DevToolsError,
    StepFailedError,
    WaitTimeoutError,
    WorkspaceBoundsError,
)
from devtools_lsp.wire.framing import Fault, FrameDecoder, FrameTooLargeError, encode_frame
from devtools_lsp.wire.messages import (
    DEVTOOLS_ERROR,
    INTERNAL_ERROR,
    Incoming,
    Notification,
    Request,
    Role,
    RpcError,
    Surface,
    UnusableMessageError,
    decode_incoming,
    encode,
)

_log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 900.0
"""Longer than a person may take to decide by default."""
QUERY_TIMEOUT_S = 30.0
_CANCEL_S = 12.0
"""How long a cancelled call may take to say what had landed; longer than the daemon's own bound on it."""
_STOP_ANSWER_S = 5.0
_CHUNK_BYTES = 256 * 1024

ProgressCallback = Callable[[dict[str, Any]], None]
"""Told `{kind: output, stream, text}` or `{kind: report, message, approval?}` while a call runs."""
NotificationCallback = Callable[[str, Any], None]
"""Told the method and params of any other notification."""


class ConnectionLostError(StepFailedError):
    """The connection ended before the answer came: what the call did is not known."""


class _RemoteError(msgspec.Struct):
    """The `error` member of an answer."""

    code: int
    message: str
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Initialized(msgspec.Struct, frozen=True):
    """What `devtools/initialize` answered. Unknown members are ignored, so that other versions can be told apart."""

    version: str
    root: str
    server: Any = None
    surface: str | None = None
    tools: Any = None
    gate: Any = None
    confinement: Any = None


async def connect(
    root: Path | str | None = None,
    *,
    socket_path: Path | str | None = None,
    name: str = "python",
    version: str = __version__,
    role: Role = "agent",
    surface: Surface | None = None,
    session: str | None = None,
    start: bool = True,
    timeout_s: float = discovery.START_TIMEOUT_S,
    on_notification: NotificationCallback | None = None,
) -> Client:
    """Connect and introduce ourselves. `root` defaults to the workspace of the working directory.

    With `socket_path` a running daemon is used, whatever its root; else the root's own is started when none runs,
    unless `start` is false. Raises NotRunningError, StartFailedError, WaitTimeoutError, PolicyError for a server
    that is another user's, ConflictError when the socket serves another root, RpcError when it is refused.
    """
    discovery.require_posix()
    if socket_path is not None:
        chosen = None
        connection = await asyncio.to_thread(discovery.connect, Path(socket_path))
    else:
        chosen = discovery.find_root(Path.cwd()) if root is None else discovery.checked_root(root)
        connection = await asyncio.to_thread(discovery.connect_or_start, chosen, start=start, timeout_s=timeout_s)
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=_CHUNK_BYTES)
    client = Client(reader, writer, on_notification)
    try:
        await client.introduce(name=name, version=version, role=role, surface=surface, session=session)
        if chosen is not None and client.server.root != str(chosen):
            raise ConflictError(
                f"the socket serves {client.server.root}, not {chosen}; unset {discovery.SOCKET_VARIABLE} or stop "
                "that daemon",
                retry="no",
            )
    except BaseException:
        await client.close()
        raise
    return client


class Client:
    """One connection. Made by `connect`; calls may run at the same time and be answered in any order."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_notification: NotificationCallback | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_notification = on_notification
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._progress: dict[int, ProgressCallback] = {}
        self._lost: str | None = None
        self._server: Initialized | None = None
        self._reading = asyncio.get_running_loop().create_task(self._read(), name="devtools-lsp client")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def server(self) -> Initialized:
        """What the daemon said about itself."""
        if self._server is None:
            raise StepFailedError("the connection was not introduced; use devtools_lsp.client.connect")
        return self._server

    @property
    def version_note(self) -> str | None:
        """A sentence for the person when the daemon is of another version, else None."""
        if self.server.version == __version__:
            return None
        return (
            f"the daemon is devtools-lsp {self.server.version}, this client {__version__}; "
            "`devtools-lsp stop` ends it, and the next call starts the new one"
        )

    # -- methods -------------------------------------------------------------------------------------------------

    async def introduce(
        self, *, name: str, version: str, role: Role, surface: Surface | None, session: str | None
    ) -> Initialized:
        """Send `devtools/initialize`; `connect` does it."""
        params: dict[str, Any] = {"client": {"name": name, "version": version}, "role": role}
        params |= _present(surface=surface, session=session)
        try:
            answer = await self.request("devtools/initialize", params)
            self._server = msgspec.convert(answer, Initialized)
        except msgspec.ValidationError as error:
            raise RpcError(
                INTERNAL_ERROR, f"the daemon's introduction is not understood ({error}); `devtools-lsp stop` ends it"
            ) from None
        return self._server

    async def tools(self, surface: Surface | None = None) -> list[dict[str, Any]]:
        """The tools that are offered: [{name, description, inputSchema, annotations}]."""
        answer = await self.request("devtools/tools", _present(surface=surface))
        return answer["tools"]

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        surface: Surface | None = None,
        progress: ProgressCallback | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> dict[str, Any]:
        """Call one tool; returns the result (SPEC 3.12 and 8.0.5). Raises DevToolsError."""
        params = {"name": name, "arguments": dict(arguments or {}), **_present(surface=surface)}
        return await self.request("devtools/call", params, progress=progress, timeout_s=timeout_s)

    async def ops(
        self,
        paths: Sequence[str],
        ops: Sequence[Mapping[str, Any]],
        *,
        progress: ProgressCallback | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> dict[str, Any]:
        """Run a plan of several steps; the same result as `call`."""
        params = {"paths": list(paths), "ops": [dict(op) for op in ops]}
        return await self.request("devtools/ops", params, progress=progress, timeout_s=timeout_s)

    async def artifact(
        self,
        handle: str,
        *,
        path: str | None = None,
        severity: Literal["error", "warning", "info"] | None = None,
        engine_id: str | msgspec.UnsetType | None = msgspec.UNSET,
        offset: int = 0,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """A page of a full result: {items, offset, total, nextOffset?}. `engine_id` None asks for runtime notices."""
        params = {"handle": handle, "offset": offset, **_present(path=path, severity=severity, limit=limit)}
        if engine_id is not msgspec.UNSET:
            params["engineId"] = engine_id
        return await self.request("devtools/artifact", params)

    async def status(self) -> dict[str, Any]:
        """How the daemon and its engines are."""
        return await self.request("devtools/status", {})

    async def approvals(self, *, watch: bool = False) -> list[dict[str, Any]]:
        """The approvals that wait; with `watch` later ones arrive as notifications, and we count as somebody."""
        answer = await self.request("devtools/approvals", {"watch": True} if watch else {})
        return answer["items"]

    async def decide(
        self,
        approval: str,
        approve: bool,
        *,
        note: str | None = None,
        remember: bool = False,
        edited: Sequence[Mapping[str, str]] = (),
        drop: Sequence[str] = (),
    ) -> dict[str, Any]:
        """A person's answer: {id, status, applied, by}. `edited` holds {path, content} or {hunkId, text}."""
        params: dict[str, Any] = {"id": approval, "approve": approve, **_present(note=note)}
        if remember:
            params["remember"] = True
        if edited:
            params["edited"] = [dict(entry) for entry in edited]
        if drop:
            params["drop"] = list(drop)
        return await self.request("devtools/decide", params)

    async def undo(self, plan: str | None = None, *, timeout_s: float = CALL_TIMEOUT_S) -> dict[str, Any]:
        """Revert the last plan, or the one named, where its files still hold what it wrote."""
        return await self.request("devtools/undo", _present(plan=plan), timeout_s=timeout_s)

    async def stop(self) -> None:
        """Ask the daemon to end. `stop_daemon` also waits for its end and does not take no for an answer."""
        await self.request("devtools/stop", {})

    # -- the wire ------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        progress: ProgressCallback | None = None,
        timeout_s: float = QUERY_TIMEOUT_S,
    ) -> Any:
        """One request and its result, for methods that have no name here, too.

        After `timeout_s` seconds it is cancelled in the daemon, and WaitTimeoutError says what had landed.
        """
        if self._lost is not None:
            raise _connection_lost(self._lost)
        request_id = next(self._ids)
        if progress is not None:
            params = {**params, "progressToken": request_id}
            self._progress[request_id] = progress
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        try:
            await self._send(Request(id=request_id, method=method, params=params))
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(answer)
        except TimeoutError:
            raise await self._give_up(request_id, answer, f"{method} took longer than {timeout_s:g} s") from None
        except asyncio.CancelledError:
            self._cancel(request_id)
            raise
        finally:
            self._waiting.pop(request_id, None)
            self._progress.pop(request_id, None)
            if answer.done() and not answer.cancelled():
                answer.exception()
            else:
                answer.cancel()

    async def close(self) -> None:
        """Disconnect; what still runs for us is cancelled in the daemon."""
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self._lose("the client was closed")
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(2.0):
                await self._writer.wait_closed()

    async def _give_up(self, request_id: int, answer: asyncio.Future[Any], why: str) -> DevToolsError:
        self._cancel(request_id)
        await asyncio.wait([answer], timeout=_CANCEL_S)
        fault = answer.exception() if answer.done() and not answer.cancelled() else None
        if isinstance(fault, DevToolsError):
            return WaitTimeoutError(f"{why}: {fault.message}", written=fault.written, paths=fault.paths)
        if fault is not None:
            return WaitTimeoutError(f"{why}: {fault}; look at the files before trying again")
        if answer.done():
            return WaitTimeoutError(f"{why}; it finished nevertheless, look at the files before trying again")
        return WaitTimeoutError(f"{why}; what had landed is not known, look at the files before trying again")

    def _cancel(self, request_id: int) -> None:
        if self._lost is None:
            self._writer.write(encode_frame(encode(Notification(method="$/cancelRequest", params={"id": request_id}))))

    async def _send(self, message: object) -> None:
        try:
            self._writer.write(encode_frame(encode(message)))
            await self._writer.drain()
        except FrameTooLargeError as error:
            raise WorkspaceBoundsError(f"the request is too large: {error}") from None
        except ConnectionError as error:
            raise self._lose(str(error)) from None

    async def _read(self) -> None:
        try:
            why = await self._read_until_the_end()
        except (ConnectionError, UnusableMessageError, msgspec.DecodeError) as error:
            why = f"{type(error).__name__}: {error}"
        except Exception as error:
            _log.exception("the client failed to read")
            why = f"{type(error).__name__}: {error}"
        self._lose(why)

    async def _read_until_the_end(self) -> str:
        decoder = FrameDecoder()
        while data := await self._reader.read(_CHUNK_BYTES):
            decoder.feed(data)
            while (item := decoder.next()) is not None:
                if isinstance(item, Fault):
                    return f"the daemon sent something else than frames: {item.message}"
                self._receive(decode_incoming(item))
        return "the daemon closed it"

    def _receive(self, message: Incoming) -> None:
        if isinstance(message.method, str):
            if message.id is msgspec.UNSET:
                self._receive_notification(message.method, message.params)
            return
        answer = self._waiting.get(message.id) if isinstance(message.id, int) else None
        if answer is None or answer.done():
            _log.debug("an answer that nobody waits for was dropped: %r", message.id)
            return
        if isinstance(message.error, msgspec.Raw):
            answer.set_exception(_remote_error(message.error))
        else:
            answer.set_result(_decoded(message.result))

    def _receive_notification(self, method: str, params: msgspec.Raw | msgspec.UnsetType) -> None:
        value = _decoded(params)
        try:
            if method == "$/progress":
                callback = self._progress.get(value["token"])
                if callback is not None:
                    callback(value["value"])
            elif self._on_notification is not None:
                self._on_notification(method, value)
        except Exception:
            # A callback of the embedder must not end the connection for its other calls.
            _log.exception("the callback for %s failed", method)

    def _lose(self, why: str) -> ConnectionLostError:
        """Fail everything that waits, at once; the first reason is the one that is told."""
        if self._lost is None:
            self._lost = why or "it broke"
        self._writer.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(_connection_lost(self._lost))
        return _connection_lost(self._lost)


def _connection_lost(why: str) -> ConnectionLostError:
    return ConnectionLostError(
        f"the connection to the daemon was lost ({why}); what was running may have landed: look at the files before "
        "trying again"
    )


def _present(**members: Any) -> dict[str, Any]:
    """The members that were given."""
    return {name: value for name, value in members.items() if value is not None}


def _decoded(raw: msgspec.Raw | msgspec.UnsetType) -> Any:
    return None if isinstance(raw, msgspec.UnsetType) else msgspec.json.decode(raw)


def _remote_error(raw: msgspec.Raw) -> DevToolsError | RpcError:
    try:
        error = msgspec.json.decode(raw, type=_RemoteError)
        if error.code == DEVTOOLS_ERROR and isinstance(error.data, msgspec.Raw):
            return DevToolsError.from_wire(msgspec.json.decode(error.data, type=dict[str, Any]))
        return RpcError(error.code, error.message, _decoded(error.data))
    except msgspec.DecodeError as fault:
        return RpcError(INTERNAL_ERROR, f"the daemon's error is not understood: {fault}")


# -- stopping ----------------------------------------------------------------------------------------------------

Stopped = Literal["notRunning", "stopped", "terminated", "killed"]


async def stop_daemon(root: Path | str, *, timeout_s: float = 30.0) -> Stopped:
    """End the daemon of a root, of whatever version and in whatever state, and wait until it has ended.

    It is asked first; when it has not ended within `timeout_s` it gets SIGTERM, then SIGKILL, by the pid that the
    kernel names for the socket. Raises WaitTimeoutError when even that does not help, PolicyError when the server
    is another user's.
    """
    checked = discovery.checked_root(root)
    path = discovery.socket_path(checked)
    lock = discovery.lock_path(path)
    try:
        connection = await asyncio.to_thread(discovery.connect, path)
    except (FileNotFoundError, ConnectionRefusedError, WaitTimeoutError):
        pid = discovery.lock_holder(lock)
        if pid is None:
            return "notRunning"
    else:
        pid = discovery.peer_credentials(connection)[0] or discovery.lock_holder(lock) or 0
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        client = Client(reader, writer)
        with contextlib.suppress(DevToolsError, RpcError, TimeoutError):
            async with asyncio.timeout(min(timeout_s, _STOP_ANSWER_S)):
                await client.stop()
        await client.close()
        if await _released(lock, pid, timeout_s):
            return "stopped"
    escalation: tuple[tuple[signal.Signals, Stopped], ...] = (
        (signal.SIGTERM, "terminated"),
        (signal.SIGKILL, "killed"),
    )
    for number, outcome in escalation:
        # Only who holds the lock at this moment is the daemon; a pid from before may be anybody's by now.
        if pid and discovery.lock_holder(lock) == pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if await _released(lock, pid, timeout_s):
            return outcome
    raise WaitTimeoutError(f"the daemon (pid {pid}) still holds {lock}; end that process by hand")


async def _released(lock: Path, pid: int, timeout_s: float) -> bool:
    """Whether that process lets go of the lock within the bound; another one may take it at once."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while discovery.lock_holder(lock) in (0, pid):
        if loop.time() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True

"""The typed client: every `devtools/*` method over one connection, and how to get one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from devtools_lsp import __version__, discovery
from devtools_lsp.client.link import (
    ConnectionLostError,
    Link,
    NotificationCallback,
    ProgressCallback,
    ProtocolError,
    SocketLink,
)
from devtools_lsp.errors import ConflictError, StepFailedError
from devtools_lsp.ports import Cancellation
from devtools_lsp.wire.messages import INTERNAL_ERROR, Role, Surface

CALL_TIMEOUT_S = 900.0
"""Longer than a person may take to decide by default."""
QUERY_TIMEOUT_S = 30.0


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
    unless `start` is false. Raises NotRunningError, StartFailedError (or the error of ours that the daemon ended
    with), WaitTimeoutError, PolicyError for a server that is another user's, ConflictError when the socket serves
    another root, ProtocolError when it is not understood.
    """
    discovery.require_posix()
    if socket_path is not None:
        chosen = None
        connection = await asyncio.to_thread(discovery.connect, Path(socket_path))
    else:
        chosen = discovery.find_root(Path.cwd()) if root is None else discovery.checked_root(root)
        connection = await asyncio.to_thread(discovery.connect_or_start, chosen, start=start, timeout_s=timeout_s)
    client = Client(await SocketLink.over(connection, on_notification))
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

    def __init__(self, link: Link) -> None:
        self._link = link
        self._server: Initialized | None = None

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
            told = f"the daemon's introduction is not understood ({error}); `devtools-lsp stop` ends it"
            raise ProtocolError(told, INTERNAL_ERROR) from None
        return self._server

    async def tools(self, surface: Surface | None = None) -> list[dict[str, Any]]:
        """The tools that are offered: [{name, description, inputSchema, annotations}]."""
        answer = await self.request("devtools/tools", _present(surface=surface))
        return answer["tools"]

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        surface: Surface | None = None,
        progress: ProgressCallback | None = None,
        timeout_s: float | None = CALL_TIMEOUT_S,
        signal: Cancellation | None = None,
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Call one tool; returns the result (SPEC 3.12 and 8.0.5). Raises DevToolsError; `signal` as for `request`."""
        # Given arguments go as they are: what is wrong with them is the tool's to say.
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = arguments
        if surface is not None:
            params["surface"] = surface
        return self._link.request("devtools/call", params, progress=progress, timeout_s=timeout_s, signal=signal)

    async def ops(
        self,
        paths: Sequence[str],
        ops: Sequence[Mapping[str, Any]],
        *,
        progress: ProgressCallback | None = None,
        timeout_s: float | None = CALL_TIMEOUT_S,
        signal: Cancellation | None = None,
    ) -> dict[str, Any]:
        """Run a plan of several steps; the same result as `call`."""
        params = {"paths": list(paths), "ops": list(ops)}
        return await self.request("devtools/ops", params, progress=progress, timeout_s=timeout_s, signal=signal)

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

    async def undo(
        self,
        plan: str | None = None,
        *,
        progress: ProgressCallback | None = None,
        timeout_s: float | None = CALL_TIMEOUT_S,
        signal: Cancellation | None = None,
    ) -> dict[str, Any]:
        """Revert the last plan, or the one named, where its files still hold what it wrote."""
        params = _present(plan=plan)
        return await self.request("devtools/undo", params, progress=progress, timeout_s=timeout_s, signal=signal)

    async def stop(self) -> None:
        """Ask the daemon to end. `stop_daemon` also waits for its end and does not take no for an answer."""
        await self.request("devtools/stop", {})

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        progress: ProgressCallback | None = None,
        timeout_s: float | None = QUERY_TIMEOUT_S,
        signal: Cancellation | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """One request and its result, for methods that have no name here, too.

        After `timeout_s` seconds it is cancelled in the daemon, and WaitTimeoutError says what had landed; None leaves
        every bound to the daemon. Turning `signal` cancels it, too, and waits for the daemon's word on what had landed
        (CallCancelledError); cancelling the task that awaits it does not wait.
        """
        return self._link.request(method, params, progress=progress, timeout_s=timeout_s, signal=signal)

    async def lost(self) -> ConnectionLostError:
        """Wait until the connection has ended, and say why: for who waits for notifications and sends nothing."""
        return await self._link.lost()

    async def close(self) -> None:
        """Disconnect; what still runs for us is cancelled in the daemon."""
        await self._link.close()


def _present(**members: Any) -> dict[str, Any]:
    """The members that were given."""
    return {name: value for name, value in members.items() if value is not None}

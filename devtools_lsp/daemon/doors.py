"""The seams between the socket and what is served through it: peers, calls, channels, and the two doors.

The connection (`daemon/connection.py`) owns bytes, roles, ids and answers. What stands behind it implements
`AgentDoor` (every `devtools/*` method) and `EditorDoor` (one LSP session for each editor). This module holds
the protocols and the plain values that cross them; it performs no I/O.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from devtools_lsp.ports import Cancellation
from devtools_lsp.wire.messages import Progress, RequestId

PeerRole = Literal["agent", "terminal", "editor"]


class Channel(Protocol):
    """The way out to one client. Everything is called on the event loop.

    `send` and `notify` never block: they enqueue. What a client does not read is bounded: above a high-water
    mark its own messages are not read any more, above a hard limit the connection is aborted. Sending on a
    closed channel does nothing.
    """

    def send(self, payload: object) -> None:
        """Enqueue one JSON-RPC message: `bytes` is the JSON itself, anything else is encoded by msgspec.

        Raises FrameTooLargeError when it does not fit a frame; nothing is sent then.
        """
        ...

    def notify(self, method: str, params: object) -> None:
        """Enqueue a notification; raises FrameTooLargeError."""
        ...

    async def drain(self) -> None:
        """Wait until the client has read what is above the high-water mark, or the channel is closed."""
        ...

    def close(self) -> None:
        """End the connection once what is enqueued has been sent (bounded)."""
        ...

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        ...

    @property
    def pending_bytes(self) -> int:
        """How many bytes wait for the client."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Peer:
    """Who is behind a connection, for as long as it lasts; compared by identity.

    `name` is the agent's name at the gate. `session` is the one given in `devtools/initialize`, else
    `connection`, which is unique in this daemon. `surface` is None when the client did not choose. An
    editor's connection may send `devtools/*` requests too: its role is `editor` then.
    """

    connection: str
    name: str
    version: str
    role: PeerRole
    session: str
    surface: str | None
    channel: Channel

    @property
    def decides(self) -> bool:
        """Whether this peer may decide approvals: editors and terminals, never agents (SPEC 8.0.3)."""
        return self.role != "agent"


async def _discard(_value: Progress) -> None:
    """What happens to progress that nobody asked for."""


class CallScope(msgspec.Struct, eq=False):
    """One request while it runs: its id, the switch that cancels it, and its progress.

    `signal` is turned by `$/cancelRequest`, by the client's disconnect and by the daemon's end. Whoever does
    not look at it is cancelled as a task after a grace.
    """

    request_id: RequestId = 0
    signal: Cancellation = msgspec.field(default_factory=Cancellation)
    report: Callable[[Progress], Awaitable[None]] = _discard

    @property
    def listens(self) -> bool:
        """Whether the caller asked to be told."""
        return self.report is not _discard

    async def progress(self, value: Progress) -> None:
        """Tell the caller, if it gave a `progressToken`; waits when the caller is slow to read.

        The connection repeats the last `Report` at least every 10 s for as long as the call runs.
        """
        await self.report(value)


class AgentDoor(Protocol):
    """What answers `devtools/*`. Errors that may be told are DevToolsError and RpcError; any other is a bug."""

    async def attach(self, peer: Peer) -> object:
        """A peer introduced itself: the result of `devtools/initialize`. Raise to refuse it.

        Also called, its result dropped, for a peer that sends requests without introducing itself.
        """
        ...

    async def call(self, peer: Peer, method: str, params: msgspec.Raw, call: CallScope) -> object:
        """Answer one request. Decode with `wire.messages.decode_params`; raise MethodNotFoundError for others.

        `devtools/initialize` and `devtools/stop` never arrive here.
        """
        ...

    def detached(self, peer: Peer) -> None:
        """The peer is gone; its calls were cancelled and have ended. Must not raise."""
        ...


class EditorSession(Protocol):
    """One editor's LSP session."""

    async def receive(self, message: dict[str, Any]) -> None:
        """One well-formed JSON-RPC message (request, notification or answer), in order, `initialize` first.

        Awaited before the next one is read, so it must only start long work. The session answers every
        request exactly once through its channel, and closes the channel on `exit`. An exception counts as a
        bug: a request is then answered with -32603 by the connection.
        """
        ...

    def leaving(self) -> None:
        """Nothing is shown and nothing is asked from here on. May be called again; when the connection ends, it is."""
        ...

    async def closed(self) -> None:
        """The editor is gone: cancel what runs, fail what waits. Called exactly once."""
        ...


class EditorDoor(Protocol):
    """What makes LSP sessions."""

    async def open(self, peer: Peer) -> EditorSession:
        """A session for a peer whose first request is `initialize`, which `receive` gets next."""
        ...


async def _nothing_to_close() -> None:
    """For doors without anything to close."""


@dataclass(frozen=True, slots=True)
class Doors:
    """Everything that is served: `close` is awaited (bounded) when the daemon ends."""

    agents: AgentDoor
    editors: EditorDoor
    close: Callable[[], Awaitable[None]] = _nothing_to_close


class Host(Protocol):
    """What the served parts may ask of the daemon that runs them."""

    @property
    def root(self) -> Path:
        """The workspace root, links resolved."""
        ...

    @property
    def socket_path(self) -> Path:
        """Where clients connect."""
        ...

    @property
    def uptime_s(self) -> float:
        """Seconds since the daemon started."""
        ...

    def peers(self) -> Sequence[Peer]:
        """Everybody who is connected and has a role."""
        ...

    def stop(self, reason: str) -> None:
        """Begin the graceful end; returns at once."""
        ...


Build = Callable[[Host], Awaitable[Doors]]
"""Makes the doors, once the daemon holds its lock and before it accepts."""

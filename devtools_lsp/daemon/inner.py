"""Clients of the agents' door within the daemon, for a connection that speaks for agents in another protocol.

They are peers like any other: named at the gate, listed in `status`, with calls that are bounded, cancelled and
answered exactly once. Only the socket is missing.
"""

from __future__ import annotations

import asyncio
import itertools
import logging

import msgspec

from devtools_lsp.client import Client
from devtools_lsp.client.link import Link, NotificationCallback
from devtools_lsp.daemon.calls import Answer, CallBounds, Calls, internal_error
from devtools_lsp.daemon.doors import AgentDoor, Peer
from devtools_lsp.daemon.introduction import introduced_peer
from devtools_lsp.errors import BadArgumentError, CallCancelledError, ConflictError, DevToolsError
from devtools_lsp.wire.framing import MAX_FRAME_BYTES, FrameTooLargeError
from devtools_lsp.wire.messages import (
    CancelParams,
    Notification,
    Request,
    ResultAnswer,
    RpcError,
    Surface,
    decode_incoming,
    decode_params,
    encode,
)

_log = logging.getLogger(__name__)

MAX_ANSWER_BYTES = MAX_FRAME_BYTES // 2 - 64 * 1024
"""What is made of an answer for the other protocol may say the same again as text, and must fit a frame as a whole."""
_TURNS = 20


class InnerLink(Link):
    """Requests to the agents' door without a socket."""

    def __init__(
        self, door: AgentDoor, label: str, bounds: CallBounds, on_notification: NotificationCallback | None
    ) -> None:
        super().__init__(on_notification)
        self._door = door
        self._label = label
        self._bounds = bounds
        self._channel = _InnerChannel(self)
        self._calls_running: Calls | None = None
        self._introducing: asyncio.Task[None] | None = None
        self.peer: Peer | None = None
        """Who it is, once it has introduced itself."""

    # -- to the door ---------------------------------------------------------------------------------------------

    def write(self, message: Request | Notification) -> None:
        """Hand a message to the door."""
        try:
            params = msgspec.Raw(encode(message.params))
        except (TypeError, ValueError) as error:
            raise BadArgumentError(f"the request cannot be sent: {error}", reason="malformed") from None
        if isinstance(message, Notification):
            if self._calls_running is not None and message.method == "$/cancelRequest":
                self._calls_running.cancel(decode_params(params, CancelParams).id)
        elif message.method == "devtools/initialize":
            answer = Answer(self._channel, message.id, message.method)
            self._introducing = asyncio.get_running_loop().create_task(self._introduce(answer, params))
        elif self._calls_running is not None:
            self._calls_running.start(message.id, message.method, params)

    async def _introduce(self, answer: Answer, params: msgspec.Raw) -> None:
        try:
            peer = introduced_peer(params, self._label, self._channel)
            result = await self._door.attach(peer)
        except (RpcError, DevToolsError) as error:
            answer.error(error)
            return
        except Exception as error:
            _log.exception("%s: the introduction failed", self._label)
            answer.error(internal_error("devtools/initialize", type(error).__name__))
            return
        self.peer = peer
        self._calls_running = Calls(self._door, peer, self._channel, self._bounds)
        answer.result(result)

    def hang_up(self) -> None:
        """Nothing more comes back."""
        self._channel.close()

    async def close(self) -> None:
        """As when a client disconnects."""
        await self.end("the client disconnected")

    async def end(self, reason: str) -> None:
        """Cancel what runs, wait for what it says, and leave."""
        if self._introducing is not None:
            # An introduction that does not end by itself is ended, as a call is.
            await asyncio.wait([self._introducing], timeout=self._bounds.cancel_grace_s)
            self._introducing.cancel()
        if self._calls_running is not None:
            await self._calls_running.close(reason)
            for _ in range(_TURNS):
                # Whoever waited for an answer hands it on before anything is closed.
                if not self._calls:
                    break
                await asyncio.sleep(0)
        self.lose(reason)
        peer, self.peer = self.peer, None
        if peer is not None:
            try:
                self._door.detached(peer)
            except Exception:
                _log.exception("%s: detached failed", self._label)


class _InnerChannel:
    """What comes back from the door; implements `doors.Channel`. Nothing waits here: the link is told at once."""

    pending_bytes = 0

    def __init__(self, link: InnerLink) -> None:
        self._link = link
        self.closed = False

    def send(self, payload: object) -> None:
        """Hand one message to the link. Raises FrameTooLargeError."""
        if self.closed:
            return
        if isinstance(payload, ResultAnswer):
            # Whoever asked gets what a client would read, without the envelope.
            result = encode(payload.result)
            if len(result) > MAX_ANSWER_BYTES:
                raise FrameTooLargeError(len(result), MAX_ANSWER_BYTES)
            self._link.answered(payload.id, msgspec.json.decode(result))
            return
        body = payload if isinstance(payload, bytes) else encode(payload)
        if len(body) > MAX_ANSWER_BYTES:
            raise FrameTooLargeError(len(body), MAX_ANSWER_BYTES)
        self._link.receive(decode_incoming(body))

    def notify(self, method: str, params: object) -> None:
        """Hand on a notification. Raises FrameTooLargeError."""
        self.send(Notification(method=method, params=params))

    async def drain(self) -> None:
        """Return at once."""

    def close(self) -> None:
        """Nothing more is handed on."""
        self.closed = True


class InnerClients:
    """The clients of one connection; `label` names it in the log and, with a number, each of its peers.

    `root` is where they mean to work, when they say so.
    """

    def __init__(self, door: AgentDoor, label: str, bounds: CallBounds, root: str | None = None) -> None:
        self._root = root
        self._door = door
        self._label = label
        self._bounds = bounds
        self._numbers = itertools.count(1)
        self._links: dict[InnerLink, None] = {}
        self._ended: str | None = None

    def peers(self) -> list[Peer]:
        """Everybody who has introduced themselves."""
        return [link.peer for link in self._links if link.peer is not None]

    async def connect(
        self,
        *,
        name: str,
        version: str,
        surface: Surface | None,
        session: str | None,
        on_notification: NotificationCallback | None = None,
    ) -> Client:
        """A client that has introduced itself; raises DevToolsError when the door refuses it."""
        if self._ended is not None:
            raise CallCancelledError(self._ended)
        link = InnerLink(self._door, f"{self._label}.{next(self._numbers)}", self._bounds, on_notification)
        self._links[link] = None
        client = Client(link)
        try:
            served = await client.introduce(name=name, version=version, role="agent", surface=surface, session=session)
            if self._root not in (None, served.root):
                raise ConflictError(f"the daemon at this socket serves {served.root}, not {self._root}", retry="no")
        except BaseException:
            self._links.pop(link, None)
            await link.close()
            raise
        return client

    async def end(self, reason: str) -> None:
        """End them all; every call has its answer then, and nobody else comes."""
        self._ended = reason
        await asyncio.gather(*(link.end(reason) for link in self._links))
        self._links.clear()

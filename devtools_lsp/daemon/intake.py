"""The way in from one client over a transport: bytes to messages, one after the other.

Owns their order, fairness between clients, the wait for a client that does not read, and how long an unfinished frame
may take. Knows nothing of what a message means.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import cast

from devtools_lsp.daemon.channel import StreamChannel
from devtools_lsp.wire.framing import Fault, FrameDecoder

_log = logging.getLogger(__name__)

_MESSAGES_PER_TURN = 64

Receive = Callable[[bytes], Awaitable[None] | None]
"""Takes the body of one message; returns what has to be awaited before the next one."""


class Arrival(asyncio.Protocol):
    """A connection that was just accepted: `accept` refuses it, or makes a `Connection` of it."""

    def __init__(self, accept: Callable[[asyncio.Transport], None]) -> None:
        self._accept = accept

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand it over."""
        self._accept(cast("asyncio.Transport", transport))


class Intake(asyncio.Protocol):
    """What one client sends, from accept to its end.

    A message is dealt with where it arrives: an agent's call waits for it, so no task stands in between. Only when one
    has to be awaited, or the client does not read its answers, a task goes on in its place; what comes meanwhile waits.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        channel: StreamChannel,
        identity: str,
        receive: Receive,
        faulty: Callable[[Fault], None],
        *,
        frame_stall_s: float,
        id_stall_s: float,
    ) -> None:
        """`faulty` is told what is wrong with a frame; `identity` names the client in the log."""
        self.receive = receive
        """Who is given each message from here on."""
        self._transport = transport
        self._channel = channel
        self._identity = identity
        self._faulty = faulty
        self._frame_stall_s = frame_stall_s
        self._id_stall_s = id_stall_s
        self._decoder = FrameDecoder()
        self._waiting: asyncio.Task[None] | None = None
        self._stalling: asyncio.TimerHandle | None = None
        self._stream_ended = False
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        transport.set_protocol(self)

    async def ended(self) -> None:
        """Return when nothing more is taken, whoever ended it, and nothing of it is awaited any more."""
        await asyncio.wait([self._over])
        if self._waiting is not None:
            await asyncio.wait([self._waiting])

    def cancel(self) -> None:
        """Take nothing more, and cancel what is awaited."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._stop()

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Deal with every message that is complete now."""
        if self._over.done():
            return
        self._decoder.feed(data)
        if self._waiting is not None:
            # It is enough for later.
            self._transport.pause_reading()
            return
        if self._stalling is not None:
            self._stalling.cancel()
            self._stalling = None
        self._process()

    def eof_received(self) -> bool:
        """Nothing more comes; true, because answers may still be sent."""
        self._stream_ended = True
        if self._waiting is None:
            self._process()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, whoever ended it."""
        del exc
        self._channel.connection_lost()
        if self._waiting is None:
            self._stop()

    def pause_writing(self) -> None:
        """The client does not read its answers."""
        self._channel.pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._channel.resume_writing()

    # -- bytes ---------------------------------------------------------------------------------------------------

    def _process(self) -> None:
        """Deal with what has arrived, in a task as soon as something has to be awaited."""
        try:
            awaited = self._dispatch()
        except Exception:
            self._break_down()
            return
        if awaited is not None:
            self._waiting = asyncio.get_running_loop().create_task(
                self._dispatch_waiting(awaited), name=f"{self._identity} reads"
            )

    async def _dispatch_waiting(self, awaited: Awaitable[None]) -> None:
        following: Awaitable[None] | None = awaited
        try:
            while following is not None:
                await following
                following = self._dispatch()
        except Exception:
            self._break_down()
        finally:
            self._waiting = None
            self._transport.resume_reading()

    def _dispatch(self) -> Awaitable[None] | None:
        """Take the messages that are complete; what has to be awaited before the next one, None when there is none."""
        for _ in range(_MESSAGES_PER_TURN):
            if self._channel.closed:
                self._stop()
                return None
            item = self._decoder.next()
            if item is None:
                return self._await_more()
            if isinstance(item, Fault):
                self._faulty(item)
                if item.fatal:
                    self._stop()
                    return None
                continue
            if (awaited := self.receive(item)) is not None:
                return awaited
        # Others get their turn also when one client sends a thousand requests at once.
        return asyncio.sleep(0)

    def _await_more(self) -> Awaitable[None] | None:
        """No message is complete. An unfinished one has a bound, silence has none, and who does not read must first."""
        if self._stream_ended:
            while not self._interrupted("the stream ended"):
                pass
            self._stop()
        elif self._channel.room is not None:
            return self._channel.drain()
        elif self._decoder.inside_frame:
            impatient = self._decoder.awaits_only_an_id
            stall_s = self._id_stall_s if impatient else self._frame_stall_s
            self._stalling = asyncio.get_running_loop().call_later(stall_s, self._stalled, stall_s)
        return None

    def _stalled(self, stall_s: float) -> None:
        self._stalling = None
        if self._interrupted(f"nothing came for {stall_s:g} s"):
            self._stop()
        else:
            self._process()

    def _break_down(self) -> None:
        _log.exception("%s: closed because of a fault of ours", self._identity)
        self._stop()

    def _stop(self) -> None:
        """Nothing more of the client is taken: it is the end."""
        if self._stalling is not None:
            self._stalling.cancel()
            self._stalling = None
        if not self._over.done():
            self._over.set_result(None)

    def _interrupted(self, why: str) -> bool:
        """Tell the client about the frame that is incomplete; true when the stream cannot go on."""
        fault = self._decoder.interrupted(why)
        if fault is None:
            return True
        self._faulty(fault)
        return fault.fatal

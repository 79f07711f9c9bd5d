"""The way out to one client over a stream: encoding, framing, and a bound on what it does not read.

Implements `doors.Channel`. A client that never reads costs at most `abort_bytes`; one that stops reading while
something waits for it is given `stall_s` and then aborted, so that nothing waits for it for ever. What is large is
given to the transport in pieces as the client reads: the transport copies whatever it is given at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from devtools_lsp.wire.framing import encode_header
from devtools_lsp.wire.messages import Notification, encode
from devtools_lsp.wire.reading import read_in_chunks

_log = logging.getLogger(__name__)

HIGH_WATER_BYTES = 1024 * 1024
ABORT_BYTES = 32 * 1024 * 1024
STALL_S = 60.0
FLUSH_S = 2.0
PIECE_BYTES = 128 * 1024
"""How much of a large message is given to the transport at once."""


class StreamChannel:
    """A Channel over an asyncio transport. Use it on the event loop only.

    The transport's protocol hands on what it is told of writing: `pause_writing`, `resume_writing`, `connection_lost`.
    """

    room: asyncio.Future[None] | None = None
    """Set while more is waiting than the high-water mark; done when there is room again, or nobody to read."""

    def __init__(
        self,
        transport: asyncio.Transport,
        label: str,
        *,
        high_water_bytes: int = HIGH_WATER_BYTES,
        abort_bytes: int = ABORT_BYTES,
        stall_s: float = STALL_S,
    ) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=high_water_bytes)
        read_in_chunks(self._transport)
        self._high_water_bytes = high_water_bytes
        self._label = label
        self._abort_bytes = abort_bytes
        self._stall_s = stall_s
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing: asyncio.Task[None] | None = None
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._paused = False
        self.closed = False
        """Whether nothing can be sent any more."""

    @property
    def pending_bytes(self) -> int:
        """How many bytes wait for the client."""
        return self._transport.get_write_buffer_size() + self._queued_bytes

    def send(self, payload: object) -> None:
        """Enqueue one message; raises FrameTooLargeError. Does nothing on a closed channel."""
        if self.closed:
            return
        body = payload if isinstance(payload, bytes) else encode(payload)
        header = encode_header(len(body))
        waiting = self._transport.get_write_buffer_size() + self._queued_bytes + len(header) + len(body)
        if waiting > self._abort_bytes:
            _log.warning("%s does not read: %d bytes wait for it; the connection is aborted", self._label, waiting)
            self.abort()
            return
        if len(body) <= PIECE_BYTES and not self._queue:
            self._transport.write(header + body)
            return
        whole = memoryview(body)
        self._queue.append(memoryview(header + whole[:PIECE_BYTES]))
        self._queue.extend(whole[start : start + PIECE_BYTES] for start in range(PIECE_BYTES, len(body), PIECE_BYTES))
        self._queued_bytes += len(header) + len(body)
        self._feed()

    def notify(self, method: str, params: object) -> None:
        """Enqueue a notification; raises FrameTooLargeError."""
        self.send(Notification(method=method, params=params))

    async def drain(self) -> None:
        """Wait until the client has read what is above the high-water mark, or the channel is closed."""
        while (room := self.room) is not None and not self.closed:
            before = self.pending_bytes
            await asyncio.wait([room], timeout=self._stall_s)
            if room.done():
                return
            if self.pending_bytes >= before:
                _log.warning("%s read nothing for %g s; the connection is aborted", self._label, self._stall_s)
                self.abort()

    # -- what the transport tells ------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """More is waiting than the high-water mark."""
        self._paused = True
        if self.room is None:
            self.room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Nearly everything was read: what is queued goes on, and when that is all there is room."""
        self._paused = False
        self._feed()
        if not self._paused:
            self._make_room()

    def connection_lost(self) -> None:
        """Nobody is there any more."""
        self.closed = True
        self._forget_queue()
        self._make_room()
        if not self._lost.done():
            self._lost.set_result(None)

    def _feed(self) -> None:
        """Give the transport what it takes before it is above the high-water mark; it says when it takes more."""
        while self._queue and self._transport.get_write_buffer_size() <= self._high_water_bytes:
            piece = self._queue.popleft()
            self._queued_bytes -= len(piece)
            self._transport.write(piece)

    def _forget_queue(self) -> None:
        self._queue.clear()
        self._queued_bytes = 0

    def _make_room(self) -> None:
        room, self.room = self.room, None
        if room is not None:
            room.set_result(None)

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the connection once what is enqueued has been sent, within a bound."""
        self.closed = True
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._flush_and_close())

    def abort(self) -> None:
        """End the connection now; what is enqueued is lost."""
        self.closed = True
        self._forget_queue()
        self._transport.abort()

    async def wait_closed(self) -> None:
        """Close, and return when the connection is at its end."""
        self.close()
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _flush_and_close(self) -> None:
        try:
            async with asyncio.timeout(FLUSH_S):
                if self._queue and self.room is not None:
                    await asyncio.wait([self.room])
                self._transport.close()
                await asyncio.wait([self._lost])
        except TimeoutError:
            # The client does not read: what waits for it has no other place to go.
            self.abort()

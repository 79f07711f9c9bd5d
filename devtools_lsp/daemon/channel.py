"""The way out to one client over a stream: encoding, framing, and a bound on what it does not read.

Implements `doors.Channel`. A client that never reads costs at most `abort_bytes`; one that stops reading while
something waits for it is given `stall_s` and then aborted, so that nothing waits for it for ever. What is large is
given to the transport in pieces as the client reads: the transport copies whatever it is given at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import cast

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
    """A Channel over an asyncio StreamWriter. Use it on the event loop only."""

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        label: str,
        *,
        high_water_bytes: int = HIGH_WATER_BYTES,
        abort_bytes: int = ABORT_BYTES,
        stall_s: float = STALL_S,
    ) -> None:
        self._writer = writer
        self._transport = cast("asyncio.Transport", writer.transport)
        self._transport.set_write_buffer_limits(high=high_water_bytes)
        read_in_chunks(self._transport)
        self._high_water_bytes = high_water_bytes
        self._label = label
        self._abort_bytes = abort_bytes
        self._stall_s = stall_s
        self._closing: asyncio.Task[None] | None = None
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._feeding: asyncio.Task[None] | None = None

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closing is not None or self._transport.is_closing()

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
        waiting = self.pending_bytes + len(header) + len(body)
        if waiting > self._abort_bytes:
            _log.warning("%s does not read: %d bytes wait for it; the connection is aborted", self._label, waiting)
            self.abort()
            return
        if len(body) <= PIECE_BYTES and not self._queue:
            self._writer.write(header + body)
            return
        whole = memoryview(body)
        self._queue.append(memoryview(header + whole[:PIECE_BYTES]))
        self._queue.extend(whole[start : start + PIECE_BYTES] for start in range(PIECE_BYTES, len(body), PIECE_BYTES))
        self._queued_bytes += len(header) + len(body)
        self._feed()
        if self._queue and self._feeding is None:
            self._feeding = asyncio.get_running_loop().create_task(self._feed_on())

    def _feed(self) -> None:
        """Give the transport what it takes before it is above the high-water mark."""
        while self._queue and self._transport.get_write_buffer_size() <= self._high_water_bytes:
            piece = self._queue.popleft()
            self._queued_bytes -= len(piece)
            self._writer.write(piece)

    async def _feed_on(self) -> None:
        try:
            while self._queue and not self._transport.is_closing():
                await self._writer.drain()
                self._feed()
        except OSError:
            pass  # The client is gone.
        finally:
            self._feeding = None
            self._forget_queue()

    def _forget_queue(self) -> None:
        self._queue.clear()
        self._queued_bytes = 0

    def notify(self, method: str, params: object) -> None:
        """Enqueue a notification; raises FrameTooLargeError."""
        self.send(Notification(method=method, params=params))

    async def drain(self) -> None:
        """Wait until the client has read what is above the high-water mark, or the channel is closed."""
        if not self.pending_bytes and self._feeding is None:
            return
        while not self.closed:
            before = self.pending_bytes
            try:
                async with asyncio.timeout(self._stall_s):
                    await self._fed()
                    await self._writer.drain()
            except ConnectionError:
                return
            except TimeoutError:
                if self.pending_bytes < before:
                    continue
                _log.warning("%s read nothing for %g s; the connection is aborted", self._label, self._stall_s)
                self.abort()
            return

    async def _fed(self) -> None:
        if self._feeding is not None:
            await asyncio.wait({self._feeding})

    def close(self) -> None:
        """End the connection once what is enqueued has been sent, within a bound."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._flush_and_close())

    def abort(self) -> None:
        """End the connection now; what is enqueued is lost."""
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
                await self._fed()
                self._writer.close()
                await self._writer.wait_closed()
        except (TimeoutError, ConnectionError):
            # The client is gone or does not read: what waits for it has no other place to go.
            self.abort()

"""Stdin and stdout as the message streams of the MCP SDK: one JSON-RPC message a line, without a thread in between.

The SDK's own transport takes three hops to threads for each request, which costs more than the rest of the bridge.
Descriptors stay in blocking mode, because whoever started us may share them: a read follows readiness, and a write
that follows readiness takes no more than a pipe then has room for. Knows nothing of methods.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import sys
from collections import deque
from collections.abc import Generator
from types import TracebackType
from typing import Self

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

MAX_LINE_BYTES = 32 * 1024 * 1024
"""Four times what a request to the daemon may have."""
HIGH_WATER_BYTES = 256 * 1024
LAST_WORDS_S = 2.0
_CHUNK_BYTES = 256 * 1024

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def private_stdio() -> Generator[tuple[int, int]]:
    """Descriptors of the real stdin and stdout, while whatever else uses 0 and 1 reads nothing and prints to stderr."""
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        sys.stdout.flush()
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        yield incoming, outgoing
    finally:
        os.dup2(incoming, 0)
        os.dup2(outgoing, 1)
        for descriptor in (nothing, incoming, outgoing):
            os.close(descriptor)


class LineReader:
    """The SDK's read stream: an iterator of messages that ends with the input.

    A line that is no message is answered through `writer`, as JSON-RPC says, and passed over.
    """

    def __init__(self, descriptor: int, writer: LineWriter) -> None:
        self._descriptor = descriptor
        self._writer = writer
        self._lines: deque[bytes] = deque()
        self._rest = bytearray()
        self._too_long = False
        self._ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> LineReader:
        return self

    async def __anext__(self) -> SessionMessage:
        while True:
            while not self._lines:
                if self._ended:
                    raise StopAsyncIteration
                self._feed(await self._read())
            line = self._lines.popleft()
            if not line or line.isspace():
                continue
            try:
                return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValidationError as error:
                await self._refuse(error)

    async def receive(self) -> SessionMessage:
        """The next message; raises EndOfStream."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        """Nothing more is read."""
        self._ended = True
        self._lines.clear()

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        try:
            loop.add_reader(self._descriptor, lambda: ready.done() or ready.set_result(None))
        except PermissionError:
            # A regular file, which cannot be waited for and never needs to be.
            return await asyncio.to_thread(os.read, self._descriptor, _CHUNK_BYTES)
        try:
            await ready
        finally:
            loop.remove_reader(self._descriptor)
        return os.read(self._descriptor, _CHUNK_BYTES)

    def _feed(self, data: bytes) -> None:
        if not data:
            self._ended = True
            self._lines.append(self._take_rest())
            return
        first, *others = data.split(b"\n")
        self._rest += first
        for piece in others:
            self._lines.append(self._take_rest())
            self._rest += piece
        if len(self._rest) > MAX_LINE_BYTES:
            self._too_long = True
            self._rest.clear()

    def _take_rest(self) -> bytes:
        """The line that is complete now; one that is too long stands for itself as something that is no JSON."""
        line = b"?" if self._too_long or len(self._rest) > MAX_LINE_BYTES else bytes(self._rest)
        self._too_long = False
        self._rest.clear()
        return line

    async def _refuse(self, error: ValidationError) -> None:
        no_json = any(problem["type"] == "json_invalid" for problem in error.errors(include_url=False))
        refusal = types.ErrorData(
            code=types.PARSE_ERROR if no_json else types.INVALID_REQUEST,
            message=f"the line is not JSON, or longer than {MAX_LINE_BYTES:,} bytes"
            if no_json
            else "the line is not a JSON-RPC 2.0 message",
        )
        await self._writer.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=refusal)))


class LineWriter:
    """The SDK's write stream. A message goes out whole, also when the call that sends it is cancelled meanwhile.

    `send` waits while more than `HIGH_WATER_BYTES` are in the way of the next message.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._writable = select.poll()
        self._writable.register(descriptor, select.POLLOUT)
        self._buffer = bytearray()
        self._waiting = False
        self._broken = False
        self._room = asyncio.Event()
        self._room.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()

    async def send(self, item: SessionMessage) -> None:
        """Write one message; raises BrokenResourceError when nobody reads any more."""
        if not self._broken:
            self._buffer += item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            self._buffer += b"\n"
            if not self._waiting:
                self._flush()
            self._judge_room()
            await self._room.wait()
        if self._broken:
            raise anyio.BrokenResourceError

    async def aclose(self) -> None:
        """Wait, within a bound, until what was sent is read; the descriptor is its owner's to close."""
        deadline = asyncio.get_running_loop().time() + LAST_WORDS_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while self._waiting:
                    # Set by every flush that leaves room.
                    self._room.clear()
                    await self._room.wait()
        self._stop_waiting()

    def _flush(self) -> None:
        """Write for as long as that cannot block, and come back when it can go on."""
        try:
            while self._buffer and self._writable.poll(0):
                written = os.write(self._descriptor, self._buffer[: select.PIPE_BUF])
                del self._buffer[:written]
        except OSError as error:
            _log.info("stdout was closed: %s", error.strerror)
            self._broken = True
            self._buffer.clear()
        if self._buffer and not self._waiting:
            asyncio.get_running_loop().add_writer(self._descriptor, self._flush)
            self._waiting = True
        elif not self._buffer:
            self._stop_waiting()
        self._judge_room()

    def _judge_room(self) -> None:
        if len(self._buffer) > HIGH_WATER_BYTES:
            self._room.clear()
        else:
            self._room.set()

    def _stop_waiting(self) -> None:
        if self._waiting:
            asyncio.get_running_loop().remove_writer(self._descriptor)
            self._waiting = False

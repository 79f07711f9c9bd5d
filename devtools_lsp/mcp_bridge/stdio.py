"""Stdin and stdout as lines, without a thread in between. Knows nothing of what a line says.

A hop to a thread for each read or write would cost more than the rest of the bridge. Descriptors stay in blocking
mode, because whoever started us may share them: a read follows readiness, and a write that follows readiness takes no
more than a pipe then has room for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import sys
from collections import deque
from collections.abc import Callable, Generator

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


OnLine = Callable[[bytes | None], None]
"""Told a line without its end, or None for one that had more than `MAX_LINE_BYTES`. It must not raise."""


class LineReader:
    """Tells every line that is not blank when it arrives; begins paused."""

    def __init__(self, descriptor: int, on_line: OnLine) -> None:
        self._descriptor = descriptor
        self._on_line = on_line
        self._lines: deque[bytes | None] = deque()
        self._rest = bytearray()
        self._too_long = False
        self._at_end = False
        self._paused = True
        self._watched = False
        self._reading: asyncio.Task[None] | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the input is over and its last line was told."""

    def pause(self) -> None:
        """Tell nothing more; what arrives stays where it is."""
        self._paused = True
        self._unwatch()

    def resume(self) -> None:
        """Tell what waits, and go on reading."""
        self._paused = False
        self._tell()

    def close(self) -> None:
        """Read nothing more, tell nothing more."""
        self.pause()
        self._lines.clear()
        if self._reading is not None:
            self._reading.cancel()
        if not self.ended.done():
            self.ended.set_result(None)

    def _tell(self) -> None:
        while self._lines and not self._paused:
            line = self._lines.popleft()
            if line is None or (line and not line.isspace()):
                self._on_line(line)
        if self._paused:
            return
        if self._at_end:
            self.close()
        elif not self._watched:
            self._watch()

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(self._descriptor, lambda: self._take(self._read()))
            self._watched = True
        except PermissionError:
            # A regular file, which cannot be waited for and never needs to be.
            self._reading = loop.create_task(self._read_file())

    def _unwatch(self) -> None:
        if self._watched:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._watched = False

    async def _read_file(self) -> None:
        self._take(await asyncio.to_thread(self._read))

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, _CHUNK_BYTES)
        except OSError as error:
            _log.warning("stdin cannot be read any more: %s", error.strerror)
            return b""

    def _take(self, data: bytes) -> None:
        first, *others = data.split(b"\n")
        self._rest += first
        for piece in others:
            self._lines.append(self._take_rest())
            self._rest += piece
        if len(self._rest) > MAX_LINE_BYTES:
            self._too_long = True
            self._rest.clear()
        if not data:
            # The last line may lack its end.
            self._lines.append(self._take_rest())
            self._at_end = True
        self._tell()

    def _take_rest(self) -> bytes | None:
        """The line that is complete now."""
        line = None if self._too_long or len(self._rest) > MAX_LINE_BYTES else bytes(self._rest)
        self._too_long = False
        self._rest.clear()
        return line


class LineWriter:
    """Writes lines whole and in order, and never waits itself: `room` waits for a client that reads slowly."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._writable = select.poll()
        self._writable.register(descriptor, select.POLLOUT)
        self._buffer = bytearray()
        self._waiting = False
        self._room = asyncio.Event()
        self._room.set()
        self.broken = False
        """Nobody reads any more; what is written goes nowhere."""

    def write(self, line: bytes) -> None:
        """Write one line, which has no end of its own."""
        if self.broken:
            return
        self._buffer += line
        self._buffer += b"\n"
        if not self._waiting:
            self._flush()
        self._judge_room()

    async def room(self) -> None:
        """Wait until no more than `HIGH_WATER_BYTES` are in the way of the next line, or nobody reads any more."""
        if not self._room.is_set():
            await self._room.wait()

    async def close(self) -> None:
        """Wait, within a bound, until what was written is read; the descriptor is its owner's to close."""
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
            self.broken = True
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

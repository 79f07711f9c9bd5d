"""Lines on a pair of descriptors, without a thread in between. Knows nothing of what a line says.

Stdin and stdout stay in blocking mode, because whoever started us may share them: a read follows readiness, and a write
that follows readiness takes no more than a pipe then has room for.
"""

from __future__ import annotations

import os
import select


class Lines:
    """Bytes in any pieces as lines; None stands for one that is longer than `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._too_long = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that are complete now and not blank; after the last byte feed nothing, for a line without end."""
        first, *others = data.split(b"\n")
        self._rest += first
        lines: list[bytes | None] = []
        for piece in others if data else [b""]:
            if self._too_long or len(self._rest) > self._limit:
                lines.append(None)
            elif self._rest and not self._rest.isspace():
                lines.append(bytes(self._rest))
            self._rest = bytearray(piece)
            self._too_long = False
        if len(self._rest) > self._limit:
            self._too_long = True
            self._rest.clear()
        return lines


class LineWriter:
    """Lines to a descriptor, as they can be written without waiting; raises OSError when nobody reads any more."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._writable = select.poll()
        self._writable.register(descriptor, select.POLLOUT)
        self.waiting = bytearray()
        """What has not been written yet."""

    def write(self, line: bytes) -> None:
        """Write a line, or keep what cannot be written now."""
        if not self.waiting and len(line) < select.PIPE_BUF and self._writable.poll(0):
            whole = line + b"\n"
            try:
                written = os.write(self._descriptor, whole)
            except BlockingIOError:
                # Whoever shares it has taken the room, and has made it non-blocking.
                written = 0
            self.waiting += whole[written:]
            return
        self.waiting += line
        self.waiting += b"\n"
        self.flush()

    def flush(self) -> None:
        """Write what waits, as far as that is possible now."""
        while self.waiting and self._writable.poll(0):
            try:
                written = os.write(self._descriptor, self.waiting[: select.PIPE_BUF])
            except BlockingIOError:
                return
            del self.waiting[:written]

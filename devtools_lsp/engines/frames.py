"""Content-Length frames as language servers write them: bytes in, bodies out, with every size bounded.

Owns framing of the engine side only. It knows nothing of JSON-RPC or of processes.
"""

from __future__ import annotations

MAX_HEADER_BYTES = 8 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024


class FrameError(ValueError):
    """The stream is not a sequence of frames any more; nothing after it can be trusted."""


def frame(body: bytes) -> bytes:
    """One message ready to be written."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class FrameReader:
    """Cuts a byte stream into message bodies.

    Text that a server prints on its output before its first header (a banner, a warning) is not a frame and
    raises FrameError: a server that writes there cannot be synchronized with.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._wanted: int | None = None

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer += data

    def next(self) -> bytes | None:
        """The next whole body, or None until more bytes arrive. Raises FrameError."""
        if self._wanted is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                self._refuse_a_header_that_cannot_be()
                return None
            self._wanted = _content_length(bytes(self._buffer[:end]))
            del self._buffer[: end + 4]
        if len(self._buffer) < self._wanted:
            return None
        body = bytes(self._buffer[: self._wanted])
        del self._buffer[: self._wanted]
        self._wanted = None
        return body

    def _refuse_a_header_that_cannot_be(self) -> None:
        if len(self._buffer) > MAX_HEADER_BYTES:
            raise FrameError(f"no end of a header within {MAX_HEADER_BYTES} bytes")
        start = bytes(self._buffer[:8]).lower()
        if start and not b"content-".startswith(start[: len(b"content-")]):
            raise FrameError(f"expected a Content-Length header, received {bytes(self._buffer[:60])!r}")


def _content_length(header: bytes) -> int:
    for line in header.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if not colon or name.strip().lower() != b"content-length":
            continue
        try:
            length = int(value)
        except ValueError as error:
            raise FrameError(f"Content-Length {value.strip()[:40]!r} is not a number") from error
        if not 0 <= length <= MAX_BODY_BYTES:
            raise FrameError(f"Content-Length {length} is outside 0 to {MAX_BODY_BYTES}")
        return length
    raise FrameError(f"a header without Content-Length: {header[:60]!r}")

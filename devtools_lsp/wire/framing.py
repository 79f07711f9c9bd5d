"""Content-Length framing: bytes to frames and back, without I/O.

Owns the header grammar, the caps and the judgement of what can be survived. A `FrameDecoder` is fed whatever
arrived and yields whole bodies and faults, the same ones however the bytes were cut. After a fatal fault the
start of the next frame is unknowable: say so and close. Knows nothing of JSON but for one thing: the id of a
request that is too large to be read, so that its sender is told which one failed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from devtools_lsp.wire.messages import INVALID_REQUEST, PARSE_ERROR, RequestId

MAX_HEADER_BYTES = 8 * 1024
MAX_FRAME_BYTES = 8 * 1024 * 1024
MAX_SKIPPED_BYTES = 64 * 1024 * 1024
"""A body between the two is skipped and the connection goes on; a larger claim is taken for nonsense."""

_PREFIX_BYTES = 1024
_HEADER_LINE = re.compile(rb"([A-Za-z][A-Za-z0-9-]*)[ \t]*:[ \t]*([^\r\n]*?)[ \t]*")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_PLAIN_HEADER = re.compile(rb"Content-Length: ([0-9]{1,15})\r\n\r\n")
_LEADING_ID = re.compile(
    rb'\s*\{(?:\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*,)*\s*"id"\s*:\s*'
    rb'(?:(?P<number>-?[0-9]{1,18})|"(?P<text>[^"\\\x00-\x1f\x80-\xff]{0,128})")\s*[,}]'
)


class FrameTooLargeError(ValueError):
    """A message of ours does not fit a frame; nothing was sent."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the message has {size} bytes; a frame holds at most {limit}")
        self.size = size
        self.limit = limit


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with the bytes that arrived: the error to answer, and whether the connection can go on."""

    code: int
    message: str
    fatal: bool = True
    request_id: RequestId | None = None


def encode_header(size: int, limit: int = MAX_FRAME_BYTES) -> bytes:
    """The header of a body of `size` bytes; raises FrameTooLargeError."""
    if size > limit:
        raise FrameTooLargeError(size, limit)
    return b"Content-Length: %d\r\n\r\n" % size


def encode_frame(body: bytes, limit: int = MAX_FRAME_BYTES) -> bytes:
    """A body with its header; raises FrameTooLargeError."""
    if len(body) > limit:
        raise FrameTooLargeError(len(body), limit)
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class FrameDecoder:
    """Cuts a byte stream into bodies. The caps default to the contract's; tests make them small."""

    def __init__(
        self,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        max_header_bytes: int = MAX_HEADER_BYTES,
        max_skipped_bytes: int = MAX_SKIPPED_BYTES,
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._max_header_bytes = max_header_bytes
        self._max_skipped_bytes = max_skipped_bytes
        self._buffer = bytearray()
        self._header_bytes = 0
        self._claimed: int | None = None
        self._length: int | None = None
        self._skip = 0
        self._dead = False

    def feed(self, data: bytes) -> None:
        """Take what arrived. A body that is being skipped, and everything after a fatal fault, is dropped."""
        if self._dead:
            return
        if self._skip:
            dropped = min(self._skip, len(data))
            self._skip -= dropped
            data = data[dropped:]
        self._buffer += data

    @property
    def inside_frame(self) -> bool:
        """Whether a frame has begun and not ended."""
        begun = bool(self._buffer) or self._header_bytes > 0 or self._length is not None or self._skip > 0
        return begun and not self._dead

    @property
    def awaits_only_an_id(self) -> bool:
        """Whether the next fault is certain, and more bytes would only tell which request it concerns."""
        return self._length is not None and self._length > self._max_frame_bytes

    def next(self) -> bytes | Fault | None:
        """The next body or fault, or None when more bytes are needed."""
        if self._dead or self._skip:
            return None
        if self._length is None and self._buffer:
            plain = _PLAIN_HEADER.match(self._buffer)
            if (
                plain is not None
                and not self._header_bytes
                and plain.end() <= self._max_header_bytes
                and int(plain[1]) <= self._max_frame_bytes
            ):
                # What nearly everybody sends, taken at once.
                self._length = int(plain[1])
                del self._buffer[: plain.end()]
            elif (fault := self._read_header()) is not None:
                self._die()
                return fault
        if self._length is None:
            return None
        if self._length > self._max_frame_bytes:
            return self._skip_body() if len(self._buffer) >= min(self._length, _PREFIX_BYTES) else None
        if len(self._buffer) < self._length:
            return None
        with memoryview(self._buffer) as view:
            body = bytes(view[: self._length])
        del self._buffer[: self._length]
        self._length = None
        return body

    def interrupted(self, why: str) -> Fault | None:
        """No more bytes are coming (for now): the fault of the frame that is incomplete, None between frames."""
        if not self.inside_frame:
            return None
        if self.awaits_only_an_id:
            return self._skip_body()
        self._die()
        return Fault(PARSE_ERROR, f"the frame is incomplete: {why}")

    def _die(self) -> None:
        self._dead = True
        self._buffer.clear()

    def _skip_body(self) -> Fault:
        length = self._length or 0
        request_id = _leading_id(self._buffer)
        dropped = min(length, len(self._buffer))
        del self._buffer[:dropped]
        self._skip = length - dropped
        self._length = None
        message = f"the frame has {length} bytes and was not read; send at most {self._max_frame_bytes}"
        return Fault(INVALID_REQUEST, message, fatal=False, request_id=request_id)

    def _read_header(self) -> Fault | None:
        """Consume whole header lines; sets `_length` after the blank one. A bare LF ends a line, too."""
        while True:
            newline = self._buffer.find(b"\n")
            if self._header_bytes + (newline if newline >= 0 else len(self._buffer)) > self._max_header_bytes:
                return Fault(PARSE_ERROR, f"the header is longer than {self._max_header_bytes} bytes")
            if newline < 0:
                return self._judge_beginning()
            line = bytes(self._buffer[:newline]).removesuffix(b"\r")
            del self._buffer[: newline + 1]
            self._header_bytes += newline + 1
            if not line:
                return self._end_header()
            fault = self._read_header_line(line)
            if fault is not None:
                return fault

    def _judge_beginning(self) -> Fault | None:
        """Refuse at once what cannot become a header line, instead of waiting for an end that never comes."""
        first = bytes(self._buffer[:1])
        if not first or first.isalpha() or first == b"\r":
            return None
        return Fault(PARSE_ERROR, "a header line was expected; is an earlier Content-Length wrong?")

    def _read_header_line(self, line: bytes) -> Fault | None:
        found = _HEADER_LINE.fullmatch(line)
        if found is None:
            return Fault(PARSE_ERROR, "a header line was expected; is an earlier Content-Length wrong?")
        name, value = found.groups()
        if name.lower() != b"content-length":
            return None
        if not _LENGTH.fullmatch(value):
            return Fault(PARSE_ERROR, f"Content-Length must be a number of bytes, not {value[:40]!r}")
        length = int(value)
        if self._claimed not in (None, length):
            return Fault(PARSE_ERROR, "two different Content-Length headers in one frame")
        if length > self._max_skipped_bytes:
            limit = self._max_frame_bytes
            return Fault(INVALID_REQUEST, f"Content-Length {length} is refused; a frame holds at most {limit} bytes")
        self._claimed = length
        return None

    def _end_header(self) -> Fault | None:
        if self._claimed is None:
            return Fault(PARSE_ERROR, "the header has no Content-Length")
        self._length = self._claimed
        self._claimed = None
        self._header_bytes = 0
        return None


def _leading_id(prefix: bytearray) -> RequestId | None:
    """The id of a request from its first bytes, where it stands before `params` as every common encoder puts it."""
    found = _LEADING_ID.match(prefix)
    if found is None:
        return None
    number: bytes | None = found["number"]
    text: bytes | None = found["text"]
    if number is not None:
        return int(number)
    return (text or b"").decode("ascii")

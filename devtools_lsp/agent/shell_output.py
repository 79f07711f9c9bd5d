"""What a command printed, made fit for a model: cleaned, streamed line by line, kept head and tail under a cap.

Escape sequences go, progress drawn with carriage returns collapses to its last state, and what exceeds the cap
is dropped from the middle with its size said. Lines end at LF or CRLF only. Pure: bytes in, text out; knows
nothing of processes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Stream = Literal["stdout", "stderr"]

_LONGEST_PENDING = 64 * 1024
"""A line longer than this is passed on in pieces."""

_LONGEST_PROGRESS = 4 * 1024

_SEGMENT_COST = 64
"""Charged for each kept segment beyond the first few, so that a flood of tiny ones is bounded in memory as well."""

_FREE_SEGMENTS = 256
_LONGEST_SEGMENT = 16 * 1024
_MANY_LINES = 32
"""A read that brings more lines than this is streamed as one text."""

_REFILL_PER_S = 256 * 1024
_BOUNDARY_WINDOW = 4200
_MARKER_ROOM = 64
"""What the line takes that says what is missing."""

_CONTROLS = re.compile(
    rb"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # CSI: colours, cursor movement
    rb"|\xc2\x9b[0-?]{0,64}[ -/]{0,8}[@-~]"  # the same with the one-character introducer, in UTF-8
    rb"|\x1b[\]PX^_](?:[^\x07\x1b\r\n]{0,4096}(?:\x07|\x1b\\))?"  # OSC, DCS and other strings: titles, links
    rb"|\x1b[ -/]{0,4}[0-~]?"  # two-character ones, and an escape that starts nothing known
    rb"|(?:[\xc2-\xf4][\x80-\xbf]{1,3}|[^\r\n])\x08"  # overstriking
    rb"|[\x00-\x08\x0e-\x1f\x7f]"
)
_SUSPECT = re.compile(rb"[\x00-\x08\x0d-\x1f\x7f]|\xc2\x9b")


def clean(lines: bytes) -> bytes:
    """Lines without escape sequences and control characters, overdrawn parts removed, CRLF as LF."""
    if not _SUSPECT.search(lines):
        return lines
    lines = _CONTROLS.sub(b"", lines)
    if b"\r" in lines:
        lines = b"\n".join(_last_drawn(line) for line in lines.split(b"\n"))
    return lines


def _last_drawn(line: bytes) -> bytes:
    return next((part for part in reversed(line.split(b"\r")) if part), b"")


@dataclass(slots=True)
class _Segment:
    """Output of one stream that nothing of the other one interrupted."""

    arrival: int
    stream: Stream
    data: bytearray
    cost: int


@dataclass(slots=True)
class _StreamState:
    """One stream's bookkeeping; its newest output waits in `tail` until the cap pushes it out."""

    pending: bytes = b""
    tail: deque[_Segment] = field(default_factory=deque[_Segment])
    tail_cost: int = 0
    seen_bytes: int = 0
    dropped_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CapturedOutput:
    """What is left of a command's output.

    `text` has both streams in order of arrival; `stdout` and `stderr` each alone. Where something was dropped a
    line in brackets says how many bytes. `total_bytes` counts what was printed (cleaned), `dropped_bytes` what is
    missing here.
    """

    text: str
    stdout: str
    stderr: str
    total_bytes: int
    dropped_bytes: int


class OutputCapture:
    """Collects both streams. `max_bytes` bounds what is kept of both together.

    The first half of it is for what came first, the second for what came last; there the stream with more to show
    gives way, so that a flood on one does not push out the other's last words.

    `on_output(stream, text)` gets each complete line without its end as soon as it is there; a burst of more than
    32 lines in one read comes as one text. Streaming is bounded too: it starts with a budget of `max_bytes` that
    refills at 256 KiB a second; what exceeds it is counted in a line of its own. `redact` is applied to every text
    that is streamed and once more to the whole at the end, so that a secret which spans lines does not stay.
    """

    def __init__(
        self,
        max_bytes: int,
        *,
        on_output: Callable[[Stream, str], None] | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._half = max_bytes // 2
        self._head: list[_Segment] = []
        self._head_cost = 0
        self._streams: dict[Stream, _StreamState] = {"stdout": _StreamState(), "stderr": _StreamState()}
        self._newest: _Segment | None = None
        self._arrivals = 0
        self._on_output = on_output
        self._redact = redact
        self._budget = float(max_bytes)
        self._budget_limit = float(max_bytes)
        self._budget_time: float | None = None
        self._unstreamed = 0

    def feed(self, stream: Stream, data: bytes, now: float) -> None:
        """Bytes arrived; `now` is monotonic seconds."""
        state = self._streams[stream]
        complete, newline, rest = (state.pending + data).rpartition(b"\n")
        if newline:
            self._lines(stream, clean(complete), now)
        if len(rest) > _LONGEST_PROGRESS:
            # Progress that never ends its line is collapsed while it is pending, else it would grow without bound.
            rest = rest[rest.rstrip(b"\r").rfind(b"\r") + 1 :]
        if len(rest) > _LONGEST_PENDING:
            cut = _safe_cut(rest)
            self._emit(stream, clean(rest[:cut]), now)
            rest = rest[cut:]
        state.pending = rest

    def flush(self, now: float) -> None:
        """No more is coming: stream and keep what has no line end."""
        for stream, state in self._streams.items():
            if state.pending:
                self._emit(stream, clean(state.pending), now)
                state.pending = b""
        self._say_unstreamed("stdout", force=True)

    def finish(self, now: float) -> CapturedOutput:
        """`flush`, then everything that is kept. Slow where `redact` is, and good for any thread once flushed."""
        self.flush(now)
        if any(state.dropped_bytes for state in self._streams.values()):
            # The lines that say so must fit under the cap as well, and making room may cut the other stream too.
            self._trim(max(0, self._half - _MARKER_ROOM * len(self._streams)))
        for stream, state in self._streams.items():
            if state.dropped_bytes:
                self._mend_cut(stream, state)
        return CapturedOutput(
            text=self._assemble("stdout", "stderr"),
            stdout=self._assemble("stdout"),
            stderr=self._assemble("stderr"),
            total_bytes=sum(state.seen_bytes for state in self._streams.values()),
            dropped_bytes=sum(state.dropped_bytes for state in self._streams.values()),
        )

    def _lines(self, stream: Stream, lines: bytes, now: float) -> None:
        self._keep(stream, lines + b"\n")
        if self._on_output is None:
            return
        if lines.count(b"\n") >= _MANY_LINES:
            self._stream(stream, lines, now)
            return
        for line in lines.split(b"\n"):
            self._stream(stream, line, now)

    def _emit(self, stream: Stream, piece: bytes, now: float) -> None:
        """A piece of a line, whose end has not been seen."""
        if piece:
            self._keep(stream, piece)
            self._stream(stream, piece, now)

    # -- streaming

    def _stream(self, stream: Stream, data: bytes, now: float) -> None:
        if self._on_output is None:
            return
        if self._budget_time is not None:
            self._budget = min(self._budget_limit, self._budget + (now - self._budget_time) * _REFILL_PER_S)
        self._budget_time = now
        if self._budget <= 0:
            self._unstreamed += len(data) + 1
            return
        self._say_unstreamed(stream)
        self._budget -= len(data) + 1
        text = data.decode("utf-8", "replace")
        self._on_output(stream, self._redact(text) if self._redact else text)

    def _say_unstreamed(self, stream: Stream, *, force: bool = False) -> None:
        if self._on_output is None or not self._unstreamed or (self._budget <= 0 and not force):
            return
        self._on_output(stream, f"[{self._unstreamed:,} bytes came too fast to be streamed]")
        self._unstreamed = 0

    # -- keeping

    def _keep(self, stream: Stream, data: bytes) -> None:
        state = self._streams[stream]
        state.seen_bytes += len(data)
        room = self._half - self._head_cost
        if room > 0:
            taken = data[:room]
            self._head_cost += self._append(self._head, stream, taken)
            data = data[len(taken) :]
        if data:
            # From the first byte that finds the head full, everything goes to the tails: order is kept that way.
            self._head_cost = self._half
            state.tail_cost += self._append(state.tail, stream, data)
            self._trim(self._half)

    def _append(self, segments: list[_Segment] | deque[_Segment], stream: Stream, data: bytes) -> int:
        """Add to the newest segment when it is this stream's and ends this list; returns the cost."""
        newest = self._newest
        if (
            newest is not None
            and newest.stream == stream
            and segments
            and segments[-1] is newest
            and len(newest.data) < _LONGEST_SEGMENT
        ):
            newest.data += data
            newest.cost += len(data)
            return len(data)
        self._arrivals += 1
        cost = len(data) + (_SEGMENT_COST if self._arrivals > _FREE_SEGMENTS else 0)
        self._newest = _Segment(self._arrivals, stream, bytearray(data), cost)
        segments.append(self._newest)
        return cost

    def _trim(self, limit: int) -> None:
        """Push the oldest of the fuller tail out until both together are within `limit`."""
        while (excess := sum(state.tail_cost for state in self._streams.values()) - limit) > 0:
            state = max(self._streams.values(), key=lambda candidate: candidate.tail_cost)
            if not state.tail:
                return
            segment = state.tail[0]
            if len(segment.data) <= excess:
                state.tail.popleft()
                state.tail_cost -= segment.cost
                state.dropped_bytes += len(segment.data)
                continue
            del segment.data[:excess]
            segment.cost -= excess
            state.tail_cost -= excess
            state.dropped_bytes += excess

    # -- assembling

    def _assemble(self, *streams: Stream) -> str:
        segments = [segment for segment in self._head if segment.stream in streams]
        for stream in streams:
            segments += self._streams[stream].tail
        segments.sort(key=lambda segment: segment.arrival)
        text = b"".join(segment.data for segment in segments).decode("utf-8", "replace")
        return self._redact(text) if self._redact else text

    def _mend_cut(self, stream: Stream, state: _StreamState) -> None:
        """Cut at line ends, so that no half of a character or of a secret stays, and say what is missing."""
        for segment in reversed(self._head):
            if segment.stream == stream:
                shortened = _before_boundary(segment.data)
                state.dropped_bytes += len(segment.data) - len(shortened)
                segment.data = shortened
                break
        if not state.tail:
            state.tail.append(_Segment(self._arrivals + 1, stream, bytearray(), 0))
        first = state.tail[0]
        shortened = _after_boundary(first.data)
        state.dropped_bytes += len(first.data) - len(shortened)
        first.data = bytearray(f"\n[… {state.dropped_bytes:,} bytes of {stream} dropped …]\n".encode()) + shortened


def _safe_cut(data: bytes) -> int:
    """Where an over-long line may be cut: not inside an escape sequence, not inside a character."""
    escape = data.rfind(b"\x1b", max(0, len(data) - _BOUNDARY_WINDOW))
    if escape > 0:
        return escape
    start = len(data) - 1
    while start > len(data) - 4 and data[start] & 0xC0 == 0x80:
        start -= 1
    return start if data[start] >= 0xC0 else len(data)


def _before_boundary(data: bytearray) -> bytearray:
    newline = data.rfind(b"\n", max(0, len(data) - _BOUNDARY_WINDOW))
    if newline >= 0:
        return data[: newline + 1]
    blank = data.rfind(b" ", max(0, len(data) - _BOUNDARY_WINDOW))
    return data[:blank] if blank >= 0 else data


def _after_boundary(data: bytearray) -> bytearray:
    newline = data.find(b"\n", 0, _BOUNDARY_WINDOW)
    if newline >= 0:
        return data[newline + 1 :]
    blank = data.find(b" ", 0, _BOUNDARY_WINDOW)
    return data[blank:] if blank >= 0 else data

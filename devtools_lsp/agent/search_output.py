"""What search programs print, taken apart: matching lines, lists of files, and what they say about places passed over.

A matching line is `PATH NUL LINE:COLUMN:TEXT LF`, a listed file `PATH NUL`; on standard error stands one line
`ignoring PATH: WHY` for each place that was not looked at. A search finds thousands of lines and shows a few, so that
a line is looked at more closely only when it is going to be shown. Pure, and decides nothing about paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Self

from devtools_lsp.agent.search_rules import REPOSITORY_NAMES

SkipReason = Literal["ignored", "dependencies", "binary", "oversized", "unreadable"]

_REPOSITORY_NAMES = frozenset(name.encode() for name in REPOSITORY_NAMES)
_EXAMPLES = 5
_COMPLAINT_BYTES = 4096
_PREFIX = b"rg: "
_IGNORING = re.compile(rb"(?:^|: )ignoring \./(.*): (Ignore\(|\d+ bytes|found binary data)(.*)", re.DOTALL)
_BINARY_MESSAGE = re.compile(
    rb"(.*): (WARNING: stopped searching binary file|binary file matches).*?(?:offset (\d+)\))?", re.DOTALL
)
_RECORD = re.compile(rb"([^\0\n]+)\0([^\n]*)\n")
_OMITTED = re.compile(rb" \[\.\.\. (?:\d+ more match(?:es)?|omitted end of long line)\]$")


@dataclass(slots=True)
class Skipped:
    """What was passed over, counted by reason; a directory counts once. `examples` are root-relative paths.

    `counts_at` says whether a place of that reason is to be counted; the default is all of them.
    """

    counts: dict[SkipReason, int] = field(default_factory=dict[SkipReason, int])
    examples: dict[SkipReason, list[str]] = field(default_factory=dict[SkipReason, list[str]])
    counts_at: Callable[[SkipReason, str], bool] | None = None

    def add(self, reason: SkipReason, path: str) -> None:
        """Count one place."""
        if self.counts_at is not None and not self.counts_at(reason, path):
            return
        self.counts[reason] = self.counts.get(reason, 0) + 1
        shown = self.examples.setdefault(reason, [])
        if len(shown) < _EXAMPLES:
            shown.append(path)

    def clear(self) -> None:
        """Forget them: the same question is going to be asked in another way."""
        self.counts.clear()
        self.examples.clear()


@dataclass(frozen=True, slots=True)
class MatchedLine:
    """One matching line. `column` is 1-based in bytes; `text` is cut when the line is long."""

    line: int
    column: int
    text: bytes
    cut: bool

    @classmethod
    def parse(cls, printed: bytes, max_bytes: int) -> Self:
        """What stands behind a path, `LINE:COLUMN:TEXT`, with so much of the text."""
        line, _, rest = printed.partition(b":")
        column, _, text = rest.partition(b":")
        if not column.isdigit():
            # What matched is the end of the line alone, which ripgrep gives no column.
            column, text = b"%d" % (len(rest) + 1), rest
        text = text.removesuffix(b"\r")
        kept = _OMITTED.sub(b"", text)
        end = max_bytes
        if len(kept) > end:
            while end > 0 and kept[end] & 0xC0 == 0x80 and end > max_bytes - 4:
                # Not inside a character.
                end -= 1
            kept = kept[:end]
        return cls(int(line), int(column), kept, len(kept) != len(text))


@dataclass(frozen=True, slots=True)
class BinaryFile:
    """Said among the matches: a file has a NUL at `offset` (0 when that is not said).

    `matches` is what the program says of a file that it searched to the end, and only if it matches; else it says so
    on standard error, too.
    """

    path: bytes
    offset: int
    matches: bool


def take_matches(buffer: bytearray) -> tuple[list[tuple[bytes, bytes]], list[BinaryFile]]:
    """Take the complete records off the front of a buffer: path, and what `MatchedLine.parse` reads."""
    end = buffer.rfind(b"\n") + 1
    printed = bytes(buffer[:end])
    del buffer[:end]
    found: list[tuple[bytes, bytes]] = _RECORD.findall(printed)
    if len(found) == printed.count(b"\n"):
        return found, []
    found, binary, begun = _take_slowly(printed)
    buffer[:0] = begun
    return found, binary


def _take_slowly(printed: bytes) -> tuple[list[tuple[bytes, bytes]], list[BinaryFile], bytes]:
    """Line by line, where not every line is a record; also what has begun a record that is not complete."""
    found: list[tuple[bytes, bytes]] = []
    binary: list[BinaryFile] = []
    begun = b""
    for line in printed.split(b"\n")[:-1]:
        path, nul, rest = line.partition(b"\0")
        if nul:
            found.append((begun + path, rest))
            begun = b""
            continue
        begun += line
        message = _BINARY_MESSAGE.fullmatch(begun)
        if message is None:
            # A path may hold line ends; what it begins goes on with the next line.
            begun += b"\n"
        else:
            binary.append(BinaryFile(message[1], int(message[3] or 0), message[2].endswith(b"matches")))
            begun = b""
    return found, binary, begun


def take_files(buffer: bytearray) -> bytes:
    """Take the complete paths off the front of a buffer of NUL-terminated ones; `b""` when there is none."""
    end = buffer.rfind(b"\0")
    if end < 0:
        return b""
    paths = bytes(buffer[:end])
    del buffer[: end + 1]
    return paths


class Messages:
    """Standard error as it comes. `complaint` is what a program said against its arguments, `tells` whether it says
    what it passes over."""

    def __init__(self, add: Callable[[SkipReason, str], None]) -> None:
        """`add` gets each place that was passed over."""
        self._add = add
        self.complaint = ""
        self.tells = False
        self._rest = b""
        self._message: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """More of it."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)

    def finish(self) -> None:
        """No more is coming."""
        if self._rest:
            self._take(self._rest)
            self._rest = b""
        self._end_message()

    def _take(self, line: bytes) -> None:
        # Lines without the prefix go on with the message before them: a complaint, or a path with line ends in it.
        if line.startswith(_PREFIX):
            self._end_message()
        self._message.append(line)

    def _end_message(self) -> None:
        message = b"\n".join(self._message).removeprefix(_PREFIX)
        self._message.clear()
        debug = message.startswith(b"DEBUG|")
        self.tells = self.tells or debug
        found = _IGNORING.search(message)
        if found:
            reason = _reason(found[2], found[3])
            if reason is not None and found[1].rpartition(b"/")[2] not in _REPOSITORY_NAMES:
                self._add(reason, found[1].decode("utf-8", "replace"))
        elif b"(os error " in message:
            self._add("unreadable", message.decode("utf-8", "replace").partition(": ")[0].removeprefix("./"))
        elif message and not debug and len(self.complaint) < _COMPLAINT_BYTES:
            self.complaint += message.decode("utf-8", "replace") + "\n"


def _reason(kind: bytes, details: bytes) -> SkipReason | None:
    if kind.endswith(b" bytes"):
        return "oversized"
    if kind == b"found binary data":
        return "binary"
    if details.startswith(b"IgnoreMatch(Override"):
        return "dependencies"
    if details.startswith(b"IgnoreMatch(Gitignore"):
        return "ignored"
    return None

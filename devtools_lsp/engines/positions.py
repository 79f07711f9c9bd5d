"""Positions between a server's encoding and ours.

A server counts 0-based lines that end at LF, CRLF or a lone CR, and characters in UTF-8 bytes, UTF-16 units or
code points, as negotiated. We count 1-based lines that end at LF (texts here have no CRLF, and a lone CR is
content) and 1-based columns in code points. Pure.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Literal

from devtools_lsp.engines.messages import Position, Range, TextEdit
from devtools_lsp.text import Span

PositionEncoding = Literal["utf-8", "utf-16", "utf-32"]

_LSP_LINE_END = re.compile(r"\r\n|\n|\r")


class TextPositions:
    """An index over one text, for many conversions. `text` is LF text."""

    def __init__(self, text: str, encoding: PositionEncoding) -> None:
        self.text = text
        self._encoding: PositionEncoding = encoding
        self._ascii = text.isascii()
        self._lsp_starts = [0, *(match.end() for match in _LSP_LINE_END.finditer(text))]
        self._starts = self._lsp_starts if "\r" not in text else [0, *_line_feeds(text)]

    def from_lsp_position(self, position: Position) -> int:
        """The offset of a server's position, clamped into the text as the protocol demands."""
        line = position.line
        if line < 0:
            return 0
        if line >= len(self._lsp_starts):
            return len(self.text)
        start = self._lsp_starts[line]
        end = self._lsp_starts[line + 1] if line + 1 < len(self._lsp_starts) else len(self.text)
        content_end = end
        while content_end > start and self.text[content_end - 1] in "\r\n":
            content_end -= 1
        # A range may end after the line's own end (start of the next line); inside the line it is clamped.
        return min(start + self._code_points(start, content_end, position.character), content_end)

    def to_lsp_position(self, offset: int) -> Position:
        """The server's position of an offset."""
        line = bisect_right(self._lsp_starts, offset) - 1
        prefix = self.text[self._lsp_starts[line] : offset]
        return Position(line, len(prefix) if self._ascii else _units(prefix, self._encoding))

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Our 1-based line and column of an offset."""
        line = bisect_right(self._starts, offset) - 1
        return line + 1, offset - self._starts[line] + 1

    def from_lsp_range(self, span: Range) -> tuple[int, int, int, int]:
        """(line, column, end line, end column), 1-based, the end exclusive."""
        line, column = self.line_and_column(self.from_lsp_position(span.start))
        end_line, end_column = self.line_and_column(self.from_lsp_position(span.end))
        return line, column, end_line, end_column

    def whole(self) -> Range:
        """The range of the whole text."""
        return Range(Position(0, 0), self.to_lsp_position(len(self.text)))

    def from_lsp_edits(self, edits: list[TextEdit]) -> list[Span]:
        """Spans sorted by start; raises ValueError when they overlap."""
        spans = [
            Span(self.from_lsp_position(edit.range.start), self.from_lsp_position(edit.range.end), edit.new_text)
            for edit in edits
        ]
        ordered = [span for _, span in sorted(enumerate(spans), key=lambda item: (item[1].start, item[1].end, item[0]))]
        position = 0
        for span in ordered:
            if span.start < position or span.end < span.start:
                raise ValueError("the server's edits overlap")
            position = span.end
        return ordered

    def _code_points(self, start: int, end: int, units: int) -> int:
        if self._ascii or self._encoding == "utf-32":
            return max(units, 0)
        used = 0
        for index in range(start, end):
            if used >= units:
                return index - start
            used += _width(self.text[index], self._encoding)
        return end - start


def _line_feeds(text: str) -> list[int]:
    return [match.end() for match in re.finditer("\n", text)]


def _width(character: str, encoding: PositionEncoding) -> int:
    code = ord(character)
    if encoding == "utf-8":
        return 1 if code < 0x80 else 2 if code < 0x800 else 3 if code < 0x10000 else 4
    return 2 if code >= 0x10000 else 1


def _units(text: str, encoding: PositionEncoding) -> int:
    if encoding == "utf-32":
        return len(text)
    return sum(_width(character, encoding) for character in text)

"""Where our positions become an editor's: ranges, diagnostics and URIs as LSP spells them, in one module.

Ours are 1-based, columns in code points, lines that end at LF. An editor's are 0-based, characters in the units it
negotiated, and lines end at a lone CR as well. Structs here are encoded by msgspec past pygls, because ten thousand
diagnostics are too many for it. Knows nothing of who publishes what.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from devtools_lsp.core.diagnostics import Diagnostic, Severity

PositionEncoding = Literal["utf-8", "utf-16", "utf-32"]

SOURCE = "devtools-lsp"
"""The `source` of what the runtime itself says."""

SEVERITIES: dict[Severity, int] = {"error": 1, "warning": 2, "info": 3}


class LspPosition(msgspec.Struct, frozen=True, gc=False):
    """0-based, in the editor's units."""

    line: int
    character: int


class LspRange(msgspec.Struct, frozen=True, gc=False):
    """The end is exclusive."""

    start: LspPosition
    end: LspPosition


class FindingData(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The `data` of a finding."""

    engine_id: str | None
    out_of_scope: bool


class LspDiagnostic(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One published diagnostic."""

    range: LspRange
    severity: int
    source: str
    message: str
    code: str | None = None
    data: Any = None


def units(text: str, encoding: PositionEncoding) -> int:
    """How many units of the encoding a text takes."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-16":
        return len(text.encode("utf-16-le", "surrogatepass")) // 2
    return len(text.encode("utf-8", "surrogatepass"))


def from_lsp_character(line: str, character: int, encoding: PositionEncoding) -> int:
    """The code point offset of a character position in one line; clamped, and never inside a character."""
    if encoding == "utf-32" or line.isascii():
        return max(0, min(character, len(line)))
    used = 0
    for index, point in enumerate(line):
        if used >= character:
            return index
        code = ord(point)
        if encoding == "utf-16":
            used += 2 if code > 0xFFFF else 1
        else:
            used += 1 if code < 0x80 else 2 if code < 0x800 else 3 if code < 0x10000 else 4
    return len(line)


class LspText:
    """One LF text in one encoding, for many conversions. Places outside the text are clamped into it."""

    def __init__(self, text: str, encoding: PositionEncoding) -> None:
        self._lines = text.split("\n")
        self._encoding: PositionEncoding = encoding
        self._plain = text.isascii() or encoding == "utf-32"
        self._returns = [0, *accumulate(line.count("\r") for line in self._lines)] if "\r" in text else None

    def to_lsp_position(self, line: int, column: int) -> LspPosition:
        """The editor's position of a 1-based line and column."""
        lines = self._lines
        index = line - 1 if 0 < line <= len(lines) else min(max(line, 1), len(lines)) - 1
        content = lines[index]
        offset = column - 1 if 0 < column <= len(content) else min(max(column, 1) - 1, len(content))
        if self._returns is None:
            if self._plain or content.isascii():
                return LspPosition(index, offset)
            return LspPosition(index, units(content[:offset], self._encoding))
        before = content[:offset]
        return LspPosition(
            index + self._returns[index] + before.count("\r"),
            units(before[before.rfind("\r") + 1 :], self._encoding),
        )

    def to_lsp_range(self, line: int, column: int | None, end_line: int | None, end_column: int | None) -> LspRange:
        """The range of a place. Without a column it is the line's text, without an end the word that starts there."""
        if column is None:
            return self.to_lsp_lines(line, (end_line or line) - line + 1)
        start = self.to_lsp_position(line, column)
        if end_column is not None:
            return LspRange(start, self.to_lsp_position(end_line or line, end_column))
        if end_line is None:
            return LspRange(start, self.to_lsp_position(line, self._word_end(line, column)))
        return LspRange(start, self.to_lsp_position(end_line, self._width(end_line) + 1))

    def to_lsp_lines(self, first: int, count: int) -> LspRange:
        """The text of whole lines, from the first one's first visible character; at least one line."""
        last = max(first, first + count - 1)
        content = self._line(first)
        indent = len(content) - len(content.lstrip())
        start = indent + 1 if content.strip() else 1
        return LspRange(self.to_lsp_position(first, start), self.to_lsp_position(last, self._width(last) + 1))

    def _line(self, line: int) -> str:
        return self._lines[min(max(line, 1), len(self._lines)) - 1]

    def _width(self, line: int) -> int:
        return len(self._line(line))

    def _word_end(self, line: int, column: int) -> int:
        """The column behind the word at a place, or behind the one character that stands there."""
        content = self._line(line)
        start = end = column - 1
        while end < len(content) and (content[end].isalnum() or content[end] == "_"):
            end += 1
        return max(end, start + 1) + 1


NOWHERE = LspRange(LspPosition(0, 0), LspPosition(0, 0))
"""For what concerns a file as a whole, and for a file whose text cannot be read."""


def to_lsp_diagnostic(diagnostic: Diagnostic, text: LspText | None) -> LspDiagnostic:
    """One finding as an editor gets it. Without a text its lines stand, and its columns are left out."""
    if diagnostic.line is None:
        place = NOWHERE
    elif text is None:
        place = LspRange(LspPosition(diagnostic.line - 1, 0), LspPosition(diagnostic.end_line or diagnostic.line, 0))
    else:
        place = text.to_lsp_range(diagnostic.line, diagnostic.column, diagnostic.end_line, diagnostic.end_column)
    return LspDiagnostic(
        place,
        SEVERITIES[diagnostic.severity],
        diagnostic.engine_id or SOURCE,
        diagnostic.message,
        diagnostic.rule,
        _data(diagnostic.engine_id, diagnostic.out_of_scope),
    )


@lru_cache(maxsize=256)
def _data(engine_id: str | None, out_of_scope: bool) -> FindingData:
    """Thousands of findings share a few of these."""
    return FindingData(engine_id, out_of_scope)


class UriMap:
    """Root-relative paths and `file:` URIs of one editor, which may know the root by another name than we do."""

    def __init__(self, root: Path, folders: Sequence[str] = ()) -> None:
        real = os.path.realpath(root)
        names = [name for uri in folders if (name := _host_path(uri)) is not None]
        # The first of the editor's own folders that is our root gives the name under which it knows files.
        self._shown = next((name for name in names if os.path.realpath(name) == real), real)
        self._prefixes = tuple({f"{name.rstrip('/')}/" for name in (self._shown, real, str(root))})
        self._real = f"{real.rstrip('/')}/"

    def to_lsp_uri(self, path: str) -> str:
        """The URI of a root-relative path."""
        return Path(self._shown, path).as_uri()

    def from_lsp_uri(self, uri: str) -> str | None:
        """The root-relative path of a URI; None when it is no file or lies outside the root."""
        host = _host_path(uri)
        if host is None:
            return None
        for prefix in self._prefixes:
            if host.startswith(prefix):
                return host[len(prefix) :] or None
        real = os.path.realpath(host)
        return real[len(self._real) :] if real.startswith(self._real) else None


def _host_path(uri: str) -> str | None:
    try:
        parts = urlsplit(uri)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            return None
        path = unquote(parts.path, errors="strict")
    except (ValueError, UnicodeDecodeError):
        return None
    if not path.startswith("/") or "\0" in path:
        return None
    return os.path.normpath(path)

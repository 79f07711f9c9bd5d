"""One open document of one editor: its text, kept line by line, and changes in the editor's positions.

pygls' own documents split lines at form feeds, U+2028 and the like, which no editor does, and rebuild the whole text
for every change. Here lines end where LSP says that they do: CRLF, LF, lone CR.
"""

from __future__ import annotations

import asyncio
import hashlib
import re

from devtools_lsp.daemon.lsp_rim import PositionEncoding, from_lsp_character
from devtools_lsp.pipeline.off_loop import SMALL
from devtools_lsp.text import to_lf

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z")


class Document:
    """A text that changes. Lines keep their ends; the last one has none (and may be empty)."""

    def __init__(self, text: str, encoding: PositionEncoding) -> None:
        self._encoding: PositionEncoding = encoding
        self._lines = _split(text)
        self._size = len(text)
        self._changes = 0
        self._lf: str | None = None
        self._digest: bytes | None = None

    @property
    def text(self) -> str:
        """The text with LF line ends, as everything else here knows texts."""
        if self._lf is None:
            self._lf = to_lf("".join(self._lines))
        return self._lf

    @property
    def digest(self) -> bytes:
        """What the text is, in few bytes."""
        if self._digest is None:
            self._digest = digest_of(self.text)
        return self._digest

    async def settle(self) -> None:
        """Find out `text` and `digest` in a thread when they are large, so that whoever asks next has them at once.

        Nothing is gained where the text changes meanwhile, and nothing lost.
        """
        if self._digest is not None or self._size <= SMALL:
            return
        changes, lines = self._changes, list(self._lines)
        text, digest = await asyncio.to_thread(_joined, lines)
        if self._changes == changes:
            self._lf, self._digest = text, digest

    def replace(self, text: str) -> None:
        """A change without a range."""
        self._lines = _split(text)
        self._size = len(text)
        self._changed()

    def edit(self, start: tuple[int, int], end: tuple[int, int], text: str) -> None:
        """Replace a range, given as 0-based (line, character) pairs; places outside the text are clamped."""
        first, head = self._place(start)
        last, tail = self._place(max(start, end))
        joined = self._lines[first][:head] + text + self._lines[last][tail:]
        stop = last + 1
        # A CR and a LF that meet are one line end.
        if first > 0 and self._lines[first - 1].endswith("\r"):
            first -= 1
            joined = self._lines[first] + joined
        while joined.endswith("\r") and stop < len(self._lines):
            joined += self._lines[stop]
            stop += 1
        replaced = _split(joined)
        if stop < len(self._lines) and replaced[-1] == "":
            replaced.pop()
        self._size += len(joined) - sum(map(len, self._lines[first:stop]))
        self._lines[first:stop] = replaced
        self._changed()

    def _changed(self) -> None:
        self._changes += 1
        self._lf = self._digest = None

    def _place(self, position: tuple[int, int]) -> tuple[int, int]:
        line, character = position
        if line >= len(self._lines):
            return len(self._lines) - 1, len(self._lines[-1])
        content = self._lines[max(line, 0)].rstrip("\r\n")
        return max(line, 0), from_lsp_character(content, character, self._encoding)


def _joined(lines: list[str]) -> tuple[str, bytes]:
    text = to_lf("".join(lines))
    return text, digest_of(text)


def digest_of(text: str) -> bytes:
    """The digest of an LF text; lone surrogates, which JSON can carry, do not stop it."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _split(text: str) -> list[str]:
    if "\r" not in text:
        lines = [f"{line}\n" for line in text.split("\n")]
        lines[-1] = lines[-1][:-1]
        return lines
    lines = _LINE.findall(text)
    if not lines or lines[-1].endswith(("\r", "\n")):
        lines.append("")
    return lines

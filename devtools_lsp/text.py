"""Bytes to text and back: encodings, byte order marks and line endings (SPEC 3.4).

In memory a file is Unicode text whose lines end with LF. A `TextForm` remembers what its bytes looked like, so
that an edit of one line rewrites one line. Lines end at LF or CRLF only: form feed, NEL, U+2028 and a lone CR
are content. This module is pure and knows nothing of paths.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Literal, Self

import msgspec

TextPolicy = Literal["normalize", "preserve"]
Encoding = Literal["utf-8", "utf-16-le", "utf-16-be"]

_BOMS: tuple[tuple[bytes, Encoding], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


BYTE_ORDER_MARK = "\ufeff"
"""The mark as a character, as it looks to whoever decodes a file without taking it off."""


class NotTextError(ValueError):
    """The bytes are not UTF-8, nor UTF-16 with a byte order mark, or they hold NUL. The message says which."""


class Span(msgspec.Struct, frozen=True):
    """Replace `text[start:end]` by `replacement`; offsets count code points of the LF text."""

    start: int
    end: int
    replacement: str


class TextForm(msgspec.Struct, frozen=True):
    """How a file's bytes are made from its LF text.

    `crlf` is the dominant ending (ties go to LF). `mixed` is None for a file whose endings are all the dominant
    one, else one flag a line break in order: 1 for CRLF, 0 for LF.
    """

    encoding: Encoding = "utf-8"
    bom: bool = False
    crlf: bool = False
    mixed: bytes | None = None

    @property
    def label(self) -> str:
        """A short name for people, such as `utf-8 lf`, `utf-8-bom crlf` or `utf-16-le mixed`."""
        ending = "mixed" if self.mixed is not None else "crlf" if self.crlf else "lf"
        return f"{self.encoding}{'-bom' if self.bom else ''} {ending}"

    def after_spans(self, old_text: str, spans: Sequence[Span]) -> Self:
        """The form after non-overlapping spans, sorted by start, are replaced in `old_text`.

        Breaks outside the spans keep their ending. Inside one, the k-th new break takes the ending of the k-th
        replaced break; further ones take the dominant ending.
        """
        if self.mixed is None:
            return self
        flags = bytearray()
        position = 0
        used = 0
        dominant = 1 if self.crlf else 0
        for span in spans:
            kept = old_text.count("\n", position, span.start)
            flags += self.mixed[used : used + kept]
            used += kept
            removed = old_text.count("\n", span.start, span.end)
            inserted = span.replacement.count("\n")
            reused = self.mixed[used : used + min(removed, inserted)]
            flags += reused
            flags += bytes([dominant]) * (inserted - len(reused))
            used += removed
            position = span.end
        flags += self.mixed[used:]
        if len(set(flags)) < 2:
            return msgspec.structs.replace(self, mixed=None, crlf=bool(flags[0]) if flags else self.crlf)
        return msgspec.structs.replace(self, mixed=bytes(flags))

    def same_bytes(self, other: TextForm, text: str) -> bool:
        """Whether this form and another make the same bytes of an LF text."""
        if self == other:
            return True
        if self.encoding != other.encoding or self.bom != other.bom:
            return False
        return join_endings(text, self) == join_endings(text, other)


UTF8_LF = TextForm()
"""The form of every new file, and of every file under the text policy `normalize`."""


def decode(data: bytes) -> tuple[str, TextForm]:
    """Decode a file's bytes; raises NotTextError rather than guess."""
    encoding: Encoding = "utf-8"
    bom = b""
    for mark, name in _BOMS:
        if data.startswith(mark):
            bom, encoding = mark, name
            break
    try:
        raw = data[len(bom) :].decode(encoding)
    except UnicodeDecodeError as error:
        raise NotTextError(
            f"byte {error.start + len(bom)} is not valid {encoding.upper()}; only UTF-8, and UTF-16 with a byte order "
            "mark, are text here"
        ) from error
    if "\0" in raw:
        raise NotTextError("it contains NUL characters: a binary file, or UTF-16 without a byte order mark")
    text, form = split_endings(raw)
    return text, msgspec.structs.replace(form, encoding=encoding, bom=True) if bom else form


def split_endings(raw: str) -> tuple[str, TextForm]:
    """A text whose lines end with LF or CRLF as LF text, and the form that tells which ended how."""
    crlf = raw.count("\r\n")
    if not crlf:
        return raw, UTF8_LF
    text = raw.replace("\r\n", "\n")
    total = text.count("\n")
    if crlf == total:
        return text, TextForm(crlf=True)
    flags = bytearray()
    position = 0
    while (found := raw.find("\n", position)) >= 0:
        flags.append(1 if found > 0 and raw[found - 1] == "\r" else 0)
        position = found + 1
    return text, TextForm(crlf=crlf * 2 > total, mixed=bytes(flags))


def join_endings(text: str, form: TextForm) -> str:
    """The opposite of `split_endings`: an LF text with the line ends of its form."""
    if form.mixed is None:
        return text.replace("\n", "\r\n") if form.crlf else text
    lines = text.split("\n")
    dominant = 1 if form.crlf else 0
    pieces: list[str] = []
    for index, line in enumerate(lines[:-1]):
        flag = form.mixed[index] if index < len(form.mixed) else dominant
        pieces.append(line + ("\r\n" if flag else "\n"))
    pieces.append(lines[-1])
    return "".join(pieces)


def encode(text: str, form: TextForm) -> bytes:
    """The bytes of an LF text in a form; raises UnicodeEncodeError for lone surrogates."""
    bom = next((mark for mark, name in _BOMS if name == form.encoding), b"") if form.bom else b""
    return bom + join_endings(text, form).encode(form.encoding)


def unwritable(text: str) -> str | None:
    """What a text holds that no text file can, in words (with its 1-based line), or None when it can be written."""
    place = text.find("\0")
    if place >= 0:
        return f"a NUL character (line {line_of(text, place)})"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"the lone surrogate U+{ord(text[error.start]):04X} (line {line_of(text, error.start)})"
    return None


def to_lf(text: str) -> str:
    """Authored text (a find block, a patch, new contents) with CRLF folded to LF; a lone CR stays."""
    return text.replace("\r\n", "\n")


def split_lines(text: str) -> list[str]:
    """The lines of an LF text without their ends; a final LF does not open another line."""
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    return lines


def line_of(text: str, offset: int) -> int:
    """The 1-based line that holds an offset."""
    return text.count("\n", 0, offset) + 1


def apply_spans(text: str, spans: Sequence[Span]) -> str:
    """Replace non-overlapping spans, sorted by start."""
    pieces: list[str] = []
    position = 0
    for span in spans:
        pieces.append(text[position : span.start])
        pieces.append(span.replacement)
        position = span.end
    pieces.append(text[position:])
    return "".join(pieces)

"""Characters that look like others or like nothing: how they are folded for matching and named for a reader.

Owns the one list of typographic punctuation that tolerant matching folds (SPEC 3.6.3), and the names by which
an explanation calls a character (SPEC 3.5.2). It never changes a text that is written.
"""

from __future__ import annotations

import re
import unicodedata

from devtools_lsp.core.invisible import is_invisible

_SINGLE_QUOTES = "\u2018\u2019\u201a\u201b\u2032\u02bc"
_DOUBLE_QUOTES = "\u201c\u201d\u201e\u201f\u2033"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_BLANKS = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"

_TYPOGRAPHY = str.maketrans(
    dict.fromkeys(_SINGLE_QUOTES, "'")
    | dict.fromkeys(_DOUBLE_QUOTES, '"')
    | dict.fromkeys(_DASHES, "-")
    | dict.fromkeys(_BLANKS, " ")
    | {"\u2026": "..."}
)

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
"""Controls but tab and LF, format characters, line and paragraph separators, variation selectors, as one pattern
because whole files are reduced with it."""

_LETTERS = str.maketrans("авеорсухАВЕКМНОРСТХіјѕԁѡΑΒΕΖΗΙΚΜΝΟΡΤΥΧονϲ", "abeopcyxABEKMHOPCTXijsdwABEZHIKMNOPTYXovc")
"""Cyrillic and Greek letters that fonts draw like Latin ones; folded only to find what somebody may have meant."""

_COUNTED = {" ": ("blank", "blanks"), "\t": ("tab", "tabs")}
_CONTROL_NAMES = {
    "\0": "NUL",
    "\t": "tab",
    "\n": "line break",
    "\v": "vertical tab",
    "\f": "form feed",
    "\r": "carriage return",
    "\x1b": "escape",
    "\x7f": "delete",
    "\x85": "next line",
}
_RUNS = re.compile(r"(.)\1*", re.DOTALL)


def fold_typography(text: str) -> str:
    """Typographic quotes, dashes, blanks and the ellipsis as their ASCII forms."""
    return text if text.isascii() else text.translate(_TYPOGRAPHY)


def is_blank(character: str) -> bool:
    """Whether a character shows as empty space or not at all."""
    return character.isspace() or is_invisible(character) or _INVISIBLE.match(character) is not None


def essence(line: str) -> str:
    """A line reduced to what a reader sees: look-alikes folded, invisible ones dropped, blanks collapsed.

    Two lines with one essence differ only in ways that are hard to see.
    """
    if not line.isascii():
        line = unicodedata.normalize("NFKC", fold_typography(line)).translate(_LETTERS)
    if not line.isprintable():
        line = _INVISIBLE.sub(lambda match: " " if match.group().isspace() else "", line)
    return " ".join(line.split())


def name_character(character: str) -> str:
    """A character as an explanation names it: `'x'`, or with code point and name when it is not plain ASCII."""
    if " " < character < "\x7f":
        return repr(character)
    point = f"U+{ord(character):04X}"
    known = _CONTROL_NAMES.get(character) or unicodedata.name(character, "")
    if character == " ":
        return f"a blank ({point})"
    if is_blank(character) or unicodedata.combining(character) or not character.isprintable():
        return f"{point} {known}".rstrip()
    return f"{character!r} ({point} {known})" if known else f"{character!r} ({point})"


def name_run(text: str) -> str:
    """A stretch of blanks and invisible characters in words, such as `4 blanks` or `1 tab, U+00A0 NO-BREAK SPACE`."""
    pieces: list[str] = []
    for run in _RUNS.finditer(text):
        letter, count = run.group(1), len(run.group())
        if letter in _COUNTED:
            pieces.append(f"{count} {_COUNTED[letter][count > 1]} (U+{ord(letter):04X})")
        else:
            pieces.append(f"{count} x {name_character(letter)}" if count > 1 else name_character(letter))
    return ", ".join(pieces) if pieces else "nothing"

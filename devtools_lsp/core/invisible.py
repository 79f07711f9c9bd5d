"""Characters that a person cannot see, made visible before somebody decides on text that holds them. Pure.

Owns which characters those are: controls, format characters (zero width, direction marks, tags), blanks that
look like a space, and blanks at a line's end. Nothing here changes text that is written.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_LOOKS_BLANK = frozenset(
    "\u00a0\u115f\u1160\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u202f\u205f\u2800\u3000\u3164\uffa0"
)
_HARMLESS_CONTROLS = frozenset("\t\n")

TRAILING_BLANKS = "trailing blanks"


_SUSPECT = re.compile(r"[ \t]$|[\x00-\x08\x0b-\x1f\x7f]|[^\x00-\x7f]", re.MULTILINE)


def may_hold_invisible(text: str) -> bool:
    """A quick look that spares most texts `find_invisible`: false means that it would find nothing."""
    return _SUSPECT.search(text) is not None


def is_invisible(character: str) -> bool:
    """Whether a character shows nothing, or shows as a blank without being a space."""
    if character.isascii():
        return (character < " " or character == "\x7f") and character not in _HARMLESS_CONTROLS
    return character in _LOOKS_BLANK or unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp", "Co", "Cs")


def reveal(text: str) -> str:
    """The text with every invisible character written as `<U+200B>`; tabs and line feeds stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"<U+{ord(character):04X}>" if is_invisible(character) else character for character in text)


def find_invisible(text: str) -> Iterator[tuple[int, int, str]]:
    """(line, column, what) of everything invisible, 1-based, columns in code points; blanks at a line's end too."""
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.rstrip(" \t")
        if len(bare) < len(line):
            yield number, len(bare) + 1, TRAILING_BLANKS
        if line.isascii() and line.isprintable():
            continue
        for column, character in enumerate(line, start=1):
            if is_invisible(character):
                yield number, column, f"U+{ord(character):04X} {unicodedata.name(character, 'control character')}"

"""File names as git writes them in diffs and listings: C-style quotes where a name would not survive plain.

Source of the format: git's documentation of `core.quotePath` and of the diff format. Bytes above 0x7F are left
as they are when quoting (git's `core.quotePath=false`), and understood as octal escapes when unquoting.
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r'[^\x00-\x1f"\\\x7f]*')
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_ESCAPED = {code: letter for letter, code in _ESCAPES.items()}
_PIECE = re.compile(r'\\([abtnvfr"\\])|\\([0-3][0-7]{2})|([^"\\]+)')


def quote_name(name: str) -> str:
    """The name, in double quotes with escapes when it holds control characters, quotes or backslashes."""
    if _PLAIN.fullmatch(name):
        return name
    pieces = [
        f"\\{_ESCAPED[ord(letter)]}"
        if ord(letter) in _ESCAPED
        else f"\\{ord(letter):03o}"
        if ord(letter) < 0x20 or ord(letter) == 0x7F
        else letter
        for letter in name
    ]
    return f'"{"".join(pieces)}"'


def unquote_name(text: str) -> tuple[str, int]:
    """The name that a quoted text starts with, and how many characters of the text it took.

    Raises ValueError when the quotes do not close, an escape is unknown, or the bytes are not UTF-8.
    """
    if not text.startswith('"'):
        raise ValueError("a quoted name starts with a double quote")
    data = bytearray()
    position = 1
    while position < len(text):
        if text[position] == '"':
            try:
                return data.decode("utf-8"), position + 1
            except UnicodeDecodeError as error:
                raise ValueError("the escaped bytes of the name are not UTF-8") from error
        piece = _PIECE.match(text, position)
        if piece is None:
            raise ValueError(f"unknown escape {text[position : position + 2]!r} in a quoted name")
        letter, octal, plain = piece.groups()
        if letter is not None:
            data.append(_ESCAPES[letter])
        elif octal is not None:
            data.append(int(octal, 8))
        else:
            data += plain.encode("utf-8", "surrogatepass")
        position = piece.end()
    raise ValueError("the quoted name does not end with a double quote")

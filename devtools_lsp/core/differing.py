"""Words about how a line of a file differs from one that was wanted, and the lines shown beside them (SPEC 3.5.2).

Owns the naming of the first difference, down to code points where it is hard to see, and the numbered excerpt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import combining

from devtools_lsp.core.lookalikes import is_blank, name_character, name_run

_ROWS_SHOWN = 8
_WIDTH_SHOWN = 160
_COLUMN = re.compile(r"column (\d+)")


def difference(actual: str, wanted: str, *, noun: str = "block", offset: int = 0) -> str | None:
    """What first differs between a line of the file and the line that was wanted; None when they are equal.

    `offset` is added to the 1-based column, for an `actual` that is a part of its line.
    """
    if actual == wanted:
        return None
    shared = 0
    while shared < len(actual) and shared < len(wanted) and actual[shared] == wanted[shared]:
        shared += 1
    here, there = actual[shared : shared + 1], wanted[shared : shared + 1]
    if (here and is_blank(here)) or (there and is_blank(there)):
        return _blanks_differ(actual, wanted, shared, noun, offset)
    if not here:
        return f"the {noun} goes on with {shown(wanted[shared:])} where the file's line ends"
    if not there:
        return f"the file's line goes on with {shown(actual[shared:])} where the {noun}'s ends"
    column = offset + shared + 1
    if here.isascii() and there.isascii():
        return (
            f"from column {column} the file has {_word_at(actual, shared)!r} where the {noun} has "
            f"{_word_at(wanted, shared)!r}"
        )
    return f"at column {column} the file has {_named(actual, shared)} where the {noun} has {_named(wanted, shared)}"


def _named(text: str, index: int) -> str:
    """A character in words together with the combining mark behind it, which would not be seen otherwise."""
    following = text[index + 1 : index + 2]
    mark = f" and {name_character(following)}" if following and combining(following) else ""
    return name_character(text[index]) + mark


def _blanks_differ(actual: str, wanted: str, shared: int, noun: str, offset: int) -> str:
    begin = shared
    while begin > 0 and is_blank(actual[begin - 1]):
        begin -= 1
    here, there = _blank_run(actual, begin), _blank_run(wanted, begin)
    place = f"at column {offset + begin + 1}"
    if begin + len(here) == len(actual) and begin + len(there) == len(wanted):
        place = "at the end of the line"
    elif begin == 0 and offset == 0:
        place = "at the start of the line"
    if here and there:
        return f"{place} the file has {name_run(here)} where the {noun} has {name_run(there)}"
    if here:
        return f"{place} the file has {name_run(here)} that the {noun} lacks"
    return f"{place} the {noun} has {name_run(there)} that the file lacks"


def _blank_run(text: str, begin: int) -> str:
    end = begin
    while end < len(text) and is_blank(text[end]):
        end += 1
    return text[begin:end]


def _word_at(text: str, index: int) -> str:
    begin = end = index
    while begin > 0 and (text[begin - 1].isalnum() or text[begin - 1] == "_") and index - begin < 40:
        begin -= 1
    while end < len(text) and (text[end].isalnum() or text[end] == "_") and end - index < 40:
        end += 1
    return text[begin : max(end, index + 1)]


def shown(text: str) -> str:
    """A text as messages quote it: cut when long, its invisible parts escaped."""
    return repr(text if len(text) <= 80 else text[:80] + "…")


def excerpt(lines: Sequence[str], start: int, last: int, telling: int, found: str) -> str:
    """The lines with their numbers, the telling one among them, long ones cut around the column that is named.

    Tabs are drawn as arrows so that they can be told from blanks.
    """
    first = max(start, min(telling - _ROWS_SHOWN // 2, last + 1 - _ROWS_SHOWN))
    width = len(str(last + 1))
    named = _COLUMN.search(found)
    shown = ["…"] if first > start else []
    for number in range(first, min(last + 1, first + _ROWS_SHOWN, len(lines))):
        column = int(named.group(1)) if named and number == telling else 1
        shown.append(f"{number + 1:>{width}} | {_clipped(lines[number], column)}")
    if first + _ROWS_SHOWN <= last:
        shown.append("…")
    return "\n".join(shown)


def _clipped(line: str, column: int) -> str:
    begin = max(0, min(column - _WIDTH_SHOWN // 2, len(line) - _WIDTH_SHOWN))
    cut = line[begin : begin + _WIDTH_SHOWN].replace("\t", "→")
    return ("…" if begin else "") + cut + ("…" if begin + _WIDTH_SHOWN < len(line) else "")

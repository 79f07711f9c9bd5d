"""The step `edit`: find blocks located once each in a text, as spans (SPEC 3.5).

Owns claims, ambiguity and the refusal of blocks that are not there; the explanation of a near miss is
`core/nearmiss.py`. Spans go no further than the lines that differ within a match, so that endings of lines that
a block merely repeats stay as they are.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from devtools_lsp.core.linediff import differences
from devtools_lsp.core.nearmiss import mistaken_form, nearest
from devtools_lsp.errors import BadArgumentError, Match, StepFailedError
from devtools_lsp.text import BYTE_ORDER_MARK, Span, line_of, to_lf, unwritable

_MATCHES_LISTED = 20
"""How many places an ambiguous block lists at most."""


class Edit(msgspec.Struct, frozen=True):
    """Replace the one occurrence of `find` by `replace`, both verbatim; CRLF in them means LF."""

    find: str
    replace: str


def plan_edits(path: str, text: str, edits: Sequence[Edit]) -> list[Span]:
    """The spans of an LF text that the edits replace, sorted by start; all edits apply or none.

    Each block is located in `text` as it is given, outside what earlier blocks took; what a block inserts is
    never searched. Raises BadArgumentError (`malformed`) for an empty find and for characters that no file can
    hold, StepFailedError with `noMatch` (naming the most similar place and what differs) or `ambiguous` (with
    `matches`). `path` only serves the messages.
    """
    if not edits:
        raise BadArgumentError("edits must not be empty", reason="malformed", step="edit", path=path)
    claims = _Claims(text)
    spans: list[Span] = []
    for number, edit in enumerate(edits, 1):
        name = "the find block" if len(edits) == 1 else f"find block {number} of {len(edits)}"
        find, replacement = _checked(path, name, edit)
        if find.startswith(BYTE_ORDER_MARK) and not text.startswith(BYTE_ORDER_MARK):
            # The mark of a file is no part of its text, even for a caller who saw its bytes.
            find, replacement = find[1:], replacement.removeprefix(BYTE_ORDER_MARK)
        places = claims.places(find, _MATCHES_LISTED + 1)
        if not places:
            raise _no_match(path, text, name, find)
        if len(places) > 1:
            raise _ambiguous(path, text, name, places)
        claims.take(places[0], places[0] + len(find))
        spans += _narrowed(places[0], find, replacement)
    spans.sort(key=lambda span: (span.start, span.end))
    return spans


def _checked(path: str, name: str, edit: Edit) -> tuple[str, str]:
    if not edit.find:
        raise BadArgumentError(
            f"{name} is empty: give the text to replace. To append or insert, find a line next to the place and "
            "repeat it in replace with the new lines; to create a file use apply_patch (*** Add File) or write_file",
            reason="malformed",
            step="edit",
            path=path,
        )
    for field, value in (("find", edit.find), ("replace", edit.replace)):
        fault = unwritable(value)
        if fault is not None:
            raise BadArgumentError(
                f"{name}: {field} holds {fault}, which no text file can", reason="malformed", step="edit", path=path
            )
    return to_lf(edit.find), to_lf(edit.replace)


class _Claims:
    """Which parts of a text are taken, and where a block still occurs outside them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._taken: list[tuple[int, int]] = []

    def take(self, start: int, end: int) -> None:
        insort(self._taken, (start, end))

    def places(self, find: str, limit: int) -> list[int]:
        """The first `limit` starts of `find`, overlapping ones included, that touch nothing taken."""
        found: list[int] = []
        position = 0
        for start, end in [*self._taken, (len(self._text), len(self._text))]:
            while len(found) < limit:
                place = self._text.find(find, position, start)
                if place < 0:
                    break
                found.append(place)
                position = place + 1
            position = end
        return found


def _narrowed(start: int, find: str, replacement: str) -> list[Span]:
    """The spans within a match that differ, row by row; a match begins and ends anywhere in its first and last row."""
    old, new = find.split("\n"), replacement.split("\n")
    offsets = [*accumulate((len(row) + 1 for row in old), initial=start)]
    offsets[-1] = start + len(find)
    spans: list[Span] = []
    for gap in differences(old, new):
        first, last = offsets[gap.old_start], offsets[gap.old_end]
        rows = new[gap.new_start : gap.new_end]
        if gap.old_end < len(old):
            spans.append(Span(first, last, "".join(row + "\n" for row in rows)))
        elif gap.old_start == len(old):
            spans.append(Span(first, last, "".join("\n" + row for row in rows)))
        elif rows:
            spans.append(Span(first, last, "\n".join(rows)))
        else:
            spans.append(Span(first - 1, last, ""))
    return spans


def _ambiguous(path: str, text: str, name: str, places: Sequence[int]) -> StepFailedError:
    listed = places[:_MATCHES_LISTED]
    matches: list[Match] = []
    counted, line = 0, 1
    for place in listed:
        line += text.count("\n", counted, place)
        counted = place
        matches.append({"path": path, "line": line})
    lines = ", ".join(map(str, dict.fromkeys(match["line"] for match in matches)))
    more = " and more" if len(places) > len(listed) else ""
    count = f"more than {len(listed)}" if more else str(len(listed))
    return StepFailedError(
        f"{name} occurs {count} times in {path}, at line{'s' if ',' in lines else ''} {lines}{more}: lengthen it with "
        "neighbouring lines until it fits one place",
        reason="ambiguous",
        step="edit",
        path=path,
        line=matches[0]["line"],
        matches=matches,
    )


def _no_match(path: str, text: str, name: str, find: str) -> StepFailedError:
    taken = text.find(find)
    if taken >= 0:
        line = line_of(text, taken)
        return StepFailedError(
            f"{name} occurs in {path} only at line {line}, in text that an earlier block replaces already: blocks are "
            "matched against the file as it was, so join the two into one",
            reason="noMatch",
            step="edit",
            path=path,
            line=line,
        )
    form = mistaken_form(text, find)
    if form is not None:
        return StepFailedError(f"{name} does not occur in {path}: {form}", reason="noMatch", step="edit", path=path)
    near = nearest(text, find)
    if near is None:
        return StepFailedError(
            f"{name} does not occur in {path}, nor anything like it: read the file again and copy the text from it",
            reason="noMatch",
            step="edit",
            path=path,
        )
    return StepFailedError(
        f"{name} does not occur in {path}. Most similar: {near.extent}:\n{near.excerpt}\nLine {near.line}: "
        f"{near.difference}. Copy the text exactly as the file has it",
        reason="noMatch",
        step="edit",
        path=path,
        line=near.line,
    )

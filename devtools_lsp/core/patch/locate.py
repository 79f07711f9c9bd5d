"""Where a hunk belongs in a text (SPEC 3.6.3): by its lines, ever more tolerantly, within what its anchors scope.

Owns the tiers of tolerance, the scope of anchors and the refusal of guesses: one best place, or an error that
lists the places or explains the nearest. Line numbers in a patch settle ties and nothing else. What a tolerant
match lets pass is never written: spans replace changed lines only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from devtools_lsp.core.lookalikes import fold_typography
from devtools_lsp.core.nearmiss import nearest
from devtools_lsp.core.patch.operations import PatchHunk, PatchLine
from devtools_lsp.errors import Match, StepFailedError
from devtools_lsp.text import split_lines

_PLACES_LISTED = 20
_WORK = 20_000_000
"""How many line comparisons the placing of one file's hunks may take before it is refused as too repetitive."""

_TOLERANCES = (
    None,
    "without trailing blanks",
    "without surrounding blanks",
    "without surrounding blanks and with typographic punctuation folded",
)
"""What each tier of matching leaves out, in words; the first leaves out nothing."""


def _key(line: str, tier: int) -> str:
    if tier == 0:
        return line
    if tier == 1:
        return line.rstrip()
    return line.strip() if tier == 2 else fold_typography(line).strip()


def _same(line: str, row: str) -> bool:
    """Whether the most tolerant tier takes two lines for one."""
    return _key(line, 3) == _key(row, 3)


class Place(NamedTuple):
    """A hunk's first line in the text, 0-based (for an insertion the line it comes before).

    `remarks` say in words how the match was looser than exact; empty for an exact one.
    """

    start: int
    remarks: tuple[str, ...] = ()


class _Scope(NamedTuple):
    """What an anchor in line `start` scopes: most narrowly the lines before `end`, else all that follow."""

    start: int
    end: int
    remarks: tuple[str, ...]


class Locator:
    """Places the hunks of one file one after the other, each outside the lines that earlier ones removed."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._text = text
        self.lines = split_lines(text)
        self._keys: dict[int, list[str]] = {0: self.lines}
        self._indexes: dict[int, Mapping[str, list[int]]] = {}
        self._sorted_keys: list[tuple[str, int]] | None = None
        self._removed = bytearray(len(self.lines))
        self._drift = 0
        self._work = _WORK

    def place(self, hunk: PatchHunk, name: str) -> Place:
        """The one best place of a hunk, which messages call `name`.

        Raises StepFailedError: `noMatch` with the first differing line of the best candidate, or `ambiguous` with
        the places.
        """
        scopes = self._scopes(hunk, name)
        rows = hunk.old()
        place = self._insertion(hunk, scopes, name) if not rows else self._match(hunk, rows, scopes, name)
        at = place.start
        for line in hunk.lines:
            if line.sign == "-":
                self._removed[at] = 1
            at += line.sign != "+"
        if hunk.start is not None:
            self._drift = place.start - _stated(hunk)
        return place

    # -- hunks with lines to find --------------------------------------------------------------------------------

    def _match(self, hunk: PatchHunk, rows: Sequence[str], scopes: Sequence[_Scope] | None, name: str) -> Place:
        place = self._tolerant(hunk, rows, scopes, name)
        if place is None and len(rows) > 1 and hunk.lines[-1] == PatchLine(" ", ""):
            # Whoever splits a text at its line breaks sees an empty line behind the last one.
            shorter = replace(hunk, lines=hunk.lines[:-1], at_end=True)
            place = self._tolerant(shorter, rows[:-1], scopes, name)
            if place is not None:
                place = place._replace(
                    remarks=(*place.remarks, "without the empty line that it has after the last one")
                )
        if place is None:
            raise self._no_match(hunk, rows, scopes, name)
        return place

    def _tolerant(
        self, hunk: PatchHunk, rows: Sequence[str], scopes: Sequence[_Scope] | None, name: str
    ) -> Place | None:
        """The one place at the strictest tier that has any."""
        for tier, tolerance in enumerate(_TOLERANCES):
            found = self._scoped([_key(row, tier) for row in rows], tier, hunk, scopes, name)
            if len(found) > 1:
                raise self._ambiguous(name, [place.start for place in found], hunk)
            if found:
                place = found[0]
                return place if tolerance is None else place._replace(remarks=(tolerance, *place.remarks))
        return None

    def _scoped(
        self, keys: Sequence[str], tier: int, hunk: PatchHunk, scopes: Sequence[_Scope] | None, name: str
    ) -> list[Place]:
        """The equally good places at one tier: those in the block of an anchor, else those anywhere behind one."""
        if scopes is None:
            return [Place(start) for start in self._occurrences(keys, tier, hunk, range(len(self.lines)), name)]
        narrow: dict[int, Place] = {}
        for scope in scopes:
            if len(narrow) > _PLACES_LISTED:
                break
            for start in self._occurrences(keys, tier, hunk, range(scope.start, scope.end), name):
                narrow.setdefault(start, Place(start, scope.remarks))
        if narrow:
            return list(narrow.values())
        first = scopes[0]
        behind = self._occurrences(keys, tier, hunk, range(first.start, len(self.lines)), name)
        return [Place(start, (*first.remarks, "behind the block that its @@ line names")) for start in behind]

    def _occurrences(self, keys: Sequence[str], tier: int, hunk: PatchHunk, within: range, name: str) -> list[int]:
        """Where the keys start within a range of lines, as many as it takes to tell one place from several.

        With a line number in the hunk only the nearest places count: one, or two equally near.
        """
        self._spend(len(keys), name)
        index = self._index(tier)
        pivot = min(range(len(keys)), key=lambda offset: len(index.get(keys[offset], ())))
        positions = index.get(keys[pivot], [])
        lines = self._keyed(tier)
        wanted = None if hunk.start is None else _stated(hunk) + self._drift
        found: list[int] = []
        for position in (
            _ascending(positions, within.start + pivot) if wanted is None else _outward(positions, wanted + pivot)
        ):
            start = position - pivot
            end = start + len(keys)
            if wanted is None and (start >= within.stop or len(found) > _PLACES_LISTED):
                break
            if wanted is not None and found and abs(start - wanted) > abs(found[0] - wanted):
                break
            self._spend(1, name)
            if start not in within or (_ends_file(hunk) and end != len(lines)):
                continue
            self._spend(len(keys), name)
            if lines[start:end] == keys and self._removed.find(1, start, end) < 0:
                found.append(start)
        return found

    def _spend(self, comparisons: int, name: str) -> None:
        self._work -= comparisons
        if self._work < 0:
            raise self._failure(
                f"{name} cannot be placed in bounded time because the file repeats itself too much: give more lines "
                "around the change, or use edit"
            )

    def _index(self, tier: int) -> Mapping[str, list[int]]:
        if tier not in self._indexes:
            index: defaultdict[str, list[int]] = defaultdict(list)
            for number, key in enumerate(self._keyed(tier)):
                index[key].append(number)
            self._indexes[tier] = index
        return self._indexes[tier]

    def _keyed(self, tier: int) -> list[str]:
        if tier not in self._keys:
            self._keys[tier] = [_key(line, tier) for line in self.lines]
        return self._keys[tier]

    # -- hunks that only add -------------------------------------------------------------------------------------

    def _insertion(self, hunk: PatchHunk, scopes: Sequence[_Scope] | None, name: str) -> Place:
        if _ends_file(hunk) or not self.lines:
            return Place(len(self.lines))
        if scopes is not None:
            if len(scopes) > 1:
                raise self._ambiguous(name, [scope.start + 1 for scope in scopes], hunk)
            return Place(scopes[0].start + 1, scopes[0].remarks)
        if hunk.start is None:
            raise self._failure(
                f"{name} only adds lines and does not say where: give a line that stays before or after them, an "
                "'@@ line to insert after', or '*** End of File' to append"
            )
        place = _stated(hunk) + self._drift
        if not 0 <= place <= len(self.lines):
            raise self._failure(
                f"{name} inserts after line {place}, but {self._path} has {len(self.lines)} lines: give a line that "
                "stays before or after the new ones"
            )
        return Place(place)

    # -- anchors -------------------------------------------------------------------------------------------------

    def _scopes(self, hunk: PatchHunk, name: str) -> list[_Scope] | None:
        """What the innermost anchor of a hunk scopes, for each line it may mean; None without anchors."""
        scopes: list[_Scope] | None = None
        for anchor in hunk.anchors:
            lines, remark = self._anchor_lines(anchor, scopes)
            if not lines:
                raise self._anchor_missing(anchor, name)
            remarks = (remark,) if remark else ()
            scopes = [_Scope(line, self._block_end(line), remarks) for line in lines]
        return scopes

    def _anchor_lines(self, anchor: str, scopes: Sequence[_Scope] | None) -> tuple[list[int], str | None]:
        for tier, tolerance in enumerate(_TOLERANCES):
            lines = self._within(scopes, self._index(tier).get(_key(anchor, tier), []))
            if lines:
                return lines, f"its @@ line {tolerance}" if tolerance else None
        return self._within(scopes, self._starting(_key(anchor, 3))), "its @@ line by its beginning"

    def _starting(self, beginning: str) -> list[int]:
        """The lines that begin with a text, blanks before them and typography aside."""
        if self._sorted_keys is None:
            self._sorted_keys = sorted((key, number) for number, key in enumerate(self._keyed(3)))
        found: list[int] = []
        for index in range(bisect_left(self._sorted_keys, (beginning, 0)), len(self._sorted_keys)):
            key, number = self._sorted_keys[index]
            if not key.startswith(beginning):
                break
            found.append(number)
        return sorted(found)

    def _within(self, scopes: Sequence[_Scope] | None, lines: Sequence[int]) -> list[int]:
        """Those of the lines, ascending, that stand in the block of a scope, else those that stand behind one."""
        if scopes is None:
            return list(lines)
        starts = [scope.start for scope in scopes]
        reach = list(accumulate((scope.end for scope in scopes), max))
        narrow = [line for line in lines if (index := bisect_left(starts, line)) and line < reach[index - 1]]
        return narrow or list(lines[bisect_right(lines, starts[0]) :])

    def _block_end(self, start: int) -> int:
        """Where the block that a line opens ends: before the next line that is indented no deeper.

        A line that nothing deeper follows opens its section instead, up to the next line that begins alike at the
        same depth, as headings and the items of a list do.
        """
        depth = _depth(self.lines[start])
        word = self.lines[start].split(None, 1)[:1]
        following = ((number, self.lines[number]) for number in range(start + 1, len(self.lines)))
        deeper = False
        for number, line in following:
            if not line.strip():
                continue
            if _depth(line) > depth:
                deeper = True
            elif deeper or (_depth(line) == depth and line.split(None, 1)[:1] == word):
                return number
        return len(self.lines)

    # -- refusals ------------------------------------------------------------------------------------------------

    def _failure(self, message: str, *, line: int | None = None) -> StepFailedError:
        return StepFailedError(message, reason="noMatch", step="apply_patch", path=self._path, line=line)

    def _ambiguous(self, name: str, places: Sequence[int], hunk: PatchHunk) -> StepFailedError:
        listed = sorted(places)[:_PLACES_LISTED]
        matches: list[Match] = [{"path": self._path, "line": place + 1} for place in listed]
        lines = ", ".join(str(place + 1) for place in listed)
        more = " and more" if len(places) > len(listed) else ""
        advice = "an @@ line that names the enclosing function" if not hunk.anchors else "a more telling @@ line"
        return StepFailedError(
            f"{name} fits {len(listed)} places equally well, at lines {lines}{more}: add lines around the change, or "
            f"{advice}",
            reason="ambiguous",
            step="apply_patch",
            path=self._path,
            line=matches[0]["line"],
            matches=matches,
        )

    def _anchor_missing(self, anchor: str, name: str) -> StepFailedError:
        near = nearest(self._text, anchor, noun="@@ line", same=_same)
        hint = "" if near is None else f" Most similar, line {near.first}:\n{near.excerpt}\n{near.difference}"
        return self._failure(
            f"{name}: no line is {anchor!r}, which its @@ line names.{hint}", line=None if near is None else near.line
        )

    def _no_match(
        self, hunk: PatchHunk, rows: Sequence[str], scopes: Sequence[_Scope] | None, name: str
    ) -> StepFailedError:
        start = self._unrestricted(rows)
        if start is not None:
            why = "an earlier hunk of the patch changes these lines already; join the two"
            if _ends_file(hunk) and start + len(rows) != len(self.lines):
                why = f"that is not the end of the file, which has {len(self.lines)} lines"
            elif scopes is not None and start < scopes[0].start:
                why = f"that is before line {scopes[0].start + 1}, which its @@ line names"
            return self._failure(f"{name} fits at line {start + 1}, but {why}", line=start + 1)
        supposed = scopes[0].start + 1 if scopes else max(0, _stated(hunk) + self._drift) if hunk.start else 0
        near = nearest(self._text, "\n".join(rows), noun="patch", same=_same, otherwise=supposed)
        if near is None:
            return self._failure(f"{name} fits nowhere: {self._path} is empty; add lines without context instead")
        return self._failure(
            f"{name} fits nowhere. Best candidate: {near.extent}:\n{near.excerpt}\n"
            f"The first line that differs is line {near.line}: {near.difference}. Make the patch from what the file "
            "holds",
            line=near.line,
        )

    def _unrestricted(self, rows: Sequence[str]) -> int | None:
        """The first place of the rows at any tier, whatever an anchor or an earlier hunk says."""
        for tier in range(len(_TOLERANCES)):
            keys = [_key(row, tier) for row in rows]
            lines = self._keyed(tier)
            for start in self._index(tier).get(keys[0], []):
                self._work -= len(keys)
                if lines[start : start + len(keys)] == keys:
                    return start
                if self._work < 0:
                    return None
        return None


def _ends_file(hunk: PatchHunk) -> bool:
    """Whether a hunk says that its last line is the last of the file."""
    return hunk.at_end or hunk.old_open or hunk.new_open


def _stated(hunk: PatchHunk) -> int:
    """Where a hunk's header puts it, 0-based; one that removes and keeps nothing comes after the line it names."""
    start = hunk.start or 0
    return start - 1 if any(line.sign != "+" for line in hunk.lines) else start


def _depth(line: str) -> int:
    """How deep a line is indented; a tab counts to the next multiple of eight."""
    expanded = line.expandtabs(8)
    return len(expanded) - len(expanded.lstrip())


def _ascending(positions: Sequence[int], first: int) -> Iterator[int]:
    for index in range(bisect_left(positions, first), len(positions)):
        yield positions[index]


def _outward(positions: Sequence[int], center: int) -> Iterator[int]:
    """The positions by their distance from a center, the earlier one first where two are equally far."""
    right = bisect_left(positions, center)
    left = right - 1
    while left >= 0 or right < len(positions):
        if right == len(positions) or (left >= 0 and center - positions[left] <= positions[right] - center):
            yield positions[left]
            left -= 1
        else:
            yield positions[right]
            right += 1

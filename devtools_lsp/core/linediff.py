"""Line differences between two texts, in bounded time: the one diff of this project.

Owns how two sequences are aligned (`differences`) and how the result, or a list of spans, becomes runs of whole
lines (`LineRun`). It knows nothing of hunks, paths or presentation. Lines end at LF only and keep their end, so
that a last line without one differs from the same line with one, as in every diff format.

The alignment trims what both ends share, leaves out elements that only one side has, lets elements that are
unique on both sides divide the rest (patience), and searches the pieces with Myers' greedy algorithm, each search
and the whole under a step limit. Past the limits the answer is coarser, never wrong.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import msgspec

from devtools_lsp.text import Span

_SEARCH_DEPTH = 192
"""How many differences one greedy search follows before it settles for the farthest point it reached."""

_TOTAL_STEPS = 2_500_000
"""How many steps all searches of one comparison may take together: about a second."""

_DIVISIONS = 24
"""How deep the division by unique elements may nest."""


class Difference(NamedTuple):
    """`old[old_start:old_end]` became `new[new_start:new_end]`; one of the two may be empty."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


class LineRun(msgspec.Struct, frozen=True):
    """A run of whole lines that was replaced.

    `start` and `end` are offsets into the old text, `line` is the 0-based number of the first old line (for an
    insertion: of the line it comes before), `new_line` the same in the new text. The lines keep their LF.
    """

    start: int
    end: int
    line: int
    new_line: int
    old: tuple[str, ...]
    new: tuple[str, ...]

    def span(self) -> Span:
        """The replacement as a span of the old text."""
        return Span(self.start, self.end, "".join(self.new))


def lines_of(text: str) -> list[str]:
    """The lines of an LF text with their ends; only the last may lack one."""
    parts = text.split("\n")
    last = parts.pop()
    lines = [part + "\n" for part in parts]
    if last:
        lines.append(last)
    return lines


def differences(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Difference]:
    """What changed between two sequences, in order; equal stretches lie between the differences."""
    head, old_end, new_end = 0, len(old), len(new)
    while head < old_end and head < new_end and old[head] == new[head]:
        head += 1
    while old_end > head and new_end > head and old[old_end - 1] == new[new_end - 1]:
        old_end -= 1
        new_end -= 1
    if head == old_end and head == new_end:
        return []
    if head in (old_end, new_end):
        return [Difference(head, old_end, head, new_end)]
    common = set(old[head:old_end]) & set(new[head:new_end])
    if not common:
        return [Difference(head, old_end, head, new_end)]
    old_kept = [index for index in range(head, old_end) if old[index] in common]
    new_kept = [index for index in range(head, new_end) if new[index] in common]
    pairs = _Alignment([old[index] for index in old_kept], [new[index] for index in new_kept]).pairs()
    return _between([(old_kept[i], new_kept[j]) for i, j in pairs], head, old_end, new_end)


def _between(pairs: list[tuple[int, int]], head: int, old_end: int, new_end: int) -> list[Difference]:
    found: list[Difference] = []
    i, j = head, head
    for old_index, new_index in [*pairs, (old_end, new_end)]:
        if i < old_index or j < new_index:
            found.append(Difference(i, old_index, j, new_index))
        i, j = old_index + 1, new_index + 1
    return found


class _Alignment:
    """The search for matching index pairs of two sequences whose elements occur on both sides."""

    def __init__(self, old: list[Hashable], new: list[Hashable]) -> None:
        codes: dict[Hashable, int] = {}
        self._old = [codes.setdefault(element, len(codes)) for element in old]
        self._new = [codes.setdefault(element, len(codes)) for element in new]
        self._steps = _TOTAL_STEPS
        self._pairs: list[tuple[int, int]] = []

    def pairs(self) -> list[tuple[int, int]]:
        """Matching pairs, ascending on both sides."""
        stack = [(0, len(self._old), 0, len(self._new), 0)]
        while stack:
            old_start, old_end, new_start, new_end, depth = stack.pop()
            while old_start < old_end and new_start < new_end and self._old[old_start] == self._new[new_start]:
                self._pairs.append((old_start, new_start))
                old_start += 1
                new_start += 1
            while old_start < old_end and new_start < new_end and self._old[old_end - 1] == self._new[new_end - 1]:
                old_end -= 1
                new_end -= 1
                self._pairs.append((old_end, new_end))
            if old_start == old_end or new_start == new_end:
                continue
            anchors = self._unique_pairs(old_start, old_end, new_start, new_end) if depth < _DIVISIONS else []
            if not anchors:
                self._search(old_start, old_end, new_start, new_end)
                continue
            self._pairs.extend(anchors)
            for (i, j), (following_i, following_j) in zip(
                [(old_start - 1, new_start - 1), *anchors], [*anchors, (old_end, new_end)], strict=True
            ):
                stack.append((i + 1, following_i, j + 1, following_j, depth + 1))
        self._pairs.sort()
        return self._pairs

    def _unique_pairs(self, old_start: int, old_end: int, new_start: int, new_end: int) -> list[tuple[int, int]]:
        """The longest ascending run of pairs whose element occurs once on each side of the stretch."""
        old_counts = Counter(self._old[old_start:old_end])
        new_counts = Counter(self._new[new_start:new_end])
        places = {self._new[index]: index for index in range(new_start, new_end) if new_counts[self._new[index]] == 1}
        candidates = [
            (index, places[self._old[index]])
            for index in range(old_start, old_end)
            if old_counts[self._old[index]] == 1 and self._old[index] in places
        ]
        return _longest_ascending(candidates)

    def _search(self, old_start: int, old_end: int, new_start: int, new_end: int) -> None:
        """Myers' greedy search, from the farthest point again whenever it becomes too deep."""
        while old_start < old_end and new_start < new_end and self._steps > 0:
            old_start, new_start = self._greedy(old_start, old_end, new_start, new_end)

    def _greedy(self, old_start: int, old_end: int, new_start: int, new_end: int) -> tuple[int, int]:
        old, new = self._old, self._new
        old_size, new_size = old_end - old_start, new_end - new_start
        reach = {1: 0}
        trail: list[dict[int, int]] = []
        best = (0, 0)
        for depth in range(min(old_size + new_size, _SEARCH_DEPTH) + 1):
            trail.append(dict(reach))
            for diagonal in range(-depth, depth + 1, 2):
                if diagonal < -new_size or diagonal > old_size:
                    continue
                left, above = reach.get(diagonal - 1, -1), reach.get(diagonal + 1, -1)
                x = above if diagonal == -depth or (diagonal != depth and left < above) else left + 1
                y = x - diagonal
                first = x
                while x < old_size and 0 <= y < new_size and old[old_start + x] == new[new_start + y]:
                    x += 1
                    y += 1
                self._steps -= 1 + x - first
                reach[diagonal] = x
                if x <= old_size and y <= new_size and x + y > sum(best):
                    best = (x, y)
                if x >= old_size and y >= new_size:
                    self._collect(trail, old_size, new_size, old_start, new_start)
                    return old_end, new_end
            if self._steps <= 0:
                break
        self._collect(trail, best[0], best[1], old_start, new_start)
        return old_start + max(best[0], 1), new_start + max(best[1], 1)

    def _collect(self, trail: list[dict[int, int]], x: int, y: int, old_start: int, new_start: int) -> None:
        """Walk a found path back and note its matching pairs."""
        for depth in range(len(trail) - 1, -1, -1):
            reach = trail[depth]
            diagonal = x - y
            if abs(diagonal) > depth or (diagonal - depth) % 2:
                continue
            left, above = reach.get(diagonal - 1, -1), reach.get(diagonal + 1, -1)
            down = diagonal == -depth or (diagonal != depth and left < above)
            previous_x = above if down else left
            previous_y = previous_x - (diagonal + 1 if down else diagonal - 1)
            start_x = previous_x if down else previous_x + 1
            while x > start_x and x > 0 and y > 0:
                x -= 1
                y -= 1
                self._pairs.append((old_start + x, new_start + y))
            if depth == 0:
                return
            x, y = previous_x, previous_y


def _longest_ascending(candidates: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence that ascends in its second member; the first members ascend already."""
    tails: list[int] = []
    tail_indexes: list[int] = []
    before: list[int] = []
    for index, (_, place) in enumerate(candidates):
        slot = bisect_left(tails, place)
        before.append(tail_indexes[slot - 1] if slot else -1)
        if slot == len(tails):
            tails.append(place)
            tail_indexes.append(index)
        else:
            tails[slot] = place
            tail_indexes[slot] = index
    chosen: list[tuple[int, int]] = []
    index = tail_indexes[-1] if tail_indexes else -1
    while index >= 0:
        chosen.append(candidates[index])
        index = before[index]
    chosen.reverse()
    return chosen


def enclosing_span(old: str, new: str) -> Span:
    """The smallest single span of whole lines that turns `old` into `new`."""
    start = old.rfind("\n", 0, _common_prefix(old, new)) + 1
    tail = _common_suffix(old, new, min(len(old), len(new)) - start)
    if not (_starts_line(old, len(old) - tail) and _starts_line(new, len(new) - tail)):
        boundary = old.find("\n", len(old) - tail)
        tail = len(old) - boundary - 1 if boundary >= 0 else 0
    return Span(start, len(old) - tail, new[start : len(new) - tail])


def _starts_line(text: str, offset: int) -> bool:
    return offset == 0 or text[offset - 1] == "\n"


def _common_prefix(old: str, new: str) -> int:
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_suffix(old: str, new: str, limit: int) -> int:
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if old[len(old) - middle : len(old) - low] == new[len(new) - middle : len(new) - low]:
            low = middle
        else:
            high = middle - 1
    return low


def runs_between(old: str, new: str) -> list[LineRun]:
    """The runs of lines that differ between two texts."""
    if old == new:
        return []
    whole = enclosing_span(old, new)
    line = old.count("\n", 0, whole.start)
    return _runs_of(old, whole.start, whole.end, whole.replacement, line, line)


def runs_of_spans(old: str, spans: Sequence[Span]) -> list[LineRun]:
    """The runs of lines that spans (sorted, not overlapping) replace, without comparing whole texts."""
    runs: list[LineRun] = []
    counted, line, shift = 0, 0, 0
    index = 0
    while index < len(spans):
        start, end, replacement, index = _whole_lines(old, spans, index)
        line += old.count("\n", counted, start)
        counted = start
        found = _runs_of(old, start, end, replacement, line, line + shift)
        runs.extend(found)
        shift += sum(len(run.new) - len(run.old) for run in found)
    return runs


def _whole_lines(old: str, spans: Sequence[Span], index: int) -> tuple[int, int, str, int]:
    """One stretch of whole lines that holds `spans[index]` and all that share a line with it."""
    start = old.rfind("\n", 0, spans[index].start) + 1
    pieces: list[str] = []
    position = start
    while True:
        span = spans[index]
        pieces += (old[position : span.start], span.replacement)
        position = span.end
        index += 1
        written = next((piece for piece in reversed(pieces) if piece), "\n")
        if _starts_line(old, position) and written.endswith("\n"):
            end = position
        else:
            boundary = old.find("\n", position)
            end = len(old) if boundary < 0 else boundary + 1
        closed = _starts_line(old, end) and (old[position:end] or written).endswith("\n")
        if index == len(spans) or spans[index].start > end or (spans[index].start == end and closed):
            pieces.append(old[position:end])
            return start, end, "".join(pieces), index


def _runs_of(old: str, start: int, end: int, replacement: str, line: int, new_line: int) -> list[LineRun]:
    old_lines, new_lines = lines_of(old[start:end]), lines_of(replacement)
    runs: list[LineRun] = []
    position, passed = start, 0
    for difference in differences(old_lines, new_lines):
        position += sum(map(len, old_lines[passed : difference.old_start]))
        removed = tuple(old_lines[difference.old_start : difference.old_end])
        following = position + sum(map(len, removed))
        runs.append(
            LineRun(
                start=position,
                end=following,
                line=line + difference.old_start,
                new_line=new_line + difference.new_start,
                old=removed,
                new=tuple(new_lines[difference.new_start : difference.new_end]),
            )
        )
        position, passed = following, difference.old_end
    return runs


def line_spans(old: str, new: str) -> list[Span]:
    """Spans of whole lines that turn `old` into `new`; lines that both share lie outside them."""
    return [run.span() for run in runs_between(old, new)]

"""Why a block was not found: the most similar place and the character that differs (SPEC 3.5.2, 3.6.3).

Owns the search for that place; `core/differing.py` has the words. It runs only after an exact search failed, takes time
linear in the text with a bounded number of closer looks, and decides nothing: whoever asked has refused already.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate

from devtools_lsp.core.differing import difference, excerpt, shown
from devtools_lsp.core.lookalikes import essence, fold_typography, is_blank

# Bounds of the closer looks, so that an explanation costs about as much as reading the file once.
_ROWS_COMPARED = 60
_ROW_READ = 2000
_WIDTH_COMPARED = 240
_WORDS = 40
_HITS_PER_WORD = 60
_LINE_HITS = 200
_CANDIDATES = 12

_LONG_WORD = 7
"""From this length on a word also votes by its halves, in case it is misspelt."""

_EQUAL_LINE_WEIGHT = 4.0
"""How many words an equal line counts as."""

_SIMILAR = 0.5
"""How alike a place must be to be shown as the most similar one."""

_FEW_LINES = 8
"""A file this short is shown in any case."""

_WORD = re.compile(r"\w{2,}")
_NUMBERED = re.compile(r"^ *\d+(?:\t|: ?|\| ?|→| \| ?)")


@dataclass(frozen=True, slots=True)
class NearMiss:
    """The most similar place: 1-based inclusive lines, the differing line, what differs there, and the lines shown.

    `line` equals `first` and `difference` is a general remark where no single difference could be named.
    """

    first: int
    last: int
    line: int
    difference: str
    excerpt: str

    @property
    def extent(self) -> str:
        """The lines in words."""
        return f"line {self.first}" if self.first == self.last else f"lines {self.first}-{self.last}"


def nearest(
    text: str,
    wanted: str,
    *,
    noun: str = "block",
    same: Callable[[str, str], bool] | None = None,
    otherwise: int | None = None,
) -> NearMiss | None:
    """The place in an LF text that is most like `wanted`, or None when nothing is similar.

    `noun` is what the explanation calls the wanted text. With `same`, which says whether a line of the file passes
    for a wanted one, the wanted text stands for whole lines; without it, it may begin and end within lines and
    must be there character by character. `otherwise` is the 0-based line to compare with when nothing is similar;
    a text of few lines is compared in any case.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return _Search(lines, wanted.split("\n"), noun, same, otherwise).best() if lines else None


class _Search:
    """One search: first for places that differ only in what is hard to see, then for places that share words."""

    def __init__(
        self,
        lines: Sequence[str],
        rows: Sequence[str],
        noun: str,
        same: Callable[[str, str], bool] | None,
        otherwise: int | None,
    ) -> None:
        self._lines = lines
        self._rows = rows
        self._noun = noun
        self._same = same
        self._otherwise = otherwise

    def best(self) -> NearMiss | None:
        keys = [essence(row) for row in self._rows]
        if not any(keys):
            return None if self._otherwise is None else self._compared(self._otherwise)
        essences = [essence(line) for line in self._lines]
        return self._alike(essences, keys) or self._reflowed(essences, keys) or self._most_similar()

    # -- places that differ only in what is hard to see ----------------------------------------------------------

    def _alike(self, essences: Sequence[str], keys: Sequence[str]) -> NearMiss | None:
        """The place whose essence holds the rows' essence, perhaps in other letter case."""
        edge = "\n" if self._same else ""
        haystack = edge + "\n".join(essences) + edge
        needle = edge + "\n".join(keys) + edge
        for fold in (str, str.casefold):
            folded = fold(haystack)
            place = folded.find(fold(needle))
            if place >= 0:
                start = folded.count("\n", 0, place)
                place += len(edge)
                return self._describe(start, place - (folded.rfind("\n", 0, place) + 1))
        return None

    def _reflowed(self, essences: Sequence[str], keys: Sequence[str]) -> NearMiss | None:
        """The place that has the same words but breaks its lines elsewhere."""
        numbers = [number for number, key in enumerate(essences) if key]
        haystack = " ".join(essences[number] for number in numbers)
        needle = " ".join(key for key in keys if key)
        place = haystack.find(needle)
        if place < 0:
            return None
        starts = list(accumulate((len(essences[number]) + 1 for number in numbers), initial=0))
        index = bisect_right(starts, place) - 1
        leading = next(offset for offset, key in enumerate(keys) if key)
        return self._describe(max(0, numbers[index] - leading), place - starts[index] if not leading else 0)

    def _describe(self, start: int, column: int) -> NearMiss | None:
        """Name the first difference between the rows and the lines from `start`."""
        for index, row in enumerate(self._rows):
            number = start + index
            if number >= len(self._lines):
                return self._near_miss(start, len(self._lines) - 1, self._past_the_end(index))
            line, begin = self._lines[number], 0
            if self._same is None and index in (0, len(self._rows) - 1):
                begin, end = _window(line, row, 0 if index else column, open_end=index == len(self._rows) - 1)
                line = line[begin:end]
            found = self._difference(line, row, begin)
            if found is not None:
                return self._near_miss(start, number, found)
        return None

    # -- places that share words ---------------------------------------------------------------------------------

    def _most_similar(self) -> NearMiss | None:
        few = len(self._lines) <= _FEW_LINES
        start, score = -1, 0.0 if few or self._otherwise is not None else _SIMILAR
        for candidate in range(len(self._lines)) if few else self._candidates():
            reached = self._similarity(candidate)
            if reached > score:
                start, score = candidate, reached
        if start < 0 and few:
            start = 0
        if start < 0 and self._otherwise is not None:
            start = min(self._otherwise, len(self._lines) - 1)
        return None if start < 0 else self._compared(start)

    def _compared(self, start: int) -> NearMiss | None:
        """Name the first difference between the rows and the lines from `start`, each as a whole."""
        for index, row in enumerate(self._rows):
            number = start + index
            if number >= len(self._lines):
                return self._near_miss(start, len(self._lines) - 1, self._past_the_end(index))
            line, begin = self._lines[number], 0
            if self._same is None:
                if len(self._rows) == 1:
                    begin, end = _aligned(line, row)
                    line = line[begin:end]
                elif (index == 0 and line.endswith(row)) or (index == len(self._rows) - 1 and line.startswith(row)):
                    continue
            found = self._difference(line, row, begin)
            if found is not None:
                return self._near_miss(start, number, found)
        return None

    def _candidates(self) -> list[int]:
        """Where the rows could begin, judged by equal lines and by shared words, the rare ones counting more."""
        votes: defaultdict[int, float] = defaultdict(float)
        wanted: dict[str, list[int]] = {}
        for index, row in enumerate(self._rows[:_ROWS_COMPARED]):
            if row.strip():
                wanted.setdefault(row.strip(), []).append(index)
        hits: defaultdict[str, list[int]] = defaultdict(list)
        for number, line in enumerate(self._lines):
            key = line.strip()
            if key in wanted and len(hits[key]) < _LINE_HITS:
                hits[key].append(number)
        for key, numbers in hits.items():
            for number in numbers:
                for index in wanted[key]:
                    votes[max(0, number - index)] += _EQUAL_LINE_WEIGHT / len(numbers)
        text = "\n".join(self._lines)
        starts = list(accumulate((len(line) + 1 for line in self._lines), initial=0))
        for index, word in self._telling_words():
            places: list[int] = []
            place = text.find(word)
            while place >= 0 and len(places) < _HITS_PER_WORD:
                places.append(place)
                place = text.find(word, place + len(word))
            for place in places:
                votes[max(0, bisect_right(starts, place) - 1 - index)] += 1 / len(places)
        return sorted(votes, key=lambda start: (-votes[start], start))[:_CANDIDATES]

    def _telling_words(self) -> list[tuple[int, str]]:
        """The longest words of the rows and parts of words, each with the row it first stands in."""
        words: dict[str, int] = {}
        for index, row in enumerate(self._rows[:_ROWS_COMPARED]):
            for word in _WORD.findall(row[:_ROW_READ]):
                middle = len(word) // 2
                halves = (word[:middle], word[middle:]) if len(word) >= _LONG_WORD else ()
                for part in (word, *word.split("_"), *halves):
                    if len(part) > 1:
                        words.setdefault(part, index)
        return [(words[word], word) for word in sorted(words, key=len, reverse=True)[:_WORDS]]

    def _similarity(self, start: int) -> float:
        """How alike the rows and the lines from `start` are, between 0 and 1, long rows counting more."""
        total, weights = 0.0, 0.0
        for index, row in enumerate(self._rows[:_ROWS_COMPARED]):
            weight = min(len(row), _WIDTH_COMPARED) + 1
            weights += weight
            if start + index < len(self._lines):
                line = self._lines[start + index]
                if len(self._rows) == 1:
                    line = line[slice(*_aligned(line, row))]
                total += weight * _likeness(line.strip(), row.strip())
        return total / weights

    # -- words ---------------------------------------------------------------------------------------------------

    def _difference(self, line: str, row: str, begin: int) -> str | None:
        if self._same is None:
            return difference(line, row, noun=self._noun, offset=begin)
        if self._same(line, row):
            return None
        # What the tolerance lets pass is not what stopped the match, so it is left out of the explanation.
        begin = len(line) - len(line.lstrip())
        return difference(fold_typography(line).strip(), fold_typography(row).strip(), noun=self._noun, offset=begin)

    def _past_the_end(self, index: int) -> str:
        rest = "\n".join(self._rows[index:])
        if not rest:
            return f"the {self._noun} ends with a line break that the end of the file lacks"
        return f"the file ends where the {self._noun} goes on with {shown(rest)}"

    def _near_miss(self, start: int, number: int, found: str) -> NearMiss:
        rows = len(self._rows) - (len(self._rows) > 1 and not self._rows[-1])
        last = max(number, min(start + rows, len(self._lines)) - 1)
        return NearMiss(start + 1, last + 1, number + 1, found, excerpt(self._lines, start, last, number, found))


def _window(line: str, row: str, column: int, *, open_end: bool) -> tuple[int, int]:
    """The part [begin, end) of a line that stands for a row whose essence begins at `column` of the line's essence."""
    begin = _raw_index(line, column)
    while begin > 0 and is_blank(line[begin - 1]) and (not row or is_blank(row[0])):
        begin -= 1
    if not open_end:
        return begin, len(line)
    end = _raw_index(line, column + len(essence(row)))
    if row and not is_blank(row[-1]):
        while end > begin and is_blank(line[end - 1]):
            end -= 1
    else:
        while end < len(line) and is_blank(line[end]):
            end += 1
    return begin, end


def _raw_index(line: str, column: int) -> int:
    """The first index of a line by which `column` characters of its essence are complete and the next begins."""
    low, high = 0, len(line)
    while low < high:
        middle = (low + high) // 2
        if len(essence(line[: middle + 1])) > column:
            high = middle
        else:
            low = middle + 1
    return low


def _likeness(line: str, row: str) -> float:
    if line == row:
        return 1.0
    return SequenceMatcher(None, line[:_WIDTH_COMPARED], row[:_WIDTH_COMPARED], autojunk=False).ratio()


def _aligned(line: str, row: str) -> tuple[int, int]:
    """The part [begin, end) of a line that a one-line block most likely meant: laid over the longest shared piece."""
    if len(line) <= len(row):
        return 0, len(line)
    shared, length = _shared_piece(line, row)
    begin = max(0, line.find(row[shared : shared + length]) - shared)
    end = begin + len(row)
    # A word that a cut would split belongs to the part as a whole.
    while begin > 0 and line[begin - 1].isalnum() and line[begin].isalnum():
        begin -= 1
    while end < len(line) and line[end - 1].isalnum() and line[end].isalnum():
        end += 1
    return begin, end


def _shared_piece(line: str, row: str) -> tuple[int, int]:
    """Where in the row a long piece begins that the line has too, and how long it is."""
    if len(line) <= _WIDTH_COMPARED and len(row) <= _WIDTH_COMPARED:
        match = SequenceMatcher(None, line, row, autojunk=False).find_longest_match()
        return match.b, match.size
    for word in sorted(set(_WORD.findall(row[:_ROW_READ])), key=len, reverse=True)[:_WORDS]:
        if word in line:
            return row.find(word), len(word)
    return 0, 0


def mistaken_form(text: str, wanted: str) -> str | None:
    """Whether the block is the text in another dress: with line numbers before it, or with escapes not resolved."""
    rows = wanted.split("\n")
    if all(_NUMBERED.match(row) for row in rows if row):
        bare = "\n".join(_NUMBERED.sub("", row) for row in rows)
        if bare.strip() and bare in text:
            return "it starts its lines with the line numbers of a listing; leave them out"
    if "\\n" in wanted or "\\t" in wanted or '\\"' in wanted:
        resolved = wanted.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
        if resolved in text:
            return "it holds escapes (a backslash and a letter) where the file has the characters; escape once less"
    return None

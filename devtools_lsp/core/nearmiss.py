"""Why a block was not found: the most similar place and the character that differs (SPEC 3.5.2, 3.6.3).

Owns the search for that place and the words about it. It runs only after an exact search failed, takes time
linear in the text with a bounded number of closer looks, and decides nothing: whoever asked has refused already.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate

from devtools_lsp.core.lookalikes import essence, is_blank, name_character, name_run

_ROWS_COMPARED = 60
_WIDTH_COMPARED = 240
_WORDS = 32
_HITS_PER_WORD = 60
_LINE_HITS = 200
_CANDIDATES = 12
_SIMILAR = 0.5
_ROWS_SHOWN = 8
_WIDTH_SHOWN = 160

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


def nearest(text: str, wanted: str, *, noun: str = "block") -> NearMiss | None:
    """The place in an LF text that is most like `wanted`, or None when nothing is similar.

    `noun` is what the explanation calls the wanted text.
    """
    lines = text.split("\n")
    rows = wanted.split("\n")
    return _hidden_difference(lines, rows, noun) or _most_similar(lines, rows, noun)


# -- places that differ only in what is hard to see --------------------------------------------------------------


def _hidden_difference(lines: Sequence[str], rows: Sequence[str], noun: str) -> NearMiss | None:
    keys = [essence(row) for row in rows]
    if not any(keys):
        return None
    haystack = "\n".join(map(essence, lines))
    needle = "\n".join(keys)
    for fold in (str, str.casefold):
        folded = fold(haystack)
        place = folded.find(fold(needle))
        if place >= 0:
            start = folded.count("\n", 0, place)
            column = place - (folded.rfind("\n", 0, place) + 1)
            return _describe(lines, rows, start, column, noun)
    return None


def _describe(lines: Sequence[str], rows: Sequence[str], start: int, column: int, noun: str) -> NearMiss | None:
    """Name the first difference between rows and the lines from `start`, where the essence of both agrees."""
    last = start + len(rows) - 1
    for index, row in enumerate(rows):
        line = lines[start + index] if start + index < len(lines) else ""
        if index == 0 or index == len(rows) - 1:
            line = _window(line, row, column if index == 0 else 0, open_end=index == len(rows) - 1)
        found = difference(line, row, noun=noun)
        if found is not None:
            return NearMiss(start + 1, last + 1, start + index + 1, found, _excerpt(lines, start, last))
    return None


def _window(line: str, row: str, column: int, *, open_end: bool) -> str:
    """The part of a line that stands for a row whose essence begins at `column` of the line's essence."""
    begin = _raw_index(line, column)
    while begin > 0 and is_blank(line[begin - 1]) and (not row or is_blank(row[0])):
        begin -= 1
    if not open_end:
        return line[begin:]
    end = _raw_index(line, column + len(essence(row)))
    if row and not is_blank(row[-1]):
        while end > begin and is_blank(line[end - 1]):
            end -= 1
    else:
        while end < len(line) and is_blank(line[end]):
            end += 1
    return line[begin:end]


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


# -- places that share words -------------------------------------------------------------------------------------


def _most_similar(lines: Sequence[str], rows: Sequence[str], noun: str) -> NearMiss | None:
    best_start, best_score = -1, 0.0
    for start in _candidates(lines, rows):
        score = _similarity(lines, rows, start)
        if score > best_score:
            best_start, best_score = start, score
    if best_start < 0 or best_score < _SIMILAR:
        return None
    last = min(best_start + len(rows), len(lines)) - 1
    for index, row in enumerate(rows):
        number = best_start + index
        if number >= len(lines):
            found = f"the file ends where the {noun} goes on with {_shown(row)}"
            return NearMiss(best_start + 1, last + 1, len(lines), found, _excerpt(lines, best_start, last))
        line = lines[number]
        if index == len(rows) - 1 and row and line.startswith(row):
            continue
        if index == 0 and row and line.endswith(row):
            continue
        found = difference(line if len(rows) > 1 else _aligned(line, row), row, noun=noun)
        if found is not None:
            return NearMiss(best_start + 1, last + 1, number + 1, found, _excerpt(lines, best_start, last))
    return NearMiss(
        best_start + 1,
        last + 1,
        best_start + 1,
        f"the {noun} is not there as it stands",
        _excerpt(lines, best_start, last),
    )


def _candidates(lines: Sequence[str], rows: Sequence[str]) -> list[int]:
    """Where the rows could begin, judged by equal lines and by shared words, the most promising first."""
    votes: Counter[int] = Counter()
    wanted: dict[str, list[int]] = {}
    for index, row in enumerate(rows[:_ROWS_COMPARED]):
        if len(row.strip()) > 2:
            wanted.setdefault(row.strip(), []).append(index)
    hits: Counter[str] = Counter()
    for number, line in enumerate(lines):
        key = line.strip()
        if key in wanted and hits[key] < _LINE_HITS:
            hits[key] += 1
            for index in wanted[key]:
                votes[max(0, number - index)] += 8
    text = "\n".join(lines)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    for index, word in _telling_words(rows):
        place = text.find(word)
        for _ in range(_HITS_PER_WORD):
            if place < 0:
                break
            votes[max(0, bisect_right(starts, place) - 1 - index)] += 1
            place = text.find(word, place + len(word))
    return [start for start, _ in votes.most_common(_CANDIDATES)]


def _telling_words(rows: Sequence[str]) -> list[tuple[int, str]]:
    """The longest words of the rows with the row each first stands in."""
    words: dict[str, int] = {}
    for index, row in enumerate(rows[:_ROWS_COMPARED]):
        for word in _WORD.findall(row[:2000]):
            words.setdefault(word, index)
    chosen = sorted(words, key=len, reverse=True)[:_WORDS]
    return [(words[word], word) for word in chosen]


def _similarity(lines: Sequence[str], rows: Sequence[str], start: int) -> float:
    compared = rows[:_ROWS_COMPARED]
    total, weights = 0.0, 0.0
    for index, row in enumerate(compared):
        weight = min(len(row), _WIDTH_COMPARED) + 1
        weights += weight
        if start + index >= len(lines):
            continue
        line = lines[start + index]
        if line == row:
            total += weight
            continue
        line = (_aligned(line, row) if len(rows) == 1 else line)[:_WIDTH_COMPARED]
        total += weight * SequenceMatcher(None, line.strip(), row.strip()[:_WIDTH_COMPARED], autojunk=False).ratio()
    return total / weights if weights else 0.0


def _aligned(line: str, row: str) -> str:
    """The part of a line that a one-line block most likely meant: as long as the block, laid over what they share."""
    if len(line) <= len(row):
        return line
    shared, length = _shared_start(line, row)
    if not length:
        return line[: len(row)]
    begin = max(0, line.find(row[shared : shared + length]) - shared)
    end = begin + len(row)
    # A word that the cut would split belongs to the part as a whole.
    while end < len(line) and line[end - 1].isalnum() and line[end].isalnum():
        end += 1
    return line[begin:end]


def _shared_start(line: str, row: str) -> tuple[int, int]:
    """Where in the row a long piece begins that the line has too, and how long it is."""
    if len(line) <= _WIDTH_COMPARED and len(row) <= _WIDTH_COMPARED:
        match = SequenceMatcher(None, line, row, autojunk=False).find_longest_match()
        return match.b, match.size
    best = (0, 0)
    for word in sorted(set(_WORD.findall(row[:2000])), key=len, reverse=True)[:_WORDS]:
        if word in line:
            best = (row.find(word), len(word))
            break
    return best


# -- words about one line ----------------------------------------------------------------------------------------


def difference(actual: str, wanted: str, *, noun: str = "block") -> str | None:
    """What first differs between a line of the file and the line that was wanted; None when they are equal."""
    if actual == wanted:
        return None
    shared = 0
    while shared < len(actual) and shared < len(wanted) and actual[shared] == wanted[shared]:
        shared += 1
    here, there = actual[shared : shared + 1], wanted[shared : shared + 1]
    if (here and is_blank(here)) or (there and is_blank(there)):
        return _blanks_differ(actual, wanted, shared, noun)
    if not here:
        return f"the {noun} goes on with {_shown(wanted[shared:])} where the file's line ends"
    if not there:
        return f"the file's line goes on with {_shown(actual[shared:])} where the {noun}'s ends"
    words = f"{_word_at(actual, shared)!r} where the {noun} has {_word_at(wanted, shared)!r}"
    if essence(here) == essence(there) or not (here.isascii() and there.isascii()):
        return (
            f"the file has {name_character(here)} where the {noun} has {name_character(there)}, at column {shared + 1}"
        )
    return f"the file has {words}, from column {shared + 1}"


def _blanks_differ(actual: str, wanted: str, shared: int, noun: str) -> str:
    begin = shared
    while begin > 0 and is_blank(actual[begin - 1]):
        begin -= 1
    here, there = _blank_run(actual, begin), _blank_run(wanted, begin)
    at_end = begin + len(here) == len(actual) and begin + len(there) == len(wanted)
    place = "at the end of the line " if at_end else "at the start of the line " if begin == 0 else ""
    if here and there:
        return f"{place}the file has {name_run(here)} where the {noun} has {name_run(there)}, at column {begin + 1}"
    if here:
        return f"{place}the file has {name_run(here)} that the {noun} lacks, at column {begin + 1}"
    return f"{place}the {noun} has {name_run(there)} that the file lacks, at column {begin + 1}"


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


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")


def _excerpt(lines: Sequence[str], start: int, last: int) -> str:
    """The lines with their numbers; tabs are drawn as arrows so that they can be told from blanks."""
    width = len(str(last + 1))
    shown = [
        f"{number + 1:>{width}} | {_clipped(lines[number])}"
        for number in range(start, min(last + 1, start + _ROWS_SHOWN, len(lines)))
    ]
    if last - start >= _ROWS_SHOWN:
        shown.append(f"{'…':>{width}} |")
    return "\n".join(shown)


def _clipped(line: str) -> str:
    drawn = line.replace("\t", "→")
    return drawn if len(drawn) <= _WIDTH_SHOWN else drawn[:_WIDTH_SHOWN] + "…"


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

"""What a plan did to the diagnostics: introduced, resolved, unchanged (SPEC 3.12.4).

Owns how a position in an old text is found in the new one, and when two diagnostics are the same. Counts never
cancel out: an error that went and one that came are two facts, also where their texts and lines are alike.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.core.linediff import Difference, LineRun, differences, runs_between

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_SOLID = re.compile(r"\w+|[^\w\s]")
_LINE_REFERENCE = re.compile(r"\b([Ll]ine )([0-9]{1,9})\b")
_TOKENS_COMPARED = 20_000

_Key = tuple[str | None, str | None, str | None, str, str, int | None, int | None]


class LineMap:
    """Where the places of an old text are in a new one; lines 1-based, columns 1-based in code points."""

    def __init__(self, runs: Sequence[LineRun]) -> None:
        self._runs = runs
        self._starts = [run.line for run in runs]
        self._replaced: dict[int, _Replaced] = {}

    def line(self, line: int) -> int | None:
        """The new number of an old line, None when it was changed or deleted."""
        found = self._locate(line)
        return found if isinstance(found, int) else None

    def position(self, line: int, column: int | None) -> tuple[int, int | None] | None:
        """The new place of an old one, None when the token there was changed or deleted.

        Without a column the place of a changed line is where the first of its tokens that stayed is now.
        """
        found = self._locate(line)
        if isinstance(found, int):
            return found, column
        if found.line not in self._replaced:
            self._replaced[found.line] = _Replaced(found)
        return self._replaced[found.line].position(line - 1 - found.line, column)

    def _locate(self, line: int) -> int | LineRun:
        """The new number of an unchanged line, or the run that an old line lies in."""
        index = bisect_right(self._starts, line - 1) - 1
        if index < 0:
            return line
        run = self._runs[index]
        if line - 1 < run.line + len(run.old):
            return run
        return line + (run.new_line + len(run.new)) - (run.line + len(run.old))


class _Replaced:
    """Where the tokens of one replaced run are among those that replaced them; worked out where it is asked.

    Lines whose tokens are the same but for blanks belong together; what lies between such lines is compared token
    by token as a whole, so that a line that was split or joined keeps its places.
    """

    def __init__(self, run: LineRun) -> None:
        self._run = run
        old, new = ([tuple(_SOLID.findall(line)) for line in lines] for lines in (run.old, run.new))
        self._parts: list[Difference] = []
        line, new_line = 0, 0
        for gap in [*differences(old, new), Difference(len(old), len(old), len(new), len(new))]:
            for offset in range(gap.old_start - line):
                at, now = line + offset, new_line + offset
                self._parts.append(Difference(at, at + 1, now, now + 1))
            self._parts.append(gap)
            line, new_line = gap.old_end, gap.new_end
        self._part_ends = [part.old_end for part in self._parts]
        self._kept: dict[int, dict[tuple[int, int], tuple[int, int]]] = {}

    def position(self, line: int, column: int | None) -> tuple[int, int | None] | None:
        """The new 1-based place of a 0-based line of the run and a 1-based column."""
        kept = self._tokens_kept(bisect_right(self._part_ends, line))
        tokens = [(match.start(), match.group()) for match in _TOKEN.finditer(self._run.old[line])]
        if column is None:
            first = next((start for start, text in tokens if (line, start) in kept and not text.isspace()), None)
            return None if first is None else (kept[line, first][0] + 1, None)
        start = max((start for start, _ in tokens if start < column), default=0)
        if (line, start) not in kept:
            return None
        new_line, new_start = kept[line, start]
        return new_line + 1, new_start + column - start

    def _tokens_kept(self, index: int) -> dict[tuple[int, int], tuple[int, int]]:
        """Old (line of the run, offset) to new (line of the text, offset) of the tokens that a part kept."""
        if index not in self._kept:
            part = self._parts[index]
            old = _tokens(self._run.old, part.old_start, part.old_end)
            new = _tokens(self._run.new, part.new_start, part.new_end)
            gaps = differences([text for _, _, text in old], [text for _, _, text in new])
            kept: dict[tuple[int, int], tuple[int, int]] = {}
            position, following = 0, 0
            for gap in [*gaps, Difference(len(old), len(old), len(new), len(new))]:
                for offset in range(gap.old_start - position):
                    line, start, _ = old[position + offset]
                    new_line, new_start, _ = new[following + offset]
                    kept[line, start] = (self._run.new_line + new_line, new_start)
                position, following = gap.old_end, gap.new_end
            self._kept[index] = kept
        return self._kept[index]


def _tokens(lines: Sequence[str], first: int, last: int) -> list[tuple[int, int, str]]:
    """The tokens of lines [first, last) as (line, 0-based offset, text); a bounded number of them."""
    found: list[tuple[int, int, str]] = []
    for line in range(first, last):
        found.extend((line, match.start(), match.group()) for match in _TOKEN.finditer(lines[line]))
        if len(found) > _TOKENS_COMPARED:
            break
    return found


def line_map(old: str, new: str) -> LineMap:
    """The map between two LF texts."""
    return LineMap(runs_between(old, new))


def compare_diagnostics(
    before: Sequence[Diagnostic],
    after: Sequence[Diagnostic],
    line_maps: Mapping[str, LineMap],
    renames: Mapping[str, str],
) -> tuple[list[Diagnostic], list[Diagnostic], int]:
    """(introduced, resolved, how many are unchanged), each in the order given.

    `line_maps` are keyed by the path that `before` uses; a file without one did not change. `renames` maps old
    paths to new ones. Two diagnostics are the same when engine, path, severity, rule, message and start agree
    after the old one was carried over; of several equal ones as many are unchanged as both sides have. Line
    numbers in messages ("from line 3") are carried over too.
    """
    waiting: defaultdict[_Key, deque[int]] = defaultdict(deque)
    for index, diagnostic in enumerate(after):
        waiting[_key(diagnostic, diagnostic.path, diagnostic.message, diagnostic.line, diagnostic.column)].append(index)
    resolved: list[Diagnostic] = []
    matched: set[int] = set()
    for diagnostic in before:
        key = _carried(diagnostic, line_maps, renames)
        if key is not None and waiting.get(key):
            matched.add(waiting[key].popleft())
        else:
            resolved.append(diagnostic)
    introduced = [diagnostic for index, diagnostic in enumerate(after) if index not in matched]
    return introduced, resolved, len(matched)


def _key(diagnostic: Diagnostic, path: str | None, message: str, line: int | None, column: int | None) -> _Key:
    return diagnostic.engine_id, path, diagnostic.rule, diagnostic.severity, message, line, column


def _carried(diagnostic: Diagnostic, line_maps: Mapping[str, LineMap], renames: Mapping[str, str]) -> _Key | None:
    """The identity of an old diagnostic in the new state; None when what it was about is gone."""
    if diagnostic.path is None:
        return _key(diagnostic, None, diagnostic.message, diagnostic.line, diagnostic.column)
    path = renames.get(diagnostic.path, diagnostic.path)
    mapping = line_maps.get(diagnostic.path)
    if mapping is None:
        return _key(diagnostic, path, diagnostic.message, diagnostic.line, diagnostic.column)

    def carried_reference(match: re.Match[str]) -> str:
        place = mapping.position(int(match.group(2)), None)
        return match.group() if place is None else f"{match.group(1)}{place[0]}"

    message = _LINE_REFERENCE.sub(carried_reference, diagnostic.message)
    if diagnostic.line is None:
        return _key(diagnostic, path, message, None, None)
    place = mapping.position(diagnostic.line, diagnostic.column)
    return None if place is None else _key(diagnostic, path, message, *place)

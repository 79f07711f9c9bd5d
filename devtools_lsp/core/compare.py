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
_LINE_REFERENCE = re.compile(r"\b([Ll]ine )(\d+)\b")
_TOKENS_COMPARED = 20_000

_Key = tuple[str | None, str | None, str | None, str, str, int | None, int | None]


class LineMap:
    """Where the places of an old text are in a new one; lines 1-based, columns 1-based in code points."""

    def __init__(self, runs: Sequence[LineRun]) -> None:
        self._runs = runs
        self._starts = [run.line for run in runs]
        self._tokens: dict[int, _TokenMap] = {}

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
        if found.line not in self._tokens:
            self._tokens[found.line] = _TokenMap(found)
        return self._tokens[found.line].position(line - 1 - found.line, column)

    def _locate(self, line: int) -> int | LineRun:
        """The new number of an unchanged line, or the run that an old line lies in."""
        index = bisect_right(self._starts, line - 1) - 1
        if index < 0:
            return line
        run = self._runs[index]
        if line - 1 < run.line + len(run.old):
            return run
        return line + (run.new_line + len(run.new)) - (run.line + len(run.old))


class _TokenMap:
    """Where the tokens of one replaced run are among those that replaced them."""

    def __init__(self, run: LineRun) -> None:
        old, new = _tokens(run.old), _tokens(run.new)
        self._old = old
        self._starts = [(line, column) for line, column, _ in old]
        self._new_line = run.new_line
        self._kept: dict[int, tuple[int, int]] = {}
        position, following = 0, 0
        gaps = differences([text for _, _, text in old], [text for _, _, text in new])
        for gap in [*gaps, Difference(len(old), len(old), len(new), len(new))]:
            for offset in range(gap.old_start - position):
                self._kept[position + offset] = new[following + offset][:2]
            position, following = gap.old_end, gap.new_end

    def position(self, line: int, column: int | None) -> tuple[int, int | None] | None:
        if column is None:
            return self._first_kept(line)
        index = bisect_right(self._starts, (line, column - 1)) - 1
        if index < 0 or index not in self._kept:
            return None
        old_line, old_column, _ = self._old[index]
        if old_line != line:
            return None
        new_line, new_column = self._kept[index]
        return self._new_line + new_line + 1, new_column + (column - 1 - old_column) + 1

    def _first_kept(self, line: int) -> tuple[int, int | None] | None:
        index = bisect_right(self._starts, (line, -1))
        while index < len(self._old) and self._old[index][0] == line:
            if index in self._kept and not self._old[index][2].isspace():
                return self._new_line + self._kept[index][0] + 1, None
            index += 1
        return None


def _tokens(lines: Sequence[str]) -> list[tuple[int, int, str]]:
    """The tokens of a run as (line in the run, 0-based column, text); a bounded number of them."""
    found: list[tuple[int, int, str]] = []
    for line, text in enumerate(lines):
        found.extend((line, match.start(), match.group()) for match in _TOKEN.finditer(text))
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
    message = _LINE_REFERENCE.sub(
        lambda match: f"{match.group(1)}{mapping.line(int(match.group(2))) or match.group(2)}", diagnostic.message
    )
    if diagnostic.line is None:
        return _key(diagnostic, path, message, None, None)
    place = mapping.position(diagnostic.line, diagnostic.column)
    return None if place is None else _key(diagnostic, path, message, *place)

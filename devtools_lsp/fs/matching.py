"""Many path patterns tested at once, as policies need it: one regular expression instead of one walk a pattern.

Means exactly what `PathPattern.matches(path, dot_names=True)` means; a property in the tests holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from devtools_lsp.fs.names import fold, fold_path
from devtools_lsp.paths import PathPattern


class PatternSet:
    """Whether any of some patterns matches a path. `forgiving` also matches folded names, for denies."""

    def __init__(self, patterns: Sequence[PathPattern], *, forgiving: bool = False) -> None:
        exact = [pattern.segments for pattern in patterns]
        self._exact = _Expressions(exact)
        self._folded: _Expressions | None = None
        self._alike = False
        if forgiving:
            folded = [tuple(fold(segment) or segment for segment in segments) for segments in exact]
            self._folded = _Expressions(folded)
            self._alike = folded == exact

    def matches(self, path: str, folded: str | None = None) -> bool:
        """Whether a root-relative path matches; wildcards match dot-names. `folded` is `fold_path(path)` if known."""
        if self._folded is None:
            return self._exact.match(path)
        folded = fold_path(path) if folded is None else folded
        if self._folded.match(folded):
            return True
        # Searches ask about every file of a tree, and nearly all of them and all patterns are their own folded form.
        return not (self._alike and folded == path) and self._exact.match(path)


class _Expressions:
    """The patterns as two expressions: `**/NAME` looks at a path's last name alone, the others at all of it."""

    def __init__(self, patterns: Sequence[tuple[str, ...]]) -> None:
        names = [segments[1] for segments in patterns if _is_name_anywhere(segments)]
        others = [segments for segments in patterns if not _is_name_anywhere(segments)]
        self._name = re.compile("|".join(f"(?:{_segment(name)})" for name in names)) if names else None
        self._path = (
            re.compile("|".join(f"(?:{''.join(map(_segment, segments))})" for segments in others), re.DOTALL)
            if others
            else None
        )

    def match(self, path: str) -> bool:
        # Paths are `/`-led here, so that every segment, `**` included, takes its own slash with it.
        led = "/" + path
        if self._name is not None and self._name.fullmatch(led, led.rindex("/")):
            return True
        return self._path is not None and self._path.fullmatch(led) is not None


def _is_name_anywhere(segments: tuple[str, ...]) -> bool:
    """Whether the segments are `**/NAME`. A character such as U+2100 folds to text with a slash, which is no name."""
    return len(segments) == 2 and segments[0] == "**" and segments[1] != "**" and "/" not in segments[1]


def _segment(segment: str) -> str:
    if segment == "**":
        return "(?:/[^/]*)*"
    return "/" + "[^/]*".join(re.escape(piece) for piece in segment.split("*"))

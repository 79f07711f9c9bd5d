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
        self._exact = _compiled([pattern.segments for pattern in patterns])
        self._folded = (
            _compiled([tuple(fold(segment) or segment for segment in pattern.segments) for pattern in patterns])
            if forgiving
            else None
        )

    def matches(self, path: str) -> bool:
        """Whether a root-relative path matches; wildcards match dot-names."""
        if self._exact.fullmatch("/" + path):
            return True
        return self._folded is not None and self._folded.fullmatch("/" + fold_path(path)) is not None


def _compiled(patterns: Sequence[tuple[str, ...]]) -> re.Pattern[str]:
    """One expression over `/`-led paths, so that every segment, `**` included, takes its own slash with it."""
    alternatives = ["".join(_segment(segment) for segment in segments) for segments in patterns]
    return re.compile("|".join(f"(?:{text})" for text in alternatives) if alternatives else r"(?!)", re.DOTALL)


def _segment(segment: str) -> str:
    if segment == "**":
        return "(?:/[^/]*)*"
    return "/" + "[^/]*".join(re.escape(piece) for piece in segment.split("*"))

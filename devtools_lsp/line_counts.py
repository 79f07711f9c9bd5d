"""Line counts for summaries: how many lines a change added and removed, from the optional extra `diff`.

Owns the one use of `rapidfuzz`, whose bit-parallel longest common subsequence makes the counts the smallest there
are, in milliseconds. Without the package there is no counter, and counts are absent rather than zero (I12).
"""

from __future__ import annotations

from devtools_lsp.core.linediff import differences, enclosing_span, lines_of
from devtools_lsp.ports import LineCounter

_CELLS = 2_000_000_000
"""Differing old lines times differing new lines up to which the exact count takes less than a second."""


def line_counter() -> LineCounter | None:
    """The counter, or None when the extra `diff` is not installed."""
    try:
        from rapidfuzz.distance import LCSseq
    except ImportError:
        return None

    def count(before: str, after: str) -> tuple[int, int]:
        if before == after:
            return 0, 0
        span = enclosing_span(before, after)
        old, new = lines_of(before[span.start : span.end]), lines_of(span.replacement)
        if not old or not new:
            return len(new), len(old)
        if len(old) * len(new) > _CELLS:
            gaps = differences(old, new)
            return sum(gap.new_end - gap.new_start for gap in gaps), sum(gap.old_end - gap.old_start for gap in gaps)
        shared = LCSseq.similarity(old, new)
        return len(new) - shared, len(old) - shared

    return count

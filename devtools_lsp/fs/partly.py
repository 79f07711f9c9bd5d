"""What is said of a commit that failed and could not be taken back: what is on the disk, and what the next start does.

Owns that error and its words. Looks at the journal, changes nothing.
"""

from __future__ import annotations

from devtools_lsp.errors import StepFailedError
from devtools_lsp.fs.journal import Journal
from devtools_lsp.fs.records import Record


class PartlyLandedError(StepFailedError):
    """A commit failed and could not be taken back entirely: `landed` are the paths that stayed new."""

    landed: frozenset[str] = frozenset()


def partly_landed(
    journal: Journal, record: Record | None, cause: str, landed: frozenset[str], *, of: int, failing: str
) -> PartlyLandedError:
    """The error for a commit of `of` changes; `record` is the prepared one, if it came to that."""
    failure = PartlyLandedError(
        f"{cause}; taking it back failed too, so that of {of} changes these are on the disk: "
        f"{', '.join(sorted(landed)) or 'none, as far as can be seen'}. {_at_next_start(journal, record)}",
        paths=sorted(landed),
        path=failing,
        retry="no",
    )
    failure.landed = landed
    return failure


def _at_next_start(journal: Journal, record: Record | None) -> str:
    """What becomes of a transaction that could not be taken back, by what the journal says of it now."""
    try:
        gone = record is None or journal.is_gone()
        marked = record is not None and journal.is_marked(record)
    except OSError:
        return "The next start of the daemon looks again, and its status says what became of them"
    if record is None or gone:
        return "The journal is gone, so that nothing takes them back by itself"
    if record.light:
        return "The next start of the daemon takes what it finds then for written, and undo can take it back"
    if marked:
        return (
            "The journal says that the plan is written, and that could not be mended either: the next start of the "
            "daemon leaves them, and undo can take them back"
        )
    return "The next start of the daemon takes them back, unless someone changes them before"

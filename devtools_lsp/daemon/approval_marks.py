"""Waiting approvals as diagnostics on the files that they concern (SPEC 8.0.8): a view that marks the hub's files."""

from __future__ import annotations

from devtools_lsp.core.changeset import FileChange
from devtools_lsp.daemon.approval_payload import Approval, Resolution
from devtools_lsp.daemon.approval_words import MarkWords
from devtools_lsp.daemon.diagnostics_hub import DiagnosticsHub
from devtools_lsp.daemon.diagnostics_page import Mark

CODE = "approval"
MAX_MARKED_FILES = 200
"""An approval marks at most this many files; the others are in its payload."""


class ApprovalMarks:
    """Implements `ApprovalView`. Attach it once, not deciding: it shows approvals to whoever looks at files."""

    def __init__(self, hub: DiagnosticsHub) -> None:
        self._hub = hub

    def requested(self, approval: Approval) -> None:
        """Mark every file that exists, at the first hunk's old lines."""
        data = {"approvalId": approval.id, "engineId": None, "outOfScope": False}
        marks: dict[str, Mark] = {}
        words = MarkWords(approval)
        changes = approval.changes()
        for path in approval.existing[:MAX_MARKED_FILES]:
            change = changes.get(path)
            first, count = first_lines(change)
            marks[path] = Mark(first, count, words.on(change), CODE, data)
        if marks:
            self._hub.mark(approval.id, marks)

    def updated(self, approval: Approval) -> None:
        """The same places, with what became known."""
        self.requested(approval)

    def resolved(self, approval: Approval, resolution: Resolution) -> None:
        """It disappears everywhere, however it ended."""
        del resolution
        self._hub.unmark(approval.id)


def first_lines(change: FileChange | None) -> tuple[int, int]:
    """(first line, number of lines), 1-based, of the first hunk's old lines in a file that exists; else its first."""
    if change is None or not change.hunks:
        return 1, 1
    hunk = change.hunks[0]
    return max(1, hunk.old_start), max(1, hunk.old_lines)

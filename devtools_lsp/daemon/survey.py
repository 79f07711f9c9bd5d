"""What is found out about a proposal before it is shown, and whether the disk still is what was shown then.

Reads files and walks whole diffs: the functions that take a `Disk` or a preview are for a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from devtools_lsp.core.changeset import Preview
from devtools_lsp.core.invisible import find_invisible, may_hold_invisible
from devtools_lsp.daemon.approval_payload import Unseen, size_of
from devtools_lsp.daemon.disk import Disk
from devtools_lsp.pipeline.rules import Question, count_changed_lines
from devtools_lsp.wire.messages import encode

MAX_UNSEEN = 200


@dataclass(frozen=True, slots=True)
class Survey:
    """What a person is told beside the diff, and what binds the approval. See `Approval` for the fields."""

    existing: tuple[str, ...]
    baseline: Mapping[str, str | None]
    counts: Mapping[str, tuple[int, int]]
    unseen: tuple[Unseen, ...]
    hunk_bytes: int
    argument_bytes: int


def survey(disk: Disk, shown: Preview, question: Question) -> Survey:
    """Look at the disk and at the whole diff once."""
    baseline: dict[str, str | None] = {}
    existing: list[str] = []
    for file in shown.files:
        if file.kind != "added":
            source = file.from_ or file.path
            baseline[source] = file.base_hash or disk.sha256(source)
            existing.append(source)
        if file.kind in ("added", "renamed"):
            baseline.setdefault(file.path, disk.sha256(file.path))
    if not shown.files:
        existing = [path for path in question.call.targets if disk.is_file(path)]
    counts = {file.path: count_changed_lines([file]) for file in shown.files}
    return Survey(
        tuple(sorted(existing)),
        baseline,
        counts,
        tuple(islice(_unseen(shown), MAX_UNSEEN)),
        sum(size_of(hunk) for file in shown.files for hunk in file.hunks),
        len(encode(question.call.args)),
    )


def _unseen(shown: Preview) -> Iterator[Unseen]:
    for file in shown.files:
        for hunk in file.hunks:
            if not may_hold_invisible(hunk.text):
                continue
            line = hunk.new_start
            for row in hunk.text.split("\n"):
                if row.startswith("+"):
                    yield from (Unseen(file.path, line, column, what) for _, column, what in find_invisible(row[1:]))
                if row[:1] in ("+", " "):
                    line += 1


def changed_since(disk: Disk, baseline: Mapping[str, str | None]) -> list[str]:
    """The files that are not what the baseline says."""
    return [path for path, expected in baseline.items() if disk.sha256(path) != expected]


def concerns(baseline: Mapping[str, str | None], names: set[str]) -> bool:
    """Whether a change of these files or directories could concern the baseline; a comparison tells."""
    for path in baseline:
        while path:
            if path in names:
                return True
            path = path.rpartition("/")[0]
    return False

"""Whether the disk still is what an approval showed: the baseline taken when it is asked, and its comparison.

Reads files; its functions that take a `Disk` are for a thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from devtools_lsp.core.changeset import Preview
from devtools_lsp.daemon.disk import Disk
from devtools_lsp.pipeline.rules import Question


def look(disk: Disk, shown: Preview, question: Question) -> tuple[tuple[str, ...], dict[str, str | None]]:
    """Which of the files exist, and the SHA-256 that each must keep (None: absent) for the approval to mean this."""
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
    return tuple(sorted(existing)), baseline


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

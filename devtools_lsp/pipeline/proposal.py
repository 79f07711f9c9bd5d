"""A step's proposal: what it would change, as data that can be shown, decided on in parts, and then taken.

Owns the way from two workspace snapshots to files and hunks, and from a person's decision back to a snapshot.
What is shown and what is written come from the same entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from devtools_lsp.core.changeset import FileChange
from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.core.hunks import changed_ranges, choose_hunks, hunks_between, hunks_from_spans
from devtools_lsp.core.result import ChangeKind, Normalized
from devtools_lsp.core.workspace import FileText, Workspace
from devtools_lsp.errors import BadArgumentError
from devtools_lsp.ports import Decision, LandedFile
from devtools_lsp.text import UTF8_LF, Span, TextPolicy, to_lf


class Proposed(msgspec.Struct, frozen=True):
    """One file of a proposal. `before` None = added, `after` None = deleted, `source` set = moved from there.

    `base_hash` is the SHA-256 of the bytes on disk that `before` came from; `spans` say which parts of the old
    text are replaced, where that is known, so that no whole-file diff is needed.
    """

    path: str
    before: FileText | None
    after: FileText | None
    base_hash: str | None = None
    source: str | None = None
    spans: tuple[Span, ...] | None = None

    @property
    def kind(self) -> ChangeKind:
        """How the change is called."""
        if self.after is None:
            return "deleted"
        if self.source is not None:
            return "renamed"
        return "added" if self.before is None else "modified"

    def to_file_change(self) -> FileChange:
        """The form that is shown: hunks with stable ids."""
        old = self.before.text if self.before is not None else ""
        new = self.after.text if self.after is not None else ""
        if self.spans is not None:
            hunks = hunks_from_spans(old, list(self.spans), path=self.path)
        else:
            hunks = hunks_between(old, new, path=self.path)
        return FileChange(path=self.path, kind=self.kind, base_hash=self.base_hash, hunks=hunks, from_=self.source)

    def to_landed_file(self) -> LandedFile:
        """The form that is announced: which lines of the file, as it then is, have changed."""
        ranges: list[tuple[int, int]] = []
        if self.after is not None:
            old = self.before.text if self.before is not None else ""
            ranges = changed_ranges(old, self.after.text if self.spans is None else self.spans)
        return LandedFile(path=self.path, kind=self.kind, from_=self.source, ranges=tuple(ranges))


class Proposal(msgspec.Struct, frozen=True):
    """What one step would make of the workspace: `after`, and the entries that say how it differs."""

    after: Workspace
    entries: tuple[Proposed, ...] = ()
    notes: tuple[Diagnostic, ...] = msgspec.field(default=())

    @property
    def weight(self) -> int:
        """How many characters stand on both sides, for judging what its diff costs."""
        return sum(len(side.text) for entry in self.entries for side in (entry.before, entry.after) if side is not None)

    def files(self) -> list[FileChange]:
        """The changes as shown."""
        return [entry.to_file_change() for entry in self.entries]

    def normalized(self, policy: TextPolicy) -> list[Normalized]:
        """Which files the text policy would rewrite beyond the change itself."""
        if policy == "preserve":
            return []
        return [
            Normalized(path=entry.path, from_=entry.after.form.label, to=UTF8_LF.label)
            for entry in self.entries
            if entry.after is not None and entry.after.form != UTF8_LF
        ]

    def decided(self, decision: Decision) -> Proposal:
        """The proposal as a person took it: hunks dropped, texts edited. Raises BadArgumentError for unknown ids."""
        if not decision.edited and not decision.dropped:
            return self
        whole = {edit.path: to_lf(edit.text) for edit in decision.edited if edit.path is not None}
        bodies = {edit.hunk_id: to_lf(edit.text) for edit in decision.edited if edit.hunk_id is not None}
        shown = {entry.path: entry.to_file_change() for entry in self.entries}
        known_hunks = {hunk.id for change in shown.values() for hunk in change.hunks}
        for name in [*decision.dropped, *bodies]:
            if name not in known_hunks:
                raise BadArgumentError(f"the decision names hunk {name!r}, which this approval does not have")
        for path in whole:
            if path not in shown:
                raise BadArgumentError(f"the decision edits {path!r}, which this approval does not change", path=path)
        entries: list[Proposed] = []
        workspace = self.after
        for entry in self.entries:
            taken = _decide_entry(entry, shown[entry.path], whole, bodies, decision.dropped)
            if taken is not None and taken == entry:
                entries.append(entry)
                continue
            if taken is None or taken.after is None:
                workspace = workspace.without([entry.path])
            else:
                workspace = workspace.with_files({entry.path: taken.after})
            if taken is not None and (taken.before != taken.after or taken.source is not None):
                entries.append(taken)
        return msgspec.structs.replace(self, after=workspace, entries=tuple(entries))


def _decide_entry(
    entry: Proposed,
    shown: FileChange,
    whole: Mapping[str, str],
    bodies: Mapping[str, str],
    dropped: Sequence[str],
) -> Proposed | None:
    """One file as the person took it; None when an addition was dropped altogether."""
    if entry.path in whole:
        base = entry.after or entry.before or FileText("")
        return msgspec.structs.replace(entry, after=base.replaced(whole[entry.path]), spans=None)
    own = {hunk.id for hunk in shown.hunks}
    own_dropped = own & set(dropped)
    own_bodies = {name: body for name, body in bodies.items() if name in own}
    if not own_dropped and not own_bodies:
        return entry
    old = entry.before.text if entry.before is not None else ""
    text = choose_hunks(old, shown.hunks, dropped=own_dropped, edited=own_bodies)
    if entry.before is None and own_dropped == own:
        return None
    base = entry.before or entry.after or FileText("")
    return msgspec.structs.replace(entry, after=base.replaced(text), spans=None)


def propose(
    before: Workspace,
    after: Workspace,
    *,
    moves: Mapping[str, str] | None = None,
    spans: Mapping[str, Sequence[Span]] | None = None,
    notes: Sequence[Diagnostic] = (),
) -> Proposal:
    """The proposal that turns `before` into `after`; `moves` maps old to new paths, `spans` is keyed by old path."""
    entries: list[Proposed] = []
    # A file that is moved over one that goes is shown as what it does to both names: one changes, one goes.
    over = {old for old, new in (moves or {}).items() if new in before.files and new not in (moves or {})}
    moves = {old: new for old, new in (moves or {}).items() if old not in over}
    origin = {new: old for old, new in moves.items()}
    for path, content in after.files.items():
        source = origin.get(path)
        old_path = source or path
        replaced = source is None and path in moves
        old = None if replaced else before.files.get(old_path)
        if source is None and old == content:
            continue
        known = tuple(spans[old_path]) if spans is not None and old_path in spans and old is not None else None
        entries.append(
            Proposed(path, old, content, None if old is None else disk_hash(before, old_path), source, known)
        )
    gone = set(before.files) - set(after.files) - set(moves)
    entries.extend(Proposed(path, before.files[path], None, disk_hash(before, path)) for path in gone)
    return Proposal(after, tuple(sorted(entries, key=lambda entry: entry.path)), tuple(notes))


def disk_hash(workspace: Workspace, path: str) -> str | None:
    """The hash of the bytes on disk that a workspace file came from; None when it is not on disk."""
    on_disk = workspace.disk.get(workspace.moved.get(path, path))
    return on_disk.sha256 if on_disk is not None else None

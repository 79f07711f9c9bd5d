"""From the kept records of a plan to the mutations that take it back (SPEC 5.3.4).

Plans only: the pipeline sends the mutations through gate and gauntlet like any others. A file that does not hold
what the plan wrote any more is a conflict, named and not touched; of a moved file both ends stand or fall together.
Blocks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from devtools_lsp.core.workspace import sha256
from devtools_lsp.errors import BadArgumentError, PolicyError, StepFailedError
from devtools_lsp.fs.journal import Journal
from devtools_lsp.fs.journal_names import part_name
from devtools_lsp.fs.layout import ancestors
from devtools_lsp.fs.records import Record
from devtools_lsp.fs.staging import Print, open_regular, read_all
from devtools_lsp.ports import Mutation

Look = Callable[[str], str | None]
"""The SHA-256 of the file at a path, None when absent; raises DevToolsError for anything else (a directory, a link)."""

LookAtDirectory = Callable[[str], int | None]
"""The inode of the directory at a path; None for anything else, and for what cannot be reached."""


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """How to take a plan back.

    `mutations` with their `expect`, in writing order (renames, deletions, writes), then the directories that go if
    they are empty in the end · `conflicts` path to why it is left alone, sorted. When `mutations` is empty nothing can
    be taken back.
    """

    plan: str
    mutations: tuple[Mutation, ...]
    conflicts: dict[str, str]

    @property
    def targets(self) -> tuple[str, ...]:
        """Every path that the mutations touch, both ends of moves, sorted."""
        touched = {mutation.path for mutation in self.mutations if mutation.kind != "rmdir"}
        touched |= {mutation.source for mutation in self.mutations if mutation.source is not None}
        return tuple(sorted(touched))


@dataclass(slots=True)
class _Net:
    """One path over all records of the plan: what it was first, and what the plan left."""

    before: Print | None
    after: Print | None
    store: tuple[str, int] | None
    moved_from: str | None
    disturbed: bool = False


def plan_undo(journal: Journal, plan: str | None, look: Look, look_at_directory: LookAtDirectory) -> UndoPlan:
    """The undo of a plan, by default of the last one that was neither undone nor is an undo itself.

    Raises BadArgumentError (`notFound`) when no such plan is kept.
    """
    records = journal.records()
    chosen = _choose(records, plan)
    net = _net(chosen)
    conflicts = {path: why for path, entry in net.items() if (why := _obstacle(journal, path, entry, look))}
    for path, entry in net.items():
        partner = entry.moved_from
        if partner is None or partner not in net:
            continue
        if path in conflicts:
            conflicts[partner] = f"its content is at {path!r}, which is left alone"
        elif partner in conflicts:
            conflicts.setdefault(path, f"it came from {partner!r}, which is left alone")
    free = {path: entry for path, entry in net.items() if path not in conflicts}
    mutations = _mutations(journal, free)
    emptied = _emptied(records, chosen[0].plan, mutations, look_at_directory)
    return UndoPlan(chosen[0].plan, (*mutations, *emptied), dict(sorted(conflicts.items())))


def mark_undone(journal: Journal, plan: str, by: str) -> None:
    """Remember that plan `by` undoes `plan`, so that the next undo without a name goes one further back.

    It counts from when `by` has landed, so that it is noted before: a crash in between is then no reason to undo twice.
    Noted once more afterwards it outlasts the record of `plan`.
    """
    landed = {record.plan for record in journal.records()}
    for record in journal.records():
        if record.plan == plan and record.undone_by not in landed:
            journal.replace(msgspec.structs.replace(record, undone_by=by))
        elif record.plan == by and record.undoes is None:
            journal.replace(msgspec.structs.replace(record, undoes=plan))


def _choose(records: Sequence[Record], plan: str | None) -> list[Record]:
    if plan is None:
        landed = {record.plan for record in records}
        undos = {record.undone_by for record in records} | {record.plan for record in records if record.undoes}
        last = next((r for r in reversed(records) if r.undone_by not in landed and r.plan not in undos), None)
        if last is None:
            raise BadArgumentError("there is no plan left to undo", reason="notFound", step="undo")
        plan = last.plan
    chosen = [record for record in records if record.plan == plan and record.entries]
    if not chosen:
        known = list(dict.fromkeys(record.plan for record in reversed(records)))
        raise BadArgumentError(
            f"plan {plan!r} cannot be undone: its before-images are not kept (any more)",
            reason="notFound",
            step="undo",
            alternatives=known[:20],
        )
    return chosen


def _net(records: Sequence[Record]) -> dict[str, _Net]:
    net: dict[str, _Net] = {}
    for record in records:
        # Where each file was before this record, so that a chain of moves leads back to its beginning.
        origins = {path: entry.moved_from for path, entry in net.items() if entry.moved_from is not None}
        for entry in record.entries:
            store = (record.id, entry.n) if entry.before is not None else None
            known = net.get(entry.path)
            origin = origins.get(entry.moved_from or "", entry.moved_from)
            if known is None:
                net[entry.path] = _Net(entry.before, entry.after, store, origin)
                continue
            known.disturbed = known.disturbed or _sha(known.after) != _sha(entry.before)
            known.after = entry.after
            known.moved_from = None if entry.after is None else origin or known.moved_from
    return {
        path: entry for path, entry in sorted(net.items()) if entry.disturbed or _sha(entry.before) != _sha(entry.after)
    }


def _obstacle(journal: Journal, path: str, entry: _Net, look: Look) -> str | None:
    if entry.disturbed:
        return "someone changed it between two writes of the plan"
    try:
        found = look(path)
    except (PolicyError, StepFailedError) as error:
        if error.reason == "isDirectory":
            return "someone changed it since"
        return f"what is there now cannot be looked at: {error.message}"
    if found != _sha(entry.after):
        if found is None:
            return "someone deleted it since"
        return "something is there now" if entry.after is None else "someone changed it since"
    if entry.store is not None and _kept_bytes(journal, entry) is None:
        return "its old content is not kept unchanged any more"
    return None


def _mutations(journal: Journal, net: dict[str, _Net]) -> tuple[Mutation, ...]:
    moves: list[Mutation] = []
    deletions: list[Mutation] = []
    writes: list[Mutation] = []
    settled: set[str] = set()
    for path, entry in net.items():
        origin = net.get(entry.moved_from or "")
        if entry.before is None and entry.after is not None and origin is not None and origin.after is None:
            back = entry.moved_from or ""
            image = _image(origin)
            moves.append(Mutation("rename", back, source=path, expect=entry.after.sha256, restores=image))
            settled.update((path, back))
            if origin.before is not None and origin.before.sha256 != entry.after.sha256:
                writes.append(Mutation("write", back, _kept(journal, origin), expect=entry.after.sha256))
    for path, entry in net.items():
        if path in settled:
            continue
        if entry.before is None:
            deletions.append(Mutation("delete", path, expect=_sha(entry.after)))
        else:
            data = _kept(journal, entry)
            image = _image(entry) if entry.after is None else ""
            mode = entry.before.mode
            writes.append(Mutation("write", path, data, expect=_sha(entry.after), mode=mode, restores=image))
    return (*moves, *deletions, *writes)


def _emptied(
    records: Sequence[Record], plan: str, mutations: Sequence[Mutation], look: LookAtDirectory
) -> list[Mutation]:
    """The directories that a plan made and that its undo may leave empty; also those of plans undone before it, whose
    files were in the way then.
    """
    landed = {record.plan for record in records}
    left = {above for mutation in mutations for path in _leaves(mutation) for above in ancestors(path)}
    made = {
        path: ino
        for record in records
        if record.plan == plan or record.undone_by in landed
        for path, ino in zip(record.directories, record.made, strict=False)
        if path in left and look(path) == ino
    }
    innermost_first = sorted(made, key=lambda path: (-path.count("/"), path))
    return [Mutation("rmdir", path, expect=str(made[path])) for path in innermost_first]


def _leaves(mutation: Mutation) -> list[str]:
    """Where a mutation takes a file away."""
    if mutation.kind == "rename":
        return [mutation.source or ""]
    return [mutation.path] if mutation.kind == "delete" else []


def _kept(journal: Journal, entry: _Net) -> bytes:
    data = _kept_bytes(journal, entry)
    assert data is not None  # _obstacle found it a moment ago, in a session that only this process writes.
    return data


def _kept_bytes(journal: Journal, entry: _Net) -> bytes | None:
    """The before-image; None when it is gone or was changed through another hard link of the old file."""
    if entry.store is None or entry.before is None:
        return None
    try:
        descriptor, status = open_regular(_image(entry), journal.descriptor)
    except (OSError, PolicyError):
        return None
    try:
        data = read_all(descriptor, status.st_size)
        return data if sha256(data) == entry.before.sha256 else None
    finally:
        os.close(descriptor)


def _image(entry: _Net) -> str:
    return part_name(entry.store[0], "old", entry.store[1]) if entry.store is not None else ""


def _sha(image: Print | None) -> str | None:
    return image.sha256 if image is not None else None

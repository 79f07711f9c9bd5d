"""Writing: from a workspace that differs from the disk to an ordered list of mutations, and their bookkeeping.

Owns SPEC 3.8: renames, then deletions, then writes; every target compared with what was acquired; what landed is
recorded as it lands. The mutations themselves are the gauntlet's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

import msgspec

from devtools_lsp.core.renames import plan_renames
from devtools_lsp.core.result import Normalized, Written
from devtools_lsp.core.workspace import DiskFile, FileText, Workspace, sha256
from devtools_lsp.errors import BadArgumentError, ConflictError, DevToolsError, StepUnavailableError
from devtools_lsp.pipeline.ahead import Ahead
from devtools_lsp.pipeline.parts import PipelineParts
from devtools_lsp.pipeline.proposal import Proposal, Proposed
from devtools_lsp.ports import Mutation, Permit, PlanIdentity
from devtools_lsp.text import UTF8_LF, TextPolicy


class WritePlan(msgspec.Struct, frozen=True):
    """What one write does. `written` is what the result says when all of it landed; `targets` is every path that is
    touched, both ends of moves, sorted.
    """

    mutations: tuple[Mutation, ...]
    entries: tuple[Proposed, ...]
    written: tuple[Written, ...]
    created: tuple[str, ...]
    targets: tuple[str, ...]
    settled: Workspace
    """The workspace once everything landed: its `disk` is what was written."""
    passing: tuple[str, ...] = ()
    """Temporary names that break cycles of renames."""


class Landing(msgspec.Struct):
    """What has reached the disk so far, in order; `ahead` is what was worked out about the plan that landed last."""

    written: list[Written] = msgspec.field(default_factory=list[Written])
    ahead: Ahead | None = None


def plan_write(
    workspace: Workspace,
    policy: TextPolicy,
    selected: Collection[str] | None = None,
    known: Sequence[Proposed] = (),
) -> WritePlan:
    """Plan the mutations that bring the disk to the workspace, of `selected` paths only where given.

    `known` are changes whose spans may be known, so that nobody has to compare whole texts for them.
    """

    def wanted(*paths: str) -> bool:
        return selected is None or any(path in selected for path in paths)

    disk = dict(workspace.disk)
    moved = dict(workspace.moved)
    entries: list[Proposed] = []
    moves: dict[str, str] = {}
    for path, source in workspace.moved.items():
        if not wanted(path, source) or source not in disk:
            continue
        del moved[path]
        occupied = path in disk and path not in workspace.moved.values()
        if not occupied:
            moves[source] = path
    mutations: list[Mutation] = []
    written: list[Written] = []
    expected: dict[str, str | None] = {path: known.sha256 for path, known in disk.items()}
    renames = plan_renames(moves, taken=set(disk)) if moves else []
    for move in renames:
        mutations.append(Mutation("rename", move.target, source=move.source, expect=expected.get(move.source)))
        expected[move.target] = expected.pop(move.source, None)
    for source, path in sorted(moves.items(), key=lambda item: item[1]):
        written.append(Written(path=path, kind="renamed", from_=source))
        entries.append(Proposed(path, disk[source].content, workspace.files[path], disk[source].sha256, source))
    before_disk = dict(disk)
    for source in moves:
        disk.pop(source)
    for source, path in moves.items():
        disk[path] = before_disk[source]
    for path in sorted(set(disk) - set(workspace.files)):
        if not wanted(path):
            continue
        mutations.append(Mutation("delete", path, expect=expected[path]))
        written.append(Written(path=path, kind="deleted"))
        entries.append(Proposed(path, disk[path].content, None, disk[path].sha256))
        del disk[path]
        expected.pop(path)
    spans = {entry.path: entry for entry in known if entry.spans is not None and entry.source is None}
    created: list[str] = list(moves.values())
    files = dict(workspace.files)
    for path in sorted(files):
        content = files[path]
        on_disk = disk.get(path)
        if not wanted(path, workspace.moved.get(path, path)) or (on_disk is not None and on_disk.content == content):
            continue
        data = _bytes_of(path, content, policy)
        mutations.append(Mutation("write", path, data=data, expect=expected.get(path)))
        if path not in moves.values():
            kind = "added" if on_disk is None else "modified"
            written.append(Written(path=path, kind=kind))
            before = on_disk.content if on_disk else None
            shown = spans.get(path)
            same = shown is not None and shown.before is before and shown.after is content
            base_hash = on_disk.sha256 if on_disk else None
            entries.append(Proposed(path, before, content, base_hash, spans=shown.spans if shown and same else None))
            if on_disk is None:
                created.append(path)
        settled_content = content if policy == "preserve" else FileText(content.text, UTF8_LF)
        disk[path] = DiskFile(sha256(data), len(data), settled_content)
        files[path] = settled_content
    settled = msgspec.structs.replace(workspace, files=files, disk=disk, moved=moved)
    named = {entry.path for entry in entries}
    named.update(moves)
    return WritePlan(
        tuple(mutations),
        tuple(sorted(entries, key=lambda entry: entry.path)),
        tuple(written),
        tuple(sorted(created)),
        tuple(sorted(named)),
        settled,
        tuple(move.target for move in renames if move.temporary),
    )


def _bytes_of(path: str, content: FileText, policy: TextPolicy) -> bytes:
    try:
        return content.to_bytes(policy)
    except UnicodeEncodeError as error:
        raise BadArgumentError(
            f"{path} would hold a lone surrogate (U+{ord(error.object[error.start]):04X}), which no text file can; "
            "send the character itself",
            path=path,
            reason="malformed",
        ) from None


def require_methods(parts: PipelineParts, mutations: Sequence[Mutation]) -> None:
    """Fail before anything changes when the file system lacks a method that the mutations need."""
    for kind in ("rename", "delete"):
        if kind not in parts.gauntlet.methods and any(mutation.kind == kind for mutation in mutations):
            raise StepUnavailableError(
                f"this file system has no {kind} method, which the change needs; leave {kind}s out", step="write"
            )


def require_writable(parts: PipelineParts, step: str, plan: WritePlan) -> None:
    """Refuse before anybody is asked what could not land: missing methods, closed contents, unsaved buffers."""
    require_methods(parts, plan.mutations)
    try:
        for entry in plan.entries:
            if entry.after is not None:
                parts.gauntlet.judge_text(entry.path, entry.after.text)
    except DevToolsError as error:
        raise error.at(step=step) from None
    require_clean_buffers(parts, step, plan.targets)


def require_clean_buffers(parts: PipelineParts, step: str, paths: Sequence[str]) -> None:
    """Refuse to write under a person's unsaved text (SPEC 3.8.4)."""
    if parts.buffers is None:
        return
    dirty = parts.buffers.dirty(paths)
    if dirty:
        raise ConflictError(
            f"{step}: {', '.join(dirty)} has unsaved changes in an attached editor; ask the person to save or discard "
            "them, then read the file again",
            reason="dirtyInEditor",
            step=step,
            paths=dirty,
            path=dirty[0],
        )


async def land(
    parts: PipelineParts,
    who: PlanIdentity,
    step: str,
    permit: Permit,
    plan: WritePlan,
    landing: Landing,
    foretell: Callable[[], None] | None = None,
) -> None:
    """Carry a write plan out; a failure names in `written` what had landed.

    A cancellation does not interrupt the gauntlet's commit: what landed is recorded, then the cancellation goes on.
    `foretell` may be called while the disk is waited for, when the plan is a light one.
    """
    if not plan.mutations:
        return
    ahead = Ahead(plan.entries, parts.line_counter, announced=parts.observer is not None, then=foretell)
    landing.ahead = ahead
    await ahead.begin()
    require_clean_buffers(parts, step, plan.targets)
    # A cycle of renames passes through a name that nobody authored; it belongs to the approved moves.
    covered = (
        msgspec.structs.replace(permit, may_create=(*permit.may_create, *plan.passing)) if plan.passing else permit
    )
    raw: list[Mutation] = []
    try:
        waiting = ahead.work if ahead.light else None
        await parts.gauntlet.commit(covered, plan.mutations, raw.append, waiting=waiting)
    except DevToolsError as error:
        landing.written.extend(_written_of(mutation, plan) for mutation in raw)
        if landing.written:
            error.written = [_written_to_wire(entry) for entry in landing.written]
        _name_stranded(error, plan, raw)
        raise error.at(step=step) from error.__cause__
    except asyncio.CancelledError:
        if len(raw) == len(plan.mutations):
            _landed(parts, who, step, plan, landing)
        else:
            landing.written.extend(_written_of(mutation, plan) for mutation in raw)
        raise
    _landed(parts, who, step, plan, landing)


def _landed(parts: PipelineParts, who: PlanIdentity, step: str, plan: WritePlan, landing: Landing) -> None:
    landing.written.extend(plan.written)
    if parts.observer is not None and landing.ahead is not None:
        parts.observer.landed(who, step, landing.ahead.files(), plan.written)


def _name_stranded(error: DevToolsError, plan: WritePlan, raw: Sequence[Mutation]) -> None:
    """Say which file was left under the temporary name of a broken cycle of renames (SPEC 3.7.1)."""
    arrived = {mutation.path: mutation.source for mutation in raw if mutation.kind == "rename"}
    left = {mutation.source for mutation in raw if mutation.kind == "rename"}
    for name in plan.passing:
        if name in arrived and name not in left:
            error.message += f"; {arrived[name]} was left under the name {name}"
            error.args = (error.message,)


def _written_of(mutation: Mutation, plan: WritePlan) -> Written:
    if mutation.kind == "rename":
        return Written(path=mutation.path, kind="renamed", from_=mutation.source)
    if mutation.kind == "delete":
        return Written(path=mutation.path, kind="deleted")
    return Written(path=mutation.path, kind="added" if mutation.path in plan.created else "modified")


def _written_to_wire(entry: Written) -> dict[str, str]:
    fields = {"path": entry.path, "kind": entry.kind, "from": entry.from_}
    return {key: value for key, value in fields.items() if value is not None}


def normalized_by(plan: WritePlan, policy: TextPolicy) -> list[Normalized]:
    """Which files a write rewrote beyond the change itself."""
    return Proposal(plan.settled, plan.entries).normalized(policy)

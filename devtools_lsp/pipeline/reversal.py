"""Undo: from the mutations that a journalled file system offers to what a person is shown and what is landed.

The file system says how a plan can be taken back; this module turns that into a reversal with its diff, sends it
through the guarded door, and tells what was left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from devtools_lsp.core.changeset import Preview
from devtools_lsp.core.diagnostics import notice
from devtools_lsp.core.result import Change, Result, Written
from devtools_lsp.core.workspace import DiskFile, Workspace
from devtools_lsp.errors import BadArgumentError, DevToolsError, StepUnavailableError
from devtools_lsp.pipeline.guarded import Caller, Guarded, Reversal, written_of
from devtools_lsp.pipeline.loading import decode_file, read_present
from devtools_lsp.pipeline.off_loop import ENTRY, off_loop
from devtools_lsp.pipeline.parts import PipelineParts
from devtools_lsp.pipeline.preview import diff_of
from devtools_lsp.pipeline.proposal import Proposal, Proposed
from devtools_lsp.ports import Decision, Mutation

_log = logging.getLogger(__name__)


class Undoing(Protocol):
    """How to take a plan back, as a file system says it."""

    @property
    def plan(self) -> str:
        """The plan that is taken back."""
        ...

    @property
    def mutations(self) -> tuple[Mutation, ...]:
        """What takes it back, in order."""
        ...

    @property
    def conflicts(self) -> Mapping[str, str]:
        """Path to why it is left alone."""
        ...


@runtime_checkable
class UndoableFileSystem(Protocol):
    """A file system that keeps before-images."""

    async def undo_plan(self, plan: str | None = None) -> Undoing:
        """How to take a plan back, by default the last; raises BadArgumentError when it is not kept."""
        ...

    async def mark_undone(self, plan: str, by: str) -> None:
        """Note that plan `by` takes a plan back: before it lands, from when it counts, and once more afterwards."""
        ...


async def undo(parts: PipelineParts, guarded: Guarded, plan: str | None, caller: Caller) -> Result:
    """Take a plan back where its files still hold what it wrote; the rest is named in a warning and not touched."""
    guarded.require_writable("undo")
    file_system = parts.file_system
    if not isinstance(file_system, UndoableFileSystem):
        raise StepUnavailableError("this file system keeps no before-images, so nothing can be undone", step="undo")
    try:
        undoing = await file_system.undo_plan(plan)
    except BadArgumentError as error:
        raise error.at(step="undo") from None
    files = [mutation for mutation in undoing.mutations if mutation.kind != "rmdir"]
    reversal = await _reversal(parts, undoing, undoing.mutations, await _entries(parts, files))
    await file_system.mark_undone(undoing.plan, caller.who.plan)
    result = await guarded.undo(reversal, {"plan": plan} if plan is not None else {}, caller)
    if result.written:
        try:
            await file_system.mark_undone(undoing.plan, caller.who.plan)
        except DevToolsError as error:
            # It landed and counts already; this second note only outlasts the first one's record.
            _log.warning("the undo of %s could not be noted once more: %s", undoing.plan, error.message)
    if not undoing.conflicts:
        return result
    warnings = [
        notice(f"undo: {path} was left alone: {why}", severity="warning", path=path, rule="undo")
        for path, why in undoing.conflicts.items()
    ]
    return msgspec.structs.replace(result, diagnostics=[*result.diagnostics, *warnings])


async def _reversal(
    parts: PipelineParts, undoing: Undoing, mutations: Sequence[Mutation], entries: Sequence[Proposed]
) -> Reversal:
    """A reversal as it is shown, or as a person took it: everything that is told of it comes from the same entries."""
    proposal = Proposal(Workspace(), tuple(entries))
    written = written_of(mutations)

    async def preview() -> Preview:
        return await off_loop(proposal.weight, diff_of, parts, proposal)

    async def decided(decision: Decision) -> Reversal:
        if not decision.edited and not decision.dropped:
            return reversal
        taken = (await off_loop(proposal.weight, proposal.decided, decision)).entries
        return await _reversal(parts, undoing, _taken(mutations, entries, taken), taken)

    reversal = Reversal(
        plan=undoing.plan,
        mutations=tuple(mutations),
        written=written,
        changes=await off_loop(proposal.weight, _counted, parts, written, entries),
        preview=preview,
        decided=decided,
        landed=await off_loop(proposal.weight, lambda: tuple(entry.to_landed_file() for entry in entries)),
        kept=undoing.conflicts,
    )
    return reversal


def _taken(mutations: Sequence[Mutation], shown: Sequence[Proposed], taken: Sequence[Proposed]) -> list[Mutation]:
    """The mutations that carry out what a person took of a reversal.

    What they left as it was shown goes through as it is, bytes, mode and before-image included; a text of their own is
    written as such.
    """
    before = {entry.path: entry for entry in shown}
    after = {entry.path: entry for entry in taken}
    kept: list[Mutation] = []
    modes: dict[str, int | None] = {}
    for mutation in mutations:
        if mutation.kind == "rmdir":
            continue
        if mutation.kind == "rename" or after.get(mutation.path) == before[mutation.path]:
            kept.append(mutation)
        else:
            modes[mutation.path] = mutation.mode
    for path, entry in sorted(after.items()):
        if entry != before[path] and entry.after is not None and entry.after != entry.before:
            data = entry.after.to_bytes("preserve")
            kept.append(Mutation("write", path, data=data, expect=entry.base_hash, mode=modes.get(path)))
    return [*kept, *(mutation for mutation in mutations if mutation.kind == "rmdir")]


async def _entries(parts: PipelineParts, mutations: Sequence[Mutation]) -> list[Proposed]:
    """Each file's before and after, as text where it is text."""
    moved = {mutation.path: mutation.source for mutation in mutations if mutation.kind == "rename"}
    current = await read_present(parts, sorted({moved.get(m.path) or m.path for m in mutations}))
    weight = sum(map(len, current.values())) + sum(len(m.data) + ENTRY for m in mutations)
    return await off_loop(weight, _compared, mutations, moved, current)


def _compared(
    mutations: Sequence[Mutation], moved: Mapping[str, str | None], current: Mapping[str, bytes]
) -> list[Proposed]:
    before = {path: _text_of(path, data) for path, data in current.items()}
    entries: dict[str, Proposed] = {}
    for mutation in mutations:
        source = moved.get(mutation.path)
        known = before.get(source or mutation.path)
        old = known.content if known is not None else None
        base = known.sha256 if known is not None else None
        if mutation.kind == "rename":
            entries[mutation.path] = Proposed(mutation.path, old, old, base, source)
        elif mutation.kind == "delete":
            entries[mutation.path] = Proposed(mutation.path, old, None, base)
        else:
            after = _text_of(mutation.path, mutation.data)
            entries[mutation.path] = Proposed(
                mutation.path, old, after.content if after is not None else None, base, source
            )
    return [entries[path] for path in sorted(entries)]


def _text_of(path: str, data: bytes) -> DiskFile | None:
    """A file that is not text has no diff; undo still restores its bytes."""
    try:
        return decode_file(path, data)
    except BadArgumentError:
        return None


def _counted(parts: PipelineParts, written: Sequence[Written], entries: Sequence[Proposed]) -> tuple[Change, ...]:
    """The changes with their line counts, which are absent where somebody's file is no text (I12)."""
    texts = {entry.path: (entry.before, entry.after) for entry in entries}
    found: list[Change] = []
    for entry in written:
        change = Change(path=entry.path, kind=entry.kind, from_=entry.from_)
        before, after = texts[entry.path]
        known = (before is not None or entry.kind == "added") and (after is not None or entry.kind == "deleted")
        if parts.line_counter is not None and known:
            added, removed = parts.line_counter(before.text if before else "", after.text if after else "")
            change = msgspec.structs.replace(change, added=added, removed=removed)
        found.append(change)
    return tuple(found)

"""Engines that change the disk themselves: what they may touch, and what they really did (SPEC 3.10).

Owns the façade, the snapshots around a run and the comparison. The disk is the truth: an engine's own account
is compared with what was found and never believed instead of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from devtools_lsp.core.delta import Delta
from devtools_lsp.core.diagnostics import notice
from devtools_lsp.core.hunks import changed_ranges
from devtools_lsp.core.result import ChangeKind, Unreadable, Written
from devtools_lsp.core.workspace import FileText, sha256
from devtools_lsp.errors import BadArgumentError, DevToolsError, PolicyError, StepFailedError
from devtools_lsp.paths import PathPattern, is_pattern
from devtools_lsp.pipeline import acquire
from devtools_lsp.pipeline.judging import ask_engine, engine_call
from devtools_lsp.pipeline.loading import decode_file
from devtools_lsp.pipeline.parts import PipelineParts
from devtools_lsp.pipeline.selection import EngineStep, matches_any
from devtools_lsp.pipeline.stamping import Stamper
from devtools_lsp.pipeline.steps import CompiledStep
from devtools_lsp.ports import UNCHECKED, Access, Candidate, Capability, LandedFile, Mutation, Permit

if TYPE_CHECKING:
    from devtools_lsp.pipeline.runtime import Execution

READ_BATCH = 200
CLOSED = "closed"
"""What a snapshot holds in place of a hash where reading is refused: coming and going is seen, a change is not."""


@dataclass(slots=True)
class PipelineFacade:
    """The façade of one in-place run: scope, `needs` and the gauntlet stand between the engine and the disk."""

    parts: PipelineParts
    engine_id: str
    capability: Capability
    permit: Permit
    selectors: tuple[str, ...] | None
    withheld: frozenset[str]
    moves: dict[str, str] = field(default_factory=dict[str, str])
    created: set[str] = field(default_factory=set[str])

    @property
    def scope(self) -> tuple[str, ...]:
        """The patterns that bound every call."""
        return self.capability.scope

    async def read(self, path: str) -> bytes:
        """A file's bytes; inside the scope only."""
        return await self.parts.file_system.read(self.parts.translator.to_adapter(await self._readable(path)))

    async def exists(self, path: str) -> bool:
        """Whether something is there; inside the scope only."""
        return await acquire.exists(self.parts, await self._readable(path))

    async def write(self, path: str, data: bytes) -> None:
        """Replace a file of the step, or create one where nothing is."""
        path = await self._open(path, "write")
        if not await acquire.exists(self.parts, path):
            # Expecting an absent file makes the gauntlet enforce that nothing came there meanwhile.
            await self._commit(Mutation("write", path, data=data, expect=None))
            self.created.add(path)
        elif self._is_of_the_step(path):
            await self._commit(Mutation("write", path, data=data, expect=UNCHECKED))
        else:
            raise self._taken(path)

    async def delete(self, path: str) -> None:
        """Delete a file of the step."""
        self._needs("delete")
        path = await self._open(path, "delete")
        await self._require_of_the_step(path)
        await self._commit(Mutation("delete", path, expect=UNCHECKED))

    async def rename(self, source: str, target: str) -> None:
        """Move a file of the step to where nothing is."""
        self._needs("rename")
        source, target = await self._open(source, "delete"), await self._open(target, "create")
        await self._require_of_the_step(source)
        if await acquire.exists(self.parts, target):
            raise self._taken(target)
        await self._commit(Mutation("rename", target, source=source, expect=UNCHECKED))
        origin = next((old for old, new in self.moves.items() if new == source), source)
        self.moves[origin] = target

    async def mkdir(self, path: str) -> None:
        """Make a directory."""
        self._needs("mkdir")
        await self._commit(Mutation("mkdir", self._bounded(path, directory=True), expect=UNCHECKED))

    def _is_of_the_step(self, path: str) -> bool:
        """Whether the step was approved for this file, or the engine brought it here itself."""
        return path in self.permit.targets or path in self.created or path in self.moves.values()

    async def _require_of_the_step(self, path: str) -> None:
        """What may be created says nothing about what may go: only the files that the approver saw may."""
        if not self._is_of_the_step(path) and await acquire.exists(self.parts, path):
            raise StepFailedError(
                f"engine {self.engine_id}: {path} is not one of the step's files; name it in the step's paths",
                reason="notAcquired",
                path=path,
                retry="no",
            )

    def _taken(self, path: str) -> StepFailedError:
        return StepFailedError(
            f"engine {self.engine_id}: {path} exists already and is not one of the step's files",
            reason="exists",
            path=path,
            retry="no",
        )

    async def _open(self, path: str, access: Access) -> str:
        """A path inside every bound that the gauntlet would let through, so that its verdict is the one given."""
        return await self.parts.gauntlet.screen(self._bounded(path), access)

    async def _readable(self, path: str) -> str:
        return await self.parts.gauntlet.screen(self._in_scope(path), "read")

    def _in_scope(self, path: str, *, directory: bool = False) -> str:
        relative = self.parts.gauntlet.lexical(path)
        if not _covers(self.scope, relative, directory=directory):
            raise PolicyError(
                f"engine {self.engine_id}: {relative} is outside its scope ({', '.join(self.scope)})", path=relative
            )
        return relative

    def _bounded(self, path: str, *, directory: bool = False) -> str:
        relative = self._in_scope(path, directory=directory)
        if self.selectors is not None and not _covers(self.selectors, relative, directory=directory):
            raise PolicyError(f"engine {self.engine_id}: {relative} is not among the step's paths", path=relative)
        if relative in self.withheld:
            raise PolicyError(
                f"engine {self.engine_id}: {relative} has unwritten changes; put a write step before this one",
                path=relative,
            )
        return relative

    def _needs(self, method: str) -> None:
        if method not in self.capability.needs:
            raise PolicyError(f"engine {self.engine_id} did not declare that it needs {method}")

    async def _commit(self, mutation: Mutation) -> None:
        await self.parts.gauntlet.commit(self.permit, [mutation], lambda _: None)


def _covers(entries: Sequence[str], path: str, *, directory: bool) -> bool:
    if matches_any(path, entries):
        return True
    return directory and any(PathPattern.parse(entry).may_match_below(path, dot_names=False) for entry in entries)


async def run(
    execution: Execution,
    step: CompiledStep,
    engine_step: EngineStep,
    candidate: Candidate,
    permit: Permit,
    selectors: tuple[str, ...] | None,
    fix: bool,
) -> None:
    """Run one in-place engine and take into the workspace what the disk says afterwards."""
    parts, engine_id = execution.parts, candidate.engine.id
    withheld = frozenset(execution.workspace.unwritten()) & frozenset([*candidate.paths, *execution.workspace.files])
    dirty = sorted(withheld & set(candidate.paths))
    if dirty:
        execution.diagnostics.append(
            notice(
                f"{step.step}: {', '.join(dirty)} withheld from {engine_id}: there are unwritten changes; put a write "
                "step before this one",
                severity="warning",
                rule="withheld",
            )
        )
    allowed = replace(candidate, paths=tuple(path for path in candidate.paths if path not in withheld))
    if not allowed.paths and not candidate.capability.generates:
        return
    facade = PipelineFacade(parts, engine_id, candidate.capability, permit, selectors, withheld)
    envelope = _Envelope(parts, candidate.capability.scope, selectors, frozenset(allowed.paths))
    before = await envelope.snapshot(())
    call = replace(
        engine_call(parts, engine_step, allowed, execution.workspace, execution.request.signal, fix=fix), facade=facade
    )
    execution.in_place_ran = True
    try:
        delta = await ask_engine(step.step, allowed, call, candidate.capability.run)
    except BaseException:
        # Whatever the engine did before it broke down is on the disk, so it is looked at and told.
        await asyncio.shield(_reread(execution, step, facade, envelope, before, withheld))
        raise
    found = await _reread(execution, step, facade, envelope, before, withheld)
    stamper = Stamper(parts.root, engine_id, execution.workspace.texts(), parts.translator.redact)
    execution.diagnostics.extend(stamper.stamp(delta.diagnostics, execution.workspace.files))
    execution.diagnostics.extend(stamper.warnings())
    _compare_advice(execution, step, engine_id, delta, found)


@dataclass(frozen=True, slots=True)
class _Found:
    changed: tuple[str, ...]
    added: tuple[str, ...]
    deleted: tuple[str, ...]
    moves: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Envelope:
    """The part of the tree that a run may have touched."""

    parts: PipelineParts
    scope: tuple[str, ...]
    selectors: tuple[str, ...] | None
    given: frozenset[str]

    async def snapshot(self, extra: Iterable[str]) -> dict[str, str]:
        """SHA-256 of every file there is, by path; `CLOSED` for one that may not be read, or cannot be."""
        paths: set[str] = set()
        for entry in self.scope:
            if is_pattern(entry):
                paths |= await acquire.names_matching(self.parts, PathPattern.parse(entry))
            elif await acquire.exists(self.parts, entry):
                paths.add(entry)
        if self.selectors is not None:
            paths = {path for path in paths if matches_any(path, self.selectors)}
        for path in [*self.given, *extra]:
            if await acquire.exists(self.parts, path):
                paths.add(path)
        hashes: dict[str, str] = {}
        ordered = sorted(paths)
        for start in range(0, len(ordered), READ_BATCH):
            batch = await _read_open(self.parts, ordered[start : start + READ_BATCH])
            hashes.update({path: CLOSED if data is None else sha256(data) for path, data in batch.items()})
        return hashes


async def _read_open(parts: PipelineParts, paths: Sequence[str]) -> dict[str, bytes | None]:
    """The bytes of those of the paths that are there; None where reading is refused.

    A scope is a part of the tree and not a list of files to read: a secret in it is no reason to break down.
    """
    found: dict[str, bytes | None] = {}
    for path in paths:
        try:
            found[path] = await parts.file_system.read(parts.translator.to_adapter(path))
        except FileNotFoundError:
            continue
        except (OSError, DevToolsError):
            found[path] = None
    return found


async def _reread(
    execution: Execution,
    step: CompiledStep,
    facade: PipelineFacade,
    envelope: _Envelope,
    before: Mapping[str, str],
    withheld: frozenset[str],
) -> _Found:
    """Compare the disk with the snapshot, and take the difference into the workspace and the bookkeeping."""
    after = await envelope.snapshot([*facade.moves, *facade.moves.values()])
    moves = {old: new for old, new in facade.moves.items() if old not in after and new in after}
    added = sorted(path for path in after if path not in before and path not in moves.values())
    deleted = sorted(path for path in before if path not in after and path not in moves)
    changed = sorted(path for path in after if path in before and before[path] != after[path])
    contents = await _read_open(execution.parts, [*changed, *added, *moves.values()])
    old_texts = execution.workspace.texts()
    _take(execution, contents, changed, added, deleted, moves, withheld)
    landed: list[LandedFile] = []
    for path in sorted([*changed, *added, *deleted, *moves.values()]):
        source = next((old for old, new in moves.items() if new == path), None)
        kind: ChangeKind = (
            "renamed" if source else "added" if path in added else "deleted" if path in deleted else "modified"
        )
        execution.landing.written.append(Written(path=path, kind=kind, from_=source))
        text = execution.workspace.files.get(path)
        ranges = tuple(changed_ranges(old_texts.get(source or path, ""), text.text)) if text is not None else ()
        landed.append(LandedFile(path, kind, source, ranges))
    if landed and execution.parts.observer is not None:
        written = execution.landing.written[-len(landed) :]
        execution.parts.observer.landed(execution.request.who, step.step, landed, written)
    return _Found(tuple(changed), tuple(added), tuple(deleted), moves)


def _take(
    execution: Execution,
    contents: Mapping[str, bytes | None],
    changed: Sequence[str],
    added: Sequence[str],
    deleted: Sequence[str],
    moves: Mapping[str, str],
    withheld: frozenset[str],
) -> None:
    workspace = execution.workspace
    known_moves = {old: new for old, new in moves.items() if old in workspace.files}
    if known_moves:
        workspace = workspace.renamed(known_moves)
    disk = {path: known for path, known in workspace.disk.items() if path not in deleted and path not in moves}
    gone = [path for path in deleted if path in workspace.files and path not in withheld]
    workspace = workspace.without(gone) if gone else workspace
    updates: dict[str, FileText] = {}
    for path in [*changed, *added, *moves.values()]:
        if path in withheld or (path in changed and path not in workspace.files) or path not in contents:
            # A file that existed but was never acquired is not admitted.
            continue
        data = contents[path]
        try:
            if data is None:
                raise BadArgumentError(f"{path} may not be read", reason="protected", path=path)
            disk[path] = decode_file(path, data)
        except BadArgumentError as error:
            execution.unreadable.append(Unreadable(path=path, reason=error.message))
            workspace = workspace.without([path])
            disk.pop(path, None)
            continue
        updates[path] = disk[path].content
    moved = {path: source for path, source in workspace.moved.items() if path not in known_moves.values()}
    execution.workspace = msgspec.structs.replace(workspace.with_files(updates), disk=disk, moved=moved)


def _compare_advice(execution: Execution, step: CompiledStep, engine_id: str, delta: Delta, found: _Found) -> None:
    """The engine's own account is advice: differences make one warning, never a failure."""
    differences: list[str] = []
    for name, claimed, real in (
        ("changed", set(delta.changed), set(found.changed)),
        ("added", set(delta.added), set(found.added)),
        ("deleted", set(delta.deleted), set(found.deleted)),
        ("renamed", set(delta.renamed.items()), set(found.moves.items())),
    ):
        if claimed != real and (claimed or name != "changed"):
            differences.append(f"{name}: it said {len(claimed)}, the disk says {len(real)}")
    silent = not (delta.changed or delta.added or delta.deleted or delta.renamed)
    if differences and not silent:
        execution.diagnostics.append(
            notice(
                f"{step.step}: the account of {engine_id} differs from the disk ({'; '.join(differences)}); "
                "the disk was taken",
                severity="warning",
                rule="engine",
            )
        )

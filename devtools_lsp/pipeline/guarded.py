"""The one way in for what is not a plan of steps: whole files, replacements, searches, commands and undo.

Every call asks the gate as SPEC 4.6 says and changes files through the same runtime, gauntlet and bookkeeping as
plans do. What a command does to the disk it does itself: it is gated and reported, and nothing more is promised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from devtools_lsp.core.changeset import Preview
from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.core.result import Change, DecisionReport, Result, Written
from devtools_lsp.errors import CallCancelledError, ConflictError, DevToolsError, ReadOnlyError
from devtools_lsp.pipeline.asking import Asker, report_decision
from devtools_lsp.pipeline.parts import PipelineParts, PlanRequest, Witness
from devtools_lsp.pipeline.runtime import execute
from devtools_lsp.pipeline.steps import (
    STEP_ARGUMENTS,
    CompiledStep,
    ReplaceArguments,
    StepArguments,
    StepName,
    WriteFileArguments,
    validate_arguments,
)
from devtools_lsp.pipeline.writing import require_clean_buffers
from devtools_lsp.ports import Access, Cancellation, Decision, LandedFile, Mutation, PlanIdentity

Answer = TypeVar("Answer")


class Caller(msgspec.Struct, frozen=True):
    """Who calls, under which plan id, and the switch that cancels the call; `foretold` as in `PlanRequest`."""

    who: PlanIdentity
    signal: Cancellation = msgspec.field(default_factory=Cancellation)
    foretold: Callable[[Result], None] | None = None


class Reversal(msgspec.Struct, frozen=True):
    """What an undo would do: `mutations` in order, directories that empty last, and what a person is shown of it."""

    plan: str
    mutations: tuple[Mutation, ...]
    written: tuple[Written, ...]
    changes: tuple[Change, ...]
    preview: Callable[[], Awaitable[Preview]]
    decided: Callable[[Decision], Awaitable[Reversal]]
    """What is left of it once a person dropped hunks or gave texts of their own."""
    landed: tuple[LandedFile, ...] = ()
    kept: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Files that do not hold what the plan wrote any more, each with why; nothing of theirs is touched."""


class Guarded:
    """Guarded access to one pipeline's root."""

    def __init__(self, parts: PipelineParts, *, read_only: bool = False) -> None:
        self._parts = parts
        self._read_only = read_only

    async def read_file(
        self,
        path: str,
        start: int,
        end: int | None,
        *,
        authored: Mapping[str, Any],
        caller: Caller,
        witness: Witness | None = None,
    ) -> Result:
        """A window of a file; the gate sees acquire and read_lines. Lines are 1-based, `end` inclusive."""
        values: dict[str, Any] = {"path": path, "start": start}
        arguments = validate_arguments(
            "read_file", STEP_ARGUMENTS["read_lines"], values if end is None else {**values, "end": end}
        )
        step = CompiledStep(0, "read_lines", authored, arguments)
        request = PlanRequest((), {}, (step,), caller.who, caller.signal, literals=(path,), witness=witness)
        return await execute(self._parts, request)

    async def edit_file(
        self,
        path: str,
        old: str,
        new: str,
        *,
        replace_all: bool,
        authored: Mapping[str, Any],
        caller: Caller,
        witness: Witness | None = None,
    ) -> Result:
        """Replace a text in one file and write it; the gate sees acquire and edit."""
        arguments = validate_arguments(
            "edit_file",
            ReplaceArguments,
            {"path": path, "old_string": old, "new_string": new, "replace_all": replace_all},
        )
        return await self._persist("edit", arguments, authored, caller, literals=(path,), witness=witness)

    async def write_file(
        self, path: str, content: str, *, authored: Mapping[str, Any], caller: Caller, witness: Witness | None = None
    ) -> Result:
        """Give a file a whole new content, creating it where it is missing; the gate sees acquire (if it exists)
        and write_file. A witness may refuse it for what was found.
        """
        arguments = validate_arguments("write_file", WriteFileArguments, {"path": path, "content": content})
        return await self._persist("write_file", arguments, authored, caller, optional=(path,), witness=witness)

    async def _persist(
        self,
        step: StepName,
        arguments: StepArguments,
        authored: Mapping[str, Any],
        caller: Caller,
        *,
        literals: tuple[str, ...] = (),
        optional: tuple[str, ...] = (),
        witness: Witness | None = None,
    ) -> Result:
        self.require_writable(step)
        compiled = CompiledStep(0, step, authored, arguments)
        request = PlanRequest(
            paths=(),
            acquire_args={},
            steps=(compiled,),
            who=caller.who,
            signal=caller.signal,
            persists=True,
            literals=literals,
            optional=optional,
            witness=witness,
            foretold=caller.foretold,
        )
        return await execute(self._parts, request)

    async def search(self, args: Mapping[str, Any], run: Callable[[], Awaitable[Answer]], caller: Caller) -> Answer:
        """Ask `search` once, then search."""
        answer, _ = await self._ask_then("search", args, run, caller)
        return answer

    async def command(
        self, args: Mapping[str, Any], run: Callable[[], Awaitable[Answer]], caller: Caller
    ) -> tuple[Answer, DecisionReport | None]:
        """Ask `bash` once, without targets, then run the command; also returns what a person said of it."""
        self.require_writable("bash")
        return await self._ask_then("bash", args, run, caller)

    async def _ask_then(
        self, step: str, args: Mapping[str, Any], run: Callable[[], Awaitable[Answer]], caller: Caller
    ) -> tuple[Answer, DecisionReport | None]:
        try:
            decision, _ = await Asker(self._parts, caller.who, caller.signal).ask(0, step, args, targets=())
            return await run(), report_decision(decision, None)
        except DevToolsError as error:
            self._report_failure(caller, step, error)
            raise error.at(step=step) from error.__cause__

    async def undo(self, reversal: Reversal, authored: Mapping[str, Any], caller: Caller) -> Result:
        """Ask `undo` once about a reversal, then land it through the gauntlet like any other write."""
        self.require_writable("undo")
        parts = self._parts
        # The directories that go are parts of paths that are judged and shown already.
        files = [mutation for mutation in reversal.mutations if mutation.kind != "rmdir"]
        paths = _paths_of(files)
        landed: list[Mutation] = []
        taken = reversal
        try:
            if not files:
                kept = "; ".join(f"{path}: {why}" for path, why in reversal.kept.items())
                raise ConflictError(
                    f"undo: no file of plan {reversal.plan} still holds what the plan wrote"
                    f"{f' ({kept})' if kept else ''}; nothing was changed. Asking again changes nothing: put the files "
                    "back as the plan left them, or take the change back by hand; other plans are undone by their ids, "
                    "which `devtools-lsp log` shows",
                    reason="stale",
                    retry="afterCorrection",
                    paths=tuple(reversal.kept),
                )
            await parts.gauntlet.screen_many([(mutation.path, _access(mutation)) for mutation in files])
            require_clean_buffers(parts, "undo", paths)
            created = [m.path for m in reversal.mutations if m.kind == "write" and m.expect is None]
            decision, permit = await Asker(parts, caller.who, caller.signal).ask(
                0, "undo", authored, targets=paths, may_create=created, diff=reversal.preview, preview=reversal.preview
            )
            taken = await reversal.decided(decision)
            if taken.written:
                require_clean_buffers(parts, "undo", paths)
                await parts.gauntlet.commit(permit, taken.mutations, landed.append)
        except DevToolsError as error:
            if landed:
                error.written = msgspec.to_builtins(written_of(landed))
            self._report_failure(caller, "undo", error)
            raise error.at(step="undo") from error.__cause__
        except asyncio.CancelledError:
            if not landed:
                raise
            # A commit that has begun is finished: what it did is told to everybody, the caller included.
            if parts.observer is not None:
                parts.observer.landed(caller.who, "undo", taken.landed, taken.written)
            written = written_of(landed)
            raise CallCancelledError(
                f"{caller.signal.reason or 'the undo was stopped'}; {len(written)} file(s) had been written",
                step="undo",
                written=msgspec.to_builtins(written),
            ) from None
        if parts.observer is not None and taken.written:
            parts.observer.landed(caller.who, "undo", taken.landed, taken.written)
        return self.result(
            caller,
            written=taken.written,
            changes=taken.changes,
            atomic=parts.gauntlet.atomic,
            decision=report_decision(decision, None),
        )

    def result(
        self,
        caller: Caller,
        *,
        written: Sequence[Written] = (),
        changes: Sequence[Change] = (),
        diagnostics: Sequence[Diagnostic] = (),
        atomic: bool = False,
        decision: DecisionReport | None = None,
    ) -> Result:
        """The one result shape, for what is not a plan of steps."""
        return Result(
            plan=caller.who.plan,
            diagnostics=list(diagnostics),
            changes=list(changes),
            reads={},
            written=list(written),
            unwritten=[],
            unreadable=[],
            normalized=[],
            ok=not any(diagnostic.severity == "error" for diagnostic in diagnostics),
            line_counts_available=self._parts.line_counter is not None,
            atomic=atomic,
            engines=[],
            decision=decision,
        )

    def require_writable(self, step: str) -> None:
        """Raise ReadOnlyError in read-only mode."""
        if self._read_only:
            raise ReadOnlyError(f"{step} changes files and this workspace is read-only", step=step)

    def _report_failure(self, caller: Caller, step: str, error: DevToolsError) -> None:
        if self._parts.observer is not None:
            self._parts.observer.failed(caller.who, error.step or step, error.code, error.paths or [])


def _access(mutation: Mutation) -> Access:
    return "delete" if mutation.kind == "delete" else "restore" if mutation.restores else "write"


def written_of(mutations: Sequence[Mutation]) -> tuple[Written, ...]:
    """What mutations made of each file, once a file: one that moves back and gets its old text has moved."""
    arrived = {mutation.path for mutation in mutations if mutation.kind == "rename"}
    found: list[Written] = []
    for mutation in mutations:
        if mutation.kind == "rename":
            found.append(Written(path=mutation.path, kind="renamed", from_=mutation.source))
        elif mutation.kind == "delete":
            found.append(Written(path=mutation.path, kind="deleted"))
        elif mutation.kind == "write" and mutation.path not in arrived:
            found.append(Written(path=mutation.path, kind="added" if mutation.expect is None else "modified"))
    return tuple(found)


def _paths_of(mutations: Sequence[Mutation]) -> list[str]:
    named = {mutation.path for mutation in mutations} | {m.source for m in mutations if m.source is not None}
    return sorted(named)

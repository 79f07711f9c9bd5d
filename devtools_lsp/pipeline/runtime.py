"""One execution of a plan, from acquisition to result. Every door ends here.

Owns the order of things (SPEC 4.3), the workspace as it moves from step to step, and what the result says. The
steps themselves are in `text_steps`, `engine_steps` and `write_steps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from devtools_lsp.core.diagnostics import Diagnostic, notice
from devtools_lsp.core.result import Change, DecisionReport, EngineUse, Normalized, Read, Result, Unreadable
from devtools_lsp.core.workspace import Workspace
from devtools_lsp.errors import CallCancelledError, DevToolsError, StepFailedError
from devtools_lsp.pipeline import engine_steps, text_steps, write_steps
from devtools_lsp.pipeline.asking import Asker
from devtools_lsp.pipeline.judging import Judgement, summarize, told
from devtools_lsp.pipeline.loading import load
from devtools_lsp.pipeline.off_loop import off_loop
from devtools_lsp.pipeline.parts import PipelineParts, PlanRequest, StepContext
from devtools_lsp.pipeline.prepare import Prepared, prepare
from devtools_lsp.pipeline.stamping import rescope
from devtools_lsp.pipeline.steps import CompiledStep
from devtools_lsp.pipeline.stopping import StoppedError, Stopping
from devtools_lsp.pipeline.writing import Landing, WritePlan


class Execution(msgspec.Struct):
    """The moving state of one plan; steps read and replace `workspace` and append to the rest."""

    parts: PipelineParts
    request: PlanRequest
    prepared: Prepared
    asker: Asker
    workspace: Workspace = msgspec.field(default_factory=Workspace)
    diagnostics: list[Diagnostic] = msgspec.field(default_factory=list[Diagnostic])
    reads: dict[str, Read] = msgspec.field(default_factory=dict[str, Read])
    landing: Landing = msgspec.field(default_factory=Landing)
    normalized: list[Normalized] = msgspec.field(default_factory=list[Normalized])
    unreadable: list[Unreadable] = msgspec.field(default_factory=list[Unreadable])
    engines: dict[str, EngineUse] = msgspec.field(default_factory=dict[str, EngineUse])
    judgements: list[Judgement] = msgspec.field(default_factory=list[Judgement])
    decision: DecisionReport | None = None
    in_place_ran: bool = False
    stash: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    current: str | None = None
    """The step that runs, or ran last."""
    foretold: Foretold | None = None

    def foretell(self, plan: WritePlan, normalized: Sequence[Normalized]) -> None:
        """Work out the result of a call whose only step is landing, as it will be if all of the plan lands."""
        if not self.request.persists:
            return
        landing = Landing([*self.landing.written, *plan.written], self.landing.ahead)
        expected = msgspec.structs.replace(
            self, workspace=plan.settled, landing=landing, normalized=[*self.normalized, *normalized]
        )
        self.foretold = Foretold(_sources(expected), _result(expected))
        if self.request.foretold is not None:
            self.request.foretold(self.foretold.result)


class Foretold(msgspec.Struct, frozen=True):
    """A result that was worked out before its plan had landed, and what it was made of."""

    sources: tuple[object, ...]
    result: Result


async def execute(parts: PipelineParts, request: PlanRequest) -> Result:
    """Run a plan to its end. Raises the taxonomy's errors; an error after bytes landed lists them in `written`."""
    started: list[Execution] = []
    try:
        try:
            async with Stopping(request.signal):
                return await _run(parts, request, started)
        except StoppedError:
            raise _cancelled(request, started) from None
    except DevToolsError as error:
        if parts.observer is not None:
            parts.observer.failed(request.who, error.step or "plan", error.code, _paths_of(error))
        raise


def _cancelled(request: PlanRequest, started: Sequence[Execution]) -> CallCancelledError:
    written = [msgspec.to_builtins(entry) for execution in started for entry in execution.landing.written]
    landed = f"; {len(written)} file(s) had been written" if written else "; nothing was written"
    step = next((execution.current for execution in started), None) or next((op.step for op in request.steps), None)
    return CallCancelledError(f"{request.signal.reason}{landed}", step=step, written=written or None)


def _paths_of(error: DevToolsError) -> list[str]:
    return error.paths if error.paths is not None else [error.path] if error.path is not None else []


async def _run(parts: PipelineParts, request: PlanRequest, started: list[Execution]) -> Result:
    prepared = await prepare(parts, request)
    locks = parts.locks.holder(prepared.mutates)
    execution = Execution(parts, request, prepared, Asker(parts, request.who, request.signal, locks))
    started.append(execution)
    await locks.take()
    try:
        if prepared.resolved.targets or request.paths or not request.optional:
            await _wrapped(execution, 0, "acquire", request.acquire_args, partial(_acquire, execution))
        for step in prepared.steps:
            await _wrapped(execution, step.index + 1, step.step, step.args, partial(_step, execution, step))
    except DevToolsError as error:
        _tell_what_landed(error, execution)
        raise
    finally:
        locks.release()
    foretold = execution.foretold
    if foretold is not None and foretold.sources == _sources(execution):
        result = foretold.result
    else:
        weight = sum(len(content.text) for content in execution.workspace.files.values())
        result = await off_loop(weight, _result, execution)
    _publish(execution)
    if request.witness is not None:
        request.witness.finished(execution.workspace)
    return result


def _tell_what_landed(error: DevToolsError, execution: Execution) -> None:
    """Nothing is half-told: an error after bytes landed lists them (SPEC section 9)."""
    if execution.landing.written:
        error.written = [msgspec.to_builtins(entry) for entry in execution.landing.written]


async def _wrapped(execution: Execution, index: int, step: str, args: Any, run: Any) -> None:
    """Run one step; what it told is judged by the workspace that it leaves behind."""
    execution.current = step
    told_before = len(execution.diagnostics)
    if execution.parts.middleware:
        await _inside_middleware(execution, index, step, args, run)
    else:
        await run()
    if len(execution.diagnostics) > told_before:
        # `outOfScope` is what the workspace is once the step's effects are in, whatever later steps make of it (I9).
        execution.diagnostics[told_before:] = rescope(execution.diagnostics[told_before:], execution.workspace.files)


async def _inside_middleware(execution: Execution, index: int, step: str, args: Any, run: Any) -> None:
    """Run one step inside the middleware; a stale or foreign workspace is refused (SPEC 6.2)."""
    before = execution.workspace
    acceptable: list[Workspace] = [before]

    async def innermost() -> Workspace:
        await run()
        acceptable[:] = [execution.workspace]
        return execution.workspace

    call = innermost
    for middleware in reversed(execution.parts.middleware):
        context = StepContext(execution.request.who.plan, step, index, args, before, execution.stash)

        async def wrapped(middleware: Any = middleware, inner: Any = call, context: StepContext = context) -> Workspace:
            return await middleware(context, inner)

        call = wrapped
    returned = await call()
    if returned is not acceptable[0]:
        raise StepFailedError(
            f"{step}: step middleware returned a workspace that is not the current one; it may return only what the "
            "step produced, or the workspace that it was given when it skips the step",
            step=step,
            retry="no",
        )


async def _acquire(execution: Execution) -> None:
    resolved = execution.prepared.resolved
    await execution.asker.ask(0, "acquire", execution.request.acquire_args, targets=resolved.targets)
    execution.diagnostics.extend(resolved.notices)
    targets = resolved.targets
    if execution.prepared.windowed:
        # Files that are only looked at through a window need not fit in memory.
        limit = execution.parts.bounds.max_bytes_per_file
        targets = tuple(path for path in targets if resolved.stats[path].size <= limit)
    try:
        loaded = await load(execution.parts, resolved, targets, execution.prepared.named)
        execution.workspace = Workspace.of(loaded.files)
        execution.diagnostics.extend(loaded.notices)
        if execution.request.witness is not None:
            execution.request.witness.acquired(execution.workspace)
    except DevToolsError as error:
        raise error.at(step="acquire") from error.__cause__


async def _step(execution: Execution, step: CompiledStep) -> None:
    try:
        if step.step == "read_lines":
            await text_steps.read_lines(execution, step)
        elif step.step == "write":
            await write_steps.write(execution, step)
        elif step.step in ("edit", "apply_patch", "write_file"):
            await text_steps.change_text(execution, step)
        else:
            await engine_steps.run_engines(execution, step)
    except DevToolsError as error:
        raise error.at(step=step.step) from error.__cause__


def _sources(execution: Execution) -> tuple[object, ...]:
    """All that a result is made of and that a step can change, as it is now."""
    return (
        execution.workspace,
        tuple(execution.diagnostics),
        dict(execution.reads),
        tuple(execution.landing.written),
        tuple(execution.normalized),
        tuple(execution.unreadable),
        dict(execution.engines),
        tuple(execution.judgements),
        execution.decision,
        execution.in_place_ran,
    )


def _result(execution: Execution) -> Result:
    workspace = execution.workspace
    unwritten = workspace.unwritten()
    diagnostics = list(execution.diagnostics)
    if unwritten:
        diagnostics.append(
            notice(
                f"the plan ends with {len(unwritten)} file(s) changed in memory only; add a write step to keep them",
                severity="warning",
                rule="unwritten",
            )
        )
    return Result(
        plan=execution.request.who.plan,
        diagnostics=diagnostics,
        changes=[_counted(execution, change) for change in workspace.changes()],
        reads=execution.reads,
        written=execution.landing.written,
        unwritten=unwritten,
        unreadable=execution.unreadable,
        normalized=execution.normalized,
        ok=not any(diagnostic.severity == "error" for diagnostic in diagnostics),
        line_counts_available=execution.parts.line_counter is not None,
        atomic=execution.parts.gauntlet.atomic and not execution.in_place_ran,
        engines=list(execution.engines.values()),
        delta=summarize(execution.judgements, workspace) if execution.judgements else None,
        decision=execution.decision,
    )


def _counted(execution: Execution, change: Change) -> Change:
    """A change with its line counts, which stay absent when nobody can count (I12)."""
    counter = execution.parts.line_counter
    if counter is None:
        return change
    before = execution.workspace.before(change)
    after = execution.workspace.files.get(change.path) if change.kind != "deleted" else None
    old, new = before.text if before else "", after.text if after else ""
    ahead = execution.landing.ahead
    counts = ahead.counts(change.path, old, new) if ahead is not None else None
    added, removed = counts or counter(old, new)
    return msgspec.structs.replace(change, added=added, removed=removed)


def _publish(execution: Execution) -> None:
    """Hand judgements to the observer where the text judged is the text on disk (I14)."""
    observer = execution.parts.observer
    if observer is None:
        return
    workspace = execution.workspace
    on_disk = {path: known.content.text for path, known in workspace.disk.items()}
    for judgement in execution.judgements:
        overlay = {path for path, text in judgement.texts.items() if on_disk.get(path) != text}
        overlay |= set(on_disk) - set(judgement.texts)
        # A file that was not acquired was judged beside the overlay, so its findings hold only without one.
        valid = [
            path
            for path in judgement.judged
            if (path in judgement.texts and path not in overlay) or (path not in judgement.texts and not overlay)
        ]
        if valid:
            observer.judged(
                execution.request.who,
                judgement.engine_id,
                judgement.step,
                sorted(valid),
                rescope([item for item in told(judgement, workspace) if item.path in set(valid)], workspace.files),
            )

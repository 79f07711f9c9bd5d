"""The steps that engines serve: format, lint and check.

Engines are selected before the gate is asked. A formatter or fixer that answers with texts runs once, inside the
preview if somebody asks for one, else after the approval; an in-place engine runs only after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devtools_lsp.core.changeset import Preview
from devtools_lsp.core.diagnostics import Diagnostic, Pending, notice
from devtools_lsp.core.workspace import Workspace
from devtools_lsp.pipeline import inplace
from devtools_lsp.pipeline.acquire import left_out
from devtools_lsp.pipeline.fixes import Fixed, fixed_notices
from devtools_lsp.pipeline.judging import Judgement, Transformed, judge, told, transform, uses
from devtools_lsp.pipeline.off_loop import off_loop
from devtools_lsp.pipeline.once import Once
from devtools_lsp.pipeline.prepare import select_paths
from devtools_lsp.pipeline.preview import diff_of, preview_of
from devtools_lsp.pipeline.proposal import Proposal, propose
from devtools_lsp.pipeline.selection import EngineStep, Selected, select
from devtools_lsp.pipeline.steps import CompiledStep, FormatArguments, LintArguments
from devtools_lsp.pipeline.write_steps import accept
from devtools_lsp.pipeline.writing import require_clean_buffers
from devtools_lsp.ports import Candidate, Permit

if TYPE_CHECKING:
    from devtools_lsp.pipeline.runtime import Execution


@dataclass(frozen=True, slots=True)
class _Changing:
    """What a changing engine step is about to do."""

    step: CompiledStep
    engine_step: EngineStep
    selected: Selected
    paths: tuple[str, ...]
    selectors: tuple[str, ...] | None
    fix: bool


async def run_engines(execution: Execution, step: CompiledStep) -> None:
    """Run a format, lint or check step."""
    arguments = step.arguments
    selectors = arguments.paths if isinstance(arguments, FormatArguments | LintArguments) else None
    fix = isinstance(arguments, LintArguments) and arguments.fix
    engine_step: EngineStep = "format" if step.step == "format" else "lint" if step.step == "lint" else "check"
    paths = tuple(select_paths(step.step, selectors, execution.workspace.files))
    if not paths:
        words = f"{step.step}: the plan has no files, so there was nothing to do; name them in paths"
        execution.diagnostics.append(notice(words, severity="warning", rule="skipped"))
    kept = execution.prepared.kept.get(step.index, frozenset())
    execution.diagnostics.extend(left_out(kept, "the policy denies writing them", step.step))
    judged, paths = paths, tuple(path for path in paths if path not in kept)
    selected = select(execution.parts, engine_step, paths, fix=fix)
    if engine_step == "format" or fix:
        fixed = await _change(
            execution,
            _Changing(step, engine_step, selected, paths, tuple(selectors) if selectors is not None else None, fix),
        )
        if engine_step == "lint":
            left = await _judge(
                execution, engine_step, select(execution.parts, "lint", _still_there(execution, judged))
            )
            execution.diagnostics.extend(fixed_notices(fixed, left))
        return
    await execution.asker.ask(step.index + 1, step.step, step.args, targets=paths, engines=_judges(selected))
    execution.diagnostics.extend(selected.notices)
    await _judge(execution, engine_step, selected)
    _note_silent(execution, engine_step, selected)


def _judges(selected: Selected) -> tuple[str, ...]:
    """The engines that judge without changing anything."""
    judging = [candidate for candidate in selected.candidates if not candidate.capability.in_place]
    return tuple(dict.fromkeys(candidate.engine.id for candidate in judging))


def _note_silent(execution: Execution, engine_step: EngineStep, selected: Selected) -> None:
    """An engine that only works in place does not run when nothing may change; that is said, never passed as clean."""
    reason = "it changes files in place, so it runs only with fix; nothing is known of its findings"
    for candidate in selected.candidates:
        if candidate.capability.in_place:
            engine_id = candidate.engine.id
            execution.judgements.append(
                Judgement(
                    engine_id=engine_id,
                    step=engine_step,
                    before=(),
                    after=(),
                    judged=frozenset(),
                    pending=(Pending(reason=reason, engine_id=engine_id),),
                    texts=execution.workspace.texts(),
                )
            )


def _still_there(execution: Execution, paths: tuple[str, ...]) -> list[str]:
    moved = {old: new for new, old in execution.workspace.origins.items()}
    return [moved.get(path, path) for path in paths if moved.get(path, path) in execution.workspace.files]


async def _judge(execution: Execution, engine_step: EngineStep, selected: Selected) -> list[Judgement]:
    """Ask judging engines about the workspace as it stands, and record what they say."""
    candidates = [candidate for candidate in selected.candidates if not candidate.capability.in_place]
    judgements = await judge(execution.parts, engine_step, candidates, execution.workspace, execution.request.signal)
    _note_uses(execution, candidates)
    for judgement in judgements:
        execution.diagnostics.extend(told(judgement, execution.workspace))
        execution.diagnostics.extend(judgement.warnings)
    execution.judgements.extend(judgements)
    return judgements


def _note_uses(execution: Execution, candidates: Sequence[Candidate]) -> None:
    """Record who took part, after they answered: only then is it known which version and configuration it was."""
    execution.engines.update({use.id: use for use in uses(candidates)})


async def _change(execution: Execution, change: _Changing) -> Fixed:
    """Ask about a step that may change texts, then take what its engines made of them; what they say they fixed."""
    step, selected = change.step, change.selected
    persists = execution.request.persists
    if persists or selected.in_place:
        require_clean_buffers(execution.parts, step.step, change.paths)
    made = Once(lambda: _transformed(execution, change))
    base = execution.workspace

    async def proposed() -> Proposal:
        return _proposal(base, await made.get())

    proposal = Once(proposed)
    preview = Once(lambda: _preview(execution, proposal, selected, base))

    async def diff() -> Preview:
        known = await proposal.get()
        return _with_in_place(selected, await off_loop(known.weight, diff_of, execution.parts, known))

    try:
        decision, permit = await execution.asker.ask(
            step.index + 1,
            step.step,
            {**step.args, "persists": True} if persists else step.args,
            targets=change.paths,
            may_create=_may_create(selected),
            engines=selected.engine_ids,
            in_place=selected.in_place,
            diff=diff,
            preview=preview.get,
        )
        execution.diagnostics.extend(selected.notices)
        await accept(execution, step, await proposal.get(), decision, permit)
        await _run_in_place(execution, change, permit)
        _note_uses(execution, selected.candidates)
        return (await made.get()).fixed
    finally:
        await preview.close()
        await proposal.close()
        await made.close()


async def _transformed(execution: Execution, change: _Changing) -> Transformed:
    """Run the engines that answer with texts, once."""
    return await transform(
        execution.parts,
        change.engine_step,
        [candidate for candidate in change.selected.candidates if not candidate.capability.in_place],
        execution.workspace,
        execution.request.signal,
        selectors=change.selectors,
        fix=change.fix,
    )


def _proposal(before: Workspace, made: Transformed) -> Proposal:
    notes: list[Diagnostic] = [*made.diagnostics, *made.warnings]
    return propose(before, made.workspace, moves=made.moves, notes=notes)


async def _preview(execution: Execution, proposal: Once[Proposal], selected: Selected, base: Workspace) -> Preview:
    shown = await preview_of(execution.parts, await proposal.get(), base, execution.request.signal)
    return _with_in_place(selected, shown)


def _with_in_place(selected: Selected, shown: Preview) -> Preview:
    """In-place engines never run inside a preview; that their changes are unknown is said (SPEC 4.4)."""
    unknown = [
        Pending(
            reason="changes files in place, so its changes are known only once it ran", engine_id=candidate.engine.id
        )
        for candidate in selected.candidates
        if candidate.capability.in_place
    ]
    if not unknown:
        return shown
    return Preview(
        diff=shown.diff,
        files=shown.files,
        normalized=shown.normalized,
        introduced=shown.introduced,
        resolved=shown.resolved,
        pending=[*shown.pending, *unknown],
    )


def _may_create(selected: Selected) -> list[str]:
    """The patterns within which the engines may bring files into being."""
    patterns: set[str] = set()
    for candidate in selected.candidates:
        capability = candidate.capability
        if capability.generates:
            patterns.update(capability.creates)
        if capability.in_place:
            patterns.update(capability.creates or capability.scope)
    return sorted(patterns)


async def _run_in_place(execution: Execution, change: _Changing, permit: Permit) -> None:
    for candidate in change.selected.candidates:
        if candidate.capability.in_place and (not change.fix or candidate.capability.fixable):
            await inplace.run(
                execution, change.step, change.engine_step, candidate, permit, change.selectors, change.fix
            )

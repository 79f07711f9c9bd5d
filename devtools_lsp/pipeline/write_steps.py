"""Taking an approved proposal into the workspace, and writing the workspace to disk.

A granular step persists under the permit of its own approval; a plan's `write` is a step with its own question.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from devtools_lsp.core.changeset import Preview
from devtools_lsp.core.workspace import Workspace
from devtools_lsp.pipeline.asking import report_decision
from devtools_lsp.pipeline.off_loop import ENTRY, off_loop
from devtools_lsp.pipeline.once import Once
from devtools_lsp.pipeline.prepare import select_paths
from devtools_lsp.pipeline.preview import diff_of, preview_of
from devtools_lsp.pipeline.proposal import Proposal
from devtools_lsp.pipeline.steps import CompiledStep, WriteArguments
from devtools_lsp.pipeline.writing import (
    WritePlan,
    land,
    normalized_by,
    plan_write,
    require_methods,
    require_writable,
)
from devtools_lsp.ports import Decision, Permit

if TYPE_CHECKING:
    from devtools_lsp.pipeline.runtime import Execution


async def take_proposal(
    execution: Execution,
    step: CompiledStep,
    proposal: Proposal,
    *,
    targets: Sequence[str],
    may_create: Sequence[str] = (),
) -> None:
    """Ask about a proposal that is known already, take what was approved, and persist it when the call is granular."""
    persists = execution.request.persists
    plan = None
    if persists:
        plan = await _planned(execution, proposal)
        require_writable(execution.parts, step.step, plan)
    base = execution.workspace
    preview = Once(lambda: preview_of(execution.parts, proposal, base, execution.request.signal))

    async def diff() -> Preview:
        return await off_loop(proposal.weight, diff_of, execution.parts, proposal)

    try:
        decision, permit = await execution.asker.ask(
            step.index + 1,
            step.step,
            {**step.args, "persists": True} if persists else step.args,
            targets=targets,
            may_create=may_create,
            diff=diff,
            preview=preview.get,
        )
    finally:
        await preview.close()
    await accept(execution, step, proposal, decision, permit, plan)


async def accept(
    execution: Execution,
    step: CompiledStep,
    proposal: Proposal,
    decision: Decision,
    permit: Permit,
    plan: WritePlan | None = None,
) -> None:
    """Make an approved proposal the workspace, as the person took it, and persist it when the call is granular.

    `plan` is the proposal's, if it was made already; what a person took otherwise is planned anew.
    """
    taken = await _decided(proposal, decision)
    execution.decision = report_decision(decision, execution.decision)
    execution.diagnostics.extend(taken.notes)
    execution.workspace = taken.after
    if execution.request.persists:
        if plan is None or taken is not proposal:
            plan = await _planned(execution, taken)
        await persist(execution, step.step, permit, plan)


async def _planned(execution: Execution, proposal: Proposal, selected: Collection[str] | None = None) -> WritePlan:
    """The plan that lands a proposal's workspace; what its entries know of their changes is not found out again."""
    policy, after = execution.parts.text, proposal.after
    # Encoding and hashing are quick; what is as it was is only looked at.
    weight = ENTRY * len(after.files)
    for path, content in after.files.items():
        on_disk = after.disk.get(path)
        if on_disk is None or on_disk.content is not content:
            weight += len(content.text) // 4
    return await off_loop(weight, plan_write, after, policy, selected, proposal.entries)


async def _decided(proposal: Proposal, decision: Decision) -> Proposal:
    weight = proposal.weight if decision.edited or decision.dropped else 0
    return await off_loop(weight, proposal.decided, decision)


async def persist(execution: Execution, step: str, permit: Permit, plan: WritePlan) -> None:
    """Land a write plan and make its outcome the workspace's idea of the disk."""
    require_methods(execution.parts, plan.mutations)
    normalized = normalized_by(plan, execution.parts.text)

    def foretell() -> None:
        execution.foretell(plan, normalized)

    await land(execution.parts, execution.request.who, step, permit, plan, execution.landing, foretell)
    execution.normalized.extend(normalized)
    execution.workspace = plan.settled


async def write(execution: Execution, step: CompiledStep) -> None:
    """The `write` step: ask once about everything that differs from the disk, then land it."""
    arguments = step.arguments
    assert isinstance(arguments, WriteArguments)
    workspace = execution.workspace
    selected = _selected(workspace, step, arguments.paths)
    plan = await _planned(execution, Proposal(workspace), selected)
    require_writable(execution.parts, step.step, plan)
    shown = Proposal(workspace, plan.entries)
    on_disk = _as_on_disk(workspace)
    preview = Once(lambda: preview_of(execution.parts, shown, on_disk, execution.request.signal))

    async def diff() -> Preview:
        return await off_loop(shown.weight, diff_of, execution.parts, shown)

    try:
        decision, permit = await execution.asker.ask(
            step.index + 1,
            step.step,
            step.args,
            targets=plan.targets,
            may_create=plan.created,
            diff=diff,
            preview=preview.get,
        )
    finally:
        await preview.close()
    execution.decision = report_decision(decision, execution.decision)
    taken = await _decided(shown, decision)
    if taken is not shown:
        execution.workspace = taken.after
        plan = await _planned(execution, Proposal(taken.after), selected)
    await persist(execution, step.step, permit, plan)


def _selected(workspace: Workspace, step: CompiledStep, paths: Sequence[str] | None) -> set[str] | None:
    """The paths that a write names, among those it knows: files there are, files that are gone, both ends of moves."""
    if paths is None:
        return None
    known = set(workspace.files) | set(workspace.disk) | set(workspace.moved.values())
    return set(select_paths(step.step, paths, known))


def _as_on_disk(workspace: Workspace) -> Workspace:
    """The snapshot that a write is previewed against: what the disk holds now."""
    return Workspace.of(workspace.disk)

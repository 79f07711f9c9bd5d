"""What an approver is shown: the diff computed by the code that will write, and what the warm engines would say.

Nothing here changes anything. Consequences are bounded by a deadline; what was not judged by then is `pending`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from devtools_lsp.core.changeset import Preview
from devtools_lsp.core.diagnostics import Diagnostic, Pending
from devtools_lsp.core.hunks import render_unified
from devtools_lsp.core.workspace import Workspace
from devtools_lsp.errors import DevToolsError
from devtools_lsp.pipeline.judging import Judgement, judge, summarize
from devtools_lsp.pipeline.off_loop import off_loop
from devtools_lsp.pipeline.parts import PipelineParts
from devtools_lsp.pipeline.proposal import Proposal
from devtools_lsp.pipeline.selection import EngineStep, select
from devtools_lsp.ports import Cancellation, Candidate

JUDGING_STEPS: tuple[EngineStep, ...] = ("lint", "check")


def diff_of(parts: PipelineParts, proposal: Proposal) -> Preview:
    """Files, hunks and the diff, without consequences."""
    files = proposal.files()
    return Preview(
        diff=render_unified(files),
        files=files,
        normalized=proposal.normalized(parts.text),
        introduced=[],
        resolved=[],
        pending=[],
    )


async def preview_of(parts: PipelineParts, proposal: Proposal, base: Workspace, signal: Cancellation) -> Preview:
    """The diff, and the diagnostics that the proposal introduces and resolves against `base`."""
    shown = await off_loop(proposal.weight, diff_of, parts, proposal)
    introduced, resolved, pending = await _consequences(parts, proposal, base, signal)
    return Preview(
        diff=shown.diff,
        files=shown.files,
        normalized=shown.normalized,
        introduced=introduced,
        resolved=resolved,
        pending=pending,
    )


async def _consequences(
    parts: PipelineParts, proposal: Proposal, base: Workspace, signal: Cancellation
) -> tuple[list[Diagnostic], list[Diagnostic], list[Pending]]:
    changed = [entry.path for entry in proposal.entries if entry.after is not None]
    # The question is what this proposal does to what was there before it, whatever earlier steps did.
    judged = _rebased(proposal.after, base)
    work: list[tuple[EngineStep, Candidate]] = [
        (step, candidate)
        for step in JUDGING_STEPS
        for candidate in select(parts, step, changed).candidates
        if not candidate.capability.in_place and candidate.paths
    ]
    answers = await asyncio.gather(
        *(_judge_quietly(parts, step, candidate, judged, signal) for step, candidate in work)
    )
    judgements = [judgement for found, _ in answers for judgement in found]
    weight = sum(len(content.text) for content in judged.files.values())
    delta = await off_loop(weight, summarize, judgements, judged)
    failures = [entry for _, missing in answers for entry in missing]
    return delta.introduced, delta.resolved, [*delta.pending, *failures]


def _rebased(after: Workspace, base: Workspace) -> Workspace:
    return Workspace(files=after.files, acquired=base.files, disk=after.disk, origins=_moves(after, base))


def _moves(after: Workspace, base: Workspace) -> dict[str, str]:
    """Where the proposal's own moves came from: those that the base does not have."""
    moves: dict[str, str] = {}
    earlier = {origin: path for path, origin in base.moved.items()}
    for path, on_disk in after.moved.items():
        source = earlier.get(on_disk, on_disk)
        if source != path and source in base.files:
            moves[path] = source
    return moves


async def _judge_quietly(
    parts: PipelineParts, step: EngineStep, candidate: Candidate, workspace: Workspace, signal: Cancellation
) -> tuple[Sequence[Judgement], list[Pending]]:
    """A preview never fails because an engine does: what it could not say is pending, with the reason."""
    try:
        async with asyncio.timeout(parts.preview_deadline_s):
            found = await judge(parts, step, [candidate], workspace, signal, deadline_s=parts.preview_deadline_s)
    except DevToolsError as error:
        return (), [Pending(reason=error.message, engine_id=candidate.engine.id)]
    except TimeoutError:
        reason = f"not judged within {parts.preview_deadline_s:g} s"
        return (), [Pending(reason=reason, engine_id=candidate.engine.id)]
    return found, []

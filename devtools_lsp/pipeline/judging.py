"""Running engines that judge or transform texts, and taking nothing that they claim on trust (I10).

Owns the calls to `format`, `lint` and `check` capabilities that answer with deltas; in-place engines are
`inplace.py`'s. What an engine says about two states of the workspace becomes a `Judgement`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from devtools_lsp.core.compare import LineMap, compare_diagnostics, line_map
from devtools_lsp.core.delta import Comparison, Delta
from devtools_lsp.core.diagnostics import Diagnostic, Finding, Pending, notice
from devtools_lsp.core.result import DiagnosticsDelta, EngineUse
from devtools_lsp.core.workspace import FileText, Workspace
from devtools_lsp.errors import DevToolsError, StepFailedError, WaitTimeoutError
from devtools_lsp.pipeline.parts import PipelineParts
from devtools_lsp.pipeline.selection import EngineStep, matches_any
from devtools_lsp.pipeline.stamping import Stamper
from devtools_lsp.ports import Cancellation, Candidate, EngineCall

_Answer = TypeVar("_Answer")

GRACE_S = 2.0
"""What an engine gets beyond its own deadline before the runtime ends the wait."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One engine's view of the acquired state and of the state judged; `texts` is that state."""

    engine_id: str
    step: EngineStep
    before: tuple[Diagnostic, ...]
    after: tuple[Diagnostic, ...]
    judged: frozenset[str]
    pending: tuple[Pending, ...]
    texts: Mapping[str, str]
    warnings: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class Transformed:
    """What a formatter or fixer made of the workspace."""

    workspace: Workspace
    diagnostics: tuple[Diagnostic, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    moves: Mapping[str, str] = field(default_factory=dict[str, str])
    fixed: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict[str, tuple[Finding, ...]])
    """By engine, the findings that it says its fixes did away with."""


def uses(candidates: Sequence[Candidate]) -> list[EngineUse]:
    """The engines that took part, for the result."""
    described: dict[str, EngineUse] = {}
    for candidate in candidates:
        engine = candidate.engine
        described[engine.id] = engine.describe() if engine.describe is not None else EngineUse(engine.id, None, None)
    return list(described.values())


async def judge(
    parts: PipelineParts,
    step: EngineStep,
    candidates: Sequence[Candidate],
    workspace: Workspace,
    signal: Cancellation,
    *,
    deadline_s: float | None = None,
) -> list[Judgement]:
    """Ask every candidate about the workspace, concurrently. Raises the first engine's own breakdown."""
    limit_s = deadline_s if deadline_s is not None else parts.engine_deadline_s
    return list(
        await asyncio.gather(
            *(_judge_one(parts, step, candidate, workspace, signal, limit_s) for candidate in candidates)
        )
    )


async def _judge_one(
    parts: PipelineParts,
    step: EngineStep,
    candidate: Candidate,
    workspace: Workspace,
    signal: Cancellation,
    deadline_s: float,
) -> Judgement:
    texts = workspace.texts()
    acquired = {path: content.text for path, content in workspace.acquired.items()}
    call = engine_call(parts, step, candidate, workspace, signal, deadline_s=deadline_s)
    comparison = await _compare(step, candidate, call, unchanged=texts == acquired)
    engine_id = candidate.engine.id
    old = Stamper(parts.root, engine_id, acquired, parts.translator.redact)
    new = Stamper(parts.root, engine_id, texts, parts.translator.redact)
    before = old.stamp(comparison.before, acquired)
    after = new.stamp(comparison.after, texts)
    return Judgement(
        engine_id=engine_id,
        step=step,
        before=tuple(before),
        after=tuple(after),
        judged=comparison.judged,
        pending=tuple(
            Pending(reason=parts.translator.redact(entry.reason), path=entry.path, engine_id=engine_id)
            for entry in comparison.pending
        ),
        texts=texts,
        warnings=tuple(new.warnings()),
    )


async def _compare(step: EngineStep, candidate: Candidate, call: EngineCall, *, unchanged: bool) -> Comparison:
    capability = candidate.capability
    if capability.compare is not None:
        return await ask_engine(step, candidate, call, capability.compare)
    delta = await ask_engine(step, candidate, call, capability.run)
    if step == "check":
        refuse_mutations(candidate, delta)
    if unchanged:
        before = delta.diagnostics
    else:
        baseline = EngineCall(
            engine_id=call.engine_id,
            step=call.step,
            paths=tuple(path for path in call.paths if path in call.acquired),
            texts=call.acquired,
            acquired=call.acquired,
            disk=call.disk,
            signal=call.signal,
            deadline_s=call.deadline_s,
            handle=call.handle,
        )
        before = (await ask_engine(step, candidate, baseline, capability.run)).diagnostics if baseline.paths else ()
    waiting = {entry.path for entry in delta.pending}
    judged = frozenset(path for path in call.paths if path not in waiting and None not in waiting)
    return Comparison(before=before, after=delta.diagnostics, judged=judged, pending=delta.pending)


def refuse_mutations(candidate: Candidate, delta: Delta) -> None:
    """A checker judges; one that claims to have changed something broke its word (SPEC 3.9.3)."""
    if delta.changed or delta.added or delta.deleted or delta.renamed:
        raise StepFailedError(
            f"check: engine {candidate.engine.id} returned changes, which a checker must not; nothing was taken",
            step="check",
            retry="no",
        )


def engine_call(
    parts: PipelineParts,
    step: EngineStep,
    candidate: Candidate,
    workspace: Workspace,
    signal: Cancellation,
    *,
    fix: bool = False,
    deadline_s: float | None = None,
) -> EngineCall:
    """The question to one engine about a workspace."""
    disk: dict[str, str | None] = dict.fromkeys(workspace.files)
    disk.update(dict.fromkeys(workspace.acquired))
    disk.update({path: known.content.text for path, known in workspace.disk.items()})
    return EngineCall(
        engine_id=candidate.engine.id,
        step=step,
        paths=candidate.paths,
        texts=workspace.texts(),
        acquired={path: content.text for path, content in workspace.acquired.items()},
        disk=disk,
        signal=signal,
        fix=fix,
        deadline_s=deadline_s if deadline_s is not None else parts.engine_deadline_s,
        handle=parts.handle,
    )


async def ask_engine(
    step: str, candidate: Candidate, call: EngineCall, run: Callable[[EngineCall], Awaitable[_Answer]]
) -> _Answer:
    """One engine's answer; its breakdown and its silence become errors that name it."""
    engine_id = candidate.engine.id
    try:
        async with asyncio.timeout(call.deadline_s + GRACE_S):
            return await run(call)
    except DevToolsError as error:
        raise error.at(step=step) from error.__cause__
    except TimeoutError as error:
        raise WaitTimeoutError(
            f"{step}: engine {engine_id} did not answer within {call.deadline_s + GRACE_S:g} s", step=step
        ) from error
    except Exception as error:
        # An engine is foreign code: whatever it raises is its breakdown, never ours, and is reported as such.
        raise StepFailedError(
            f"{step}: engine {engine_id} broke down: {type(error).__name__}: {error}", step=step, retry="yes"
        ) from error


async def transform(
    parts: PipelineParts,
    step: EngineStep,
    candidates: Sequence[Candidate],
    workspace: Workspace,
    signal: Cancellation,
    *,
    selectors: Sequence[str] | None,
    fix: bool = False,
) -> Transformed:
    """Run formatters or fixers one after the other, each on what the one before left, and take what is allowed."""
    current = workspace
    found: list[tuple[Candidate, Delta]] = []
    warnings: list[Diagnostic] = []
    moves: dict[str, str] = {}
    for candidate in candidates:
        if fix and not candidate.capability.fixable:
            continue
        call = engine_call(parts, step, candidate, current, signal, fix=fix)
        delta = await ask_engine(step, candidate, call, candidate.capability.run)
        current, noted, moved = _take(step, candidate, delta, current, selectors)
        moves = {**{old: moved.get(new, new) for old, new in moves.items()}, **moved}
        warnings.extend(noted)
        found.append((candidate, delta))
    texts = current.texts()
    diagnostics: list[Diagnostic] = []
    for candidate, delta in found:
        stamper = Stamper(parts.root, candidate.engine.id, texts, parts.translator.redact)
        if step == "format":
            diagnostics.extend(stamper.stamp(delta.diagnostics, texts))
        warnings.extend(stamper.warnings())
        warnings.extend(
            notice(
                f"{step}: {entry.path or 'the workspace'} was not processed by {candidate.engine.id}: {entry.reason}",
                severity="warning",
                path=entry.path,
                rule="pending",
            )
            for entry in delta.pending
        )
    fixed = {candidate.engine.id: delta.fixed for candidate, delta in found if fix and delta.fixed}
    return Transformed(current, tuple(diagnostics), tuple(warnings), moves, fixed)


def _take(
    step: EngineStep, candidate: Candidate, delta: Delta, workspace: Workspace, selectors: Sequence[str] | None
) -> tuple[Workspace, list[Diagnostic], dict[str, str]]:
    """What of a delta is inside the engine's envelope becomes the next workspace; anything else fails the step."""
    engine_id = candidate.engine.id
    allowed = set(candidate.paths)
    strayed = sorted((set(delta.changed) | set(delta.deleted) | set(delta.renamed)) - allowed)
    if strayed:
        raise _overreach(step, engine_id, f"changed {strayed[0]}, which it was not given")
    for need, claimed in (("delete", delta.deleted), ("rename", delta.renamed)):
        if claimed and need not in candidate.capability.needs:
            raise _overreach(step, engine_id, f"claims a {need} without declaring that it needs it")
    for path in [*delta.added, *delta.renamed.values()]:
        if path in workspace.files:
            raise _overreach(step, engine_id, f"would put {path} over a file that is there")
        if selectors is not None and not matches_any(path, selectors):
            raise _overreach(step, engine_id, f"adds {path}, which the step's paths do not cover")
        if candidate.capability.creates and not matches_any(path, candidate.capability.creates):
            raise _overreach(step, engine_id, f"adds {path}, which its `creates` patterns do not cover")
    warnings = [
        notice(
            f"{step}: engine {engine_id} reported a change of {path} that changes nothing",
            severity="warning",
            path=path,
            rule="engine",
        )
        for path, text in sorted(delta.changed.items())
        if workspace.files[path].text == text
    ]
    changed = {
        path: workspace.files[path].replaced(text)
        for path, text in delta.changed.items()
        if workspace.files[path].text != text
    }
    updated = workspace.with_files({**changed, **{path: FileText(text) for path, text in delta.added.items()}})
    updated = updated.without(delta.deleted) if delta.deleted else updated
    moves = dict(delta.renamed)
    return (updated.renamed(moves) if moves else updated), warnings, moves


def _overreach(step: str, engine_id: str, what: str) -> StepFailedError:
    return StepFailedError(f"{step}: engine {engine_id} {what}; nothing was taken", step=step, retry="no")


def told(judgement: Judgement, workspace: Workspace) -> list[Diagnostic]:
    """What a step says of a judgement: everything about the plan's own files; of files beside them, which were judged
    because they depend on these, the errors and whatever the plan introduced. Their other old findings are nobody's
    question, and stay in the count of unchanged ones.
    """
    beside = [item for item in judgement.after if item.path not in workspace.files]
    if not beside:
        return list(judgement.after)
    introduced = set(summarize([judgement], workspace).introduced)
    return [
        item
        for item in judgement.after
        if item.path in workspace.files or item.severity == "error" or item in introduced
    ]


def summarize(judgements: Sequence[Judgement], workspace: Workspace) -> DiagnosticsDelta:
    """The per-plan delta: the last judgement of each engine and step, against the acquired state (SPEC 3.12.4)."""
    latest = {(judgement.engine_id, judgement.step): judgement for judgement in judgements}
    maps: dict[str, LineMap] = {}
    for path, content in workspace.files.items():
        origin = workspace.origins.get(path, path)
        acquired = workspace.acquired.get(origin)
        if acquired is not None and acquired.text != content.text:
            maps[origin] = line_map(acquired.text, content.text)
    introduced, resolved, unchanged = compare_diagnostics(
        [item for judgement in latest.values() for item in judgement.before],
        [item for judgement in latest.values() for item in judgement.after],
        maps,
        {origin: path for path, origin in workspace.origins.items()},
    )
    return DiagnosticsDelta(
        introduced=introduced,
        resolved=resolved,
        unchanged=unchanged,
        pending=[entry for judgement in latest.values() for entry in judgement.pending],
    )

"""Judging files outside any plan: what editors are shown again after a file changed. Reads and never writes.

No gate is asked: nobody learns more than the person whose editor shows it, and engines that change the disk
themselves never take part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from devtools_lsp.core.workspace import DiskFile, FileText, Workspace
from devtools_lsp.errors import BadArgumentError, DevToolsError
from devtools_lsp.pipeline.judging import Judgement, judge
from devtools_lsp.pipeline.loading import decode_file, read_present
from devtools_lsp.pipeline.parts import PipelineParts
from devtools_lsp.pipeline.preview import JUDGING_STEPS
from devtools_lsp.pipeline.selection import EngineStep, select
from devtools_lsp.ports import Cancellation, Candidate


async def judge_files(
    parts: PipelineParts, texts: Mapping[str, str | None], engines: Collection[str] | None, deadline_s: float
) -> list[Judgement]:
    """What lint and check engines say about files; a text stands for unsaved content, None for what is on disk.

    Files that are gone or no text are left out, and so is an engine that breaks down: neither has an answer.
    """
    workspace = await _snapshot(parts, texts)
    paths = [path for path in texts if path in workspace.files]
    work: list[tuple[EngineStep, Candidate]] = [
        (step, candidate)
        for step in JUDGING_STEPS
        for candidate in select(parts, step, paths).candidates
        if candidate.paths and not candidate.capability.in_place
        if engines is None or candidate.engine.id in engines
    ]
    signal = Cancellation()
    answers = await asyncio.gather(
        *(_judge_or_nothing(parts, step, candidate, workspace, signal, deadline_s) for step, candidate in work)
    )
    return [judgement for found in answers for judgement in found]


async def _snapshot(parts: PipelineParts, texts: Mapping[str, str | None]) -> Workspace:
    disk: dict[str, DiskFile] = {}
    for path, data in (await read_present(parts, list(texts))).items():
        try:
            disk[path] = decode_file(path, data)
        except BadArgumentError:
            continue
    unsaved = {path: FileText(text) for path, text in texts.items() if text is not None}
    found = Workspace.of(disk).with_files(unsaved)
    # The question is only how things are, so there is no state before to compare with.
    return Workspace(files=found.files, acquired=found.files, disk=found.disk)


async def _judge_or_nothing(
    parts: PipelineParts,
    step: EngineStep,
    candidate: Candidate,
    workspace: Workspace,
    signal: Cancellation,
    deadline_s: float,
) -> list[Judgement]:
    try:
        return await judge(parts, step, [candidate], workspace, signal, deadline_s=deadline_s)
    except DevToolsError:
        return []

"""The steps that need no engine: read_lines, edit and apply_patch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.core.edits import Edit, plan_edits
from devtools_lsp.core.patch.apply import apply_operations
from devtools_lsp.core.workspace import FileText
from devtools_lsp.errors import BadArgumentError
from devtools_lsp.pipeline.off_loop import off_loop
from devtools_lsp.pipeline.prepare import require_acquired
from devtools_lsp.pipeline.proposal import Proposal, propose
from devtools_lsp.pipeline.steps import (
    CompiledStep,
    EditArguments,
    ReadLinesArguments,
    ReplaceArguments,
    WriteFileArguments,
)
from devtools_lsp.pipeline.windows import window_of_file, window_of_text
from devtools_lsp.pipeline.write_steps import take_proposal
from devtools_lsp.text import BYTE_ORDER_MARK, Span, TextForm, to_lf, unwritable

if TYPE_CHECKING:
    from devtools_lsp.pipeline.runtime import Execution


async def read_lines(execution: Execution, step: CompiledStep) -> None:
    """Read a window into the result."""
    arguments = step.arguments
    assert isinstance(arguments, ReadLinesArguments)
    path = arguments.path
    stats = execution.prepared.resolved.stats
    loaded = execution.workspace.files.get(path)
    if loaded is None and not (execution.prepared.windowed and path in stats):
        require_acquired(step.step, path, execution.workspace.files)
    await execution.asker.ask(step.index + 1, step.step, step.args, targets=[path])
    if loaded is not None:
        text = loaded.text
        read = await off_loop(len(text), window_of_text, path, text, arguments.start, arguments.end)
    else:
        read = await window_of_file(execution.parts, path, arguments.start, arguments.end, stats[path].size)
    execution.reads[step.key] = read


async def change_text(execution: Execution, step: CompiledStep) -> None:
    """Compute the proposal of an edit, a patch or a whole new content, ask, and take what was approved."""
    arguments = step.arguments
    if step.patch is not None:
        targets, may_create = step.patch.targets, step.patch.may_create
        weight = sum(len(execution.workspace.files[p].text) for p in targets if p in execution.workspace.files)
        proposal = await off_loop(weight + len(str(step.args.get("patch", ""))), lambda: _patch(execution, step))
    elif isinstance(arguments, WriteFileArguments):
        targets = (arguments.path,)
        may_create = () if arguments.path in execution.workspace.files else targets
        proposal = await off_loop(len(arguments.content), _whole_file, execution, arguments)
    else:
        assert isinstance(arguments, EditArguments | ReplaceArguments)
        targets, may_create = (arguments.path,), ()
        require_acquired(step.step, arguments.path, execution.workspace.files)
        weight = len(execution.workspace.files[arguments.path].text)
        proposal = await off_loop(weight, _edit, execution, arguments)
    await take_proposal(execution, step, proposal, targets=targets, may_create=may_create)


def _edit(execution: Execution, arguments: EditArguments | ReplaceArguments) -> Proposal:
    before = execution.workspace
    content = before.files[arguments.path]
    if isinstance(arguments, EditArguments):
        edits = [Edit(find=to_lf(block.find), replace=to_lf(block.replace)) for block in arguments.edits]
        spans = plan_edits(arguments.path, content.text, edits)
    else:
        _require_writable("edit", arguments.path, "new_string", arguments.new_string)
        old, new = to_lf(arguments.old_string), to_lf(arguments.new_string)
        everywhere = _occurrences(content.text, old) if arguments.replace_all else []
        # Without a single occurrence, the search for exactly one explains what is nearest.
        spans = [Span(at, at + len(old), new) for at in everywhere] or plan_edits(
            arguments.path, content.text, [Edit(find=old, replace=new)]
        )
    after = before.with_files({arguments.path: content.edited(spans)})
    return propose(before, after, spans={arguments.path: spans})


def _require_writable(step: str, path: str, argument: str, text: str) -> None:
    """Refuse what would make a file that is no text any more, and that nobody could read or edit again."""
    fault = unwritable(text)
    if fault is not None:
        raise BadArgumentError(
            f"{step}: argument {argument!r} holds {fault}, which no text file can",
            reason="malformed",
            step=step,
            path=path,
        )


def _occurrences(text: str, find: str) -> list[int]:
    """Where `find` occurs, left to right without overlap."""
    found: list[int] = []
    position = text.find(find)
    while position >= 0:
        found.append(position)
        position = text.find(find, position + len(find))
    return found


def _whole_file(execution: Execution, arguments: WriteFileArguments) -> Proposal:
    before = execution.workspace
    _require_writable("write_file", arguments.path, "content", arguments.content)
    existing = before.files.get(arguments.path)
    text = to_lf(arguments.content)
    marked = text.startswith(BYTE_ORDER_MARK)
    text = text.removeprefix(BYTE_ORDER_MARK)
    # An existing file keeps its own byte order mark or its absence; one that the caller sent is not doubled.
    content = existing.replaced(text) if existing is not None else FileText(text, TextForm(bom=marked))
    return propose(before, before.with_files({arguments.path: content}))


def _patch(execution: Execution, step: CompiledStep) -> Proposal:
    assert step.patch is not None
    before = execution.workspace
    for path in step.patch.acquires:
        require_acquired(step.step, path, before.files)
    outcome = apply_operations(step.patch.operations, before.files)
    moves = dict(outcome.renamed)
    after = before.without(outcome.deleted) if outcome.deleted else before
    after = after.renamed(moves) if moves else after
    after = after.with_files({**outcome.changed, **outcome.added})
    notes: tuple[Diagnostic, ...] = outcome.notes
    return propose(before, after, moves=moves, spans=outcome.spans, notes=notes)

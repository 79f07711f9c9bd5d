"""Operations applied to texts in memory: the whole patch or nothing (SPEC 3.6.4, 3.0.4).

Owns what becomes of which file. Operations take effect one after the other; hunks of one operation are all placed
in the text as that operation found it. A move may take the name of a file that a later operation takes away, so
that a diff which exchanges names applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from devtools_lsp.core.diagnostics import Diagnostic, notice
from devtools_lsp.core.linediff import line_spans
from devtools_lsp.core.patch.locate import Locator
from devtools_lsp.core.patch.operations import AddFile, DeleteFile, Operation, PatchHunk, UpdateFile
from devtools_lsp.core.workspace import FileText
from devtools_lsp.errors import BadArgumentError, StepFailedError
from devtools_lsp.paths import parent_of
from devtools_lsp.text import BYTE_ORDER_MARK, UTF8_LF, Span, TextForm, apply_spans, join_endings, split_endings


@dataclass(frozen=True, slots=True)
class PatchOutcome:
    """What a patch makes of a map of files, to be carried out as deletions, then renames, then contents.

    `changed` maps current paths (after renames) of files that were there to their new contents; `added` those of
    files that were not. `deleted` and the keys of `renamed` (old to new) are paths from before. `spans` maps old
    paths of changed files to what was replaced in their old text. `notes` are info diagnostics about hunks that
    matched only loosely, under current paths.
    """

    changed: Mapping[str, FileText] = field(default_factory=dict[str, FileText])
    added: Mapping[str, FileText] = field(default_factory=dict[str, FileText])
    deleted: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    spans: Mapping[str, list[Span]] = field(default_factory=dict[str, "list[Span]"])
    notes: tuple[Diagnostic, ...] = ()


def apply_operations(operations: Sequence[Operation], files: Mapping[str, FileText]) -> PatchOutcome:
    """Apply a patch to a map of root-relative paths to files; the map stays as it is.

    Raises BadArgumentError (`notFound`) for a file that is updated, moved or deleted and not there,
    StepFailedError with `exists` for an addition or move onto a file that is there or below one, `noMatch` or
    `ambiguous` for a hunk. An error leaves nothing half done: the outcome is only returned when all applied.
    """
    state = _State(files)
    for index, operation in enumerate(operations):
        if isinstance(operation, AddFile):
            state.add(operation)
        elif isinstance(operation, DeleteFile):
            state.delete(operation)
        else:
            state.update(operation, operations[index + 1 :])
    outcome = state.outcome()
    _require_apart(outcome, files)
    return outcome


def apply_hunks(text: str, hunks: Sequence[PatchHunk], *, path: str = "the text") -> str:
    """The text after the hunks; lines may end with LF or CRLF, and each keeps its ending (SPEC 3.4.3).

    `path` only serves messages. Raises StepFailedError like `apply_operations`.
    """
    plain, form = split_endings(text)
    spans, _ = plan_hunks(path, plain, hunks)
    return join_endings(apply_spans(plain, spans), form.after_spans(plain, spans))


def apply_to_texts(operations: Sequence[Operation], texts: Mapping[str, str]) -> dict[str, str]:
    """The map of paths to texts after a patch; each text keeps its own line endings, new ones get LF."""
    outcome = apply_operations(operations, {path: FileText(*split_endings(text)) for path, text in texts.items()})
    kept = {outcome.renamed.get(path, path): text for path, text in texts.items() if path not in outcome.deleted}
    fresh = {**outcome.changed, **outcome.added}
    return kept | {path: join_endings(content.text, content.form) for path, content in fresh.items()}


# -- files -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _File:
    """A file on its way through a patch: what it is now, and where it was before (None for a new one)."""

    content: FileText
    origin: str | None
    spans: list[Span] | None = None

    def plan(self, operation: DeleteFile | UpdateFile) -> tuple[list[Span], list[str]]:
        """Place an operation's hunks in the content; the byte order mark of a file is no part of its text."""
        hunks = operation.hunks
        if self.content.form.bom:
            hunks = [hunk.without_mark() for hunk in hunks]
        return plan_hunks(operation.path, self.content.text, hunks)


class _State:
    """The files between two operations of a patch."""

    def __init__(self, files: Mapping[str, FileText]) -> None:
        self._before = files
        self._now = {path: _File(content, path) for path, content in files.items()}
        self._aside: dict[str, _File] = {}
        self._deleted: set[str] = set()
        self._notes: list[tuple[_File, str]] = []

    def add(self, operation: AddFile) -> None:
        if operation.path in self._now:
            raise _exists(operation.path, "adds", operation.line)
        text, form = operation.text, UTF8_LF
        if text.startswith(BYTE_ORDER_MARK):
            text, form = text[1:], TextForm(bom=True)
        if operation.path in self._deleted:
            # The patch replaces the file as a whole; it keeps the form of its bytes.
            self._deleted.discard(operation.path)
            self._now[operation.path] = _File(self._before[operation.path].replaced(text), operation.path)
        else:
            self._now[operation.path] = _File(FileText(text, form), None)

    def delete(self, operation: DeleteFile) -> None:
        file = self._take(operation, "deletes")
        if operation.hunks:
            self._verify(operation, file)
        if file.origin is not None:
            self._deleted.add(file.origin)

    def _verify(self, operation: DeleteFile, file: _File) -> None:
        """A deletion that shows what it deletes must show all of it."""
        spans, _ = file.plan(operation)
        if apply_spans(file.content.text, spans):
            raise StepFailedError(
                f"the patch deletes {operation.path} (patch line {operation.line}) but does not show the whole file: "
                "read it again and make the patch from what it holds",
                reason="noMatch",
                step="apply_patch",
                path=operation.path,
            )

    def update(self, operation: UpdateFile, later: Sequence[Operation]) -> None:
        file = self._take(operation, "moves" if operation.move_to is not None else "updates")
        if operation.hunks:
            self._edit(operation, file)
        target = operation.path if operation.move_to is None else operation.move_to
        if target in self._now:
            if target in self._aside or not any(_vacates(following, target) for following in later):
                raise _exists(target, f"moves {operation.path} to", operation.line)
            self._aside[target] = self._now.pop(target)
        self._now[target] = file

    def _take(self, operation: DeleteFile | UpdateFile, verb: str) -> _File:
        path = operation.path
        file = self._aside.pop(path, None) if _vacates(operation, path) else None
        file = file or self._now.pop(path, None)
        if file is None:
            raise BadArgumentError(
                f"the patch {verb} {path} (patch line {operation.line}), which does not exist: correct the path, or "
                "create it with *** Add File",
                reason="notFound",
                step="apply_patch",
                path=path,
                line=operation.line or None,
            )
        return file

    def _edit(self, operation: UpdateFile, file: _File) -> None:
        spans, notes = file.plan(operation)
        # Spans count in the text from before the patch, so those of a second update do not; they are compared.
        first = file.origin is not None and file.content is self._before[file.origin]
        file.spans = spans if first else None
        file.content = file.content.edited(spans)
        self._notes += [(file, note) for note in notes]

    def outcome(self) -> PatchOutcome:
        changed: dict[str, FileText] = {}
        added: dict[str, FileText] = {}
        renamed: dict[str, str] = {}
        spans: dict[str, list[Span]] = {}
        places: dict[int, str] = {}
        for path, file in self._now.items():
            places[id(file)] = path
            if file.origin is None:
                added[path] = file.content
                continue
            if file.origin != path:
                renamed[file.origin] = path
            before = self._before[file.origin]
            if file.content != before:
                changed[path] = file.content
                known = file.spans
                spans[file.origin] = known if known is not None else line_spans(before.text, file.content.text)
        return PatchOutcome(
            changed=changed,
            added=added,
            deleted=tuple(sorted(self._deleted)),
            renamed=renamed,
            spans=spans,
            notes=tuple(
                notice(note, path=places[id(file)], rule="looseMatch")
                for file, note in self._notes
                if id(file) in places
            ),
        )


def _require_apart(outcome: PatchOutcome, files: Mapping[str, FileText]) -> None:
    """Refuse what no file system can hold: a file at a path at which another file needs a directory."""
    arriving = {*outcome.added, *outcome.renamed.values()}
    if not arriving:
        return
    standing = {path for path in files if path not in outcome.renamed} - set(outcome.deleted) | arriving
    for path in sorted(standing):
        parent = parent_of(path)
        while parent and parent not in standing:
            parent = parent_of(parent)
        if parent and (path in arriving or parent in arriving):
            raise StepFailedError(
                f"the patch would leave both a file {parent} and {path} below it: choose another name for one of them",
                reason="exists",
                step="apply_patch",
                path=path,
            )


def _vacates(operation: Operation, path: str) -> bool:
    """Whether an operation takes the file away from its path."""
    if operation.path != path:
        return False
    return isinstance(operation, DeleteFile) or (
        isinstance(operation, UpdateFile) and operation.move_to not in (None, path)
    )


def _exists(path: str, verb: str, line: int) -> StepFailedError:
    return StepFailedError(
        f"the patch {verb} {path} (patch line {line}), which exists already: update it instead, or delete it first",
        reason="exists",
        step="apply_patch",
        path=path,
    )


# -- hunks -------------------------------------------------------------------------------------------------------


class _Run(NamedTuple):
    """Lines [first, last) of a text replaced by others."""

    first: int
    last: int
    added: list[str]


def plan_hunks(path: str, text: str, hunks: Sequence[PatchHunk]) -> tuple[list[Span], list[str]]:
    """(spans of an LF text, sorted by start; a remark in words for each hunk that matched only loosely).

    Spans replace changed lines only. Raises StepFailedError, see `apply_operations`.
    """
    locator = Locator(path, text)
    runs: list[_Run] = []
    notes: list[str] = []
    ends_with_break = not text or text.endswith("\n")
    for number, hunk in enumerate(hunks, 1):
        name = f"hunk {number} of {len(hunks)} for {path} (patch line {hunk.line})"
        place = locator.place(hunk, name)
        runs += _runs(hunk, place.start)
        notes += [f"{name} matched line {place.start + 1} {remark}" for remark in place.remarks]
        if hunk.old_open != hunk.new_open:
            ends_with_break = hunk.old_open
    return _spans(text, locator.lines, _merged(path, runs), ends_with_break), notes


def _runs(hunk: PatchHunk, at: int) -> list[_Run]:
    """A hunk's changed lines, the hunk beginning at line `at`."""
    runs: list[_Run] = []
    first, added = at, list[str]()
    for line in hunk.lines:
        if line.sign == "+":
            added.append(line.text)
            continue
        at += 1
        if line.sign == " ":
            runs.append(_Run(first, at - 1, added))
            first, added = at, []
    runs.append(_Run(first, at, added))
    return [run for run in runs if run.first < run.last or run.added]


def _merged(path: str, runs: list[_Run]) -> list[_Run]:
    """The runs in order, those that touch joined; additions at one place stay in the order of their hunks."""
    merged: list[_Run] = []
    for run in sorted(runs, key=lambda run: (run.first, run.last)):
        if not merged or run.first > merged[-1].last:
            merged.append(run)
        elif run.first == merged[-1].last:
            merged[-1] = _Run(merged[-1].first, run.last, merged[-1].added + run.added)
        else:
            raise StepFailedError(
                f"two hunks for {path} change the lines around line {run.first + 1}: join them into one",
                reason="noMatch",
                step="apply_patch",
                path=path,
                line=run.first + 1,
            )
    return merged


def _offsets(text: str, lines: Sequence[str], numbers: Iterable[int]) -> Iterator[int]:
    """The offsets at which lines begin; their numbers ascend, and the one behind the last is the text's end."""
    line, offset = 0, 0
    for number in numbers:
        offset += sum(map(len, lines[line:number])) + number - line
        line = number
        yield min(offset, len(text))


def _spans(text: str, lines: Sequence[str], runs: Sequence[_Run], ends_with_break: bool) -> list[Span]:
    """The runs as spans; the text ends with a line break afterwards or not, as told."""
    size = len(text)
    broken = text.endswith("\n")
    offsets = _offsets(text, lines, (number for run in runs for number in (run.first, run.last)))
    spans = [Span(next(offsets), next(offsets), "".join(line + "\n" for line in run.added)) for run in runs]
    if not spans or spans[-1].end < size:
        if broken and not ends_with_break:
            spans.append(Span(size - 1, size, ""))
        elif text and not broken and ends_with_break:
            spans.append(Span(size, size, "\n"))
        return spans
    start, end, body = spans[-1].start, spans[-1].end, spans[-1].replacement
    if not ends_with_break:
        if body:
            body = body[:-1]
        elif start > 0:
            start -= 1
    if body and start == size > 0 and not broken:
        body = "\n" + body
    spans[-1] = Span(start, end, body)
    return spans

"""What a person may choose of an approval, judged before it counts, and the whole texts to choose from.

Owns the checks of an answer against what was shown, and the document behind "Show diff". Both use the code that
will write: a choice that passes here is one that the pipeline can take.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from devtools_lsp.core.changeset import FileChange, Hunk
from devtools_lsp.core.hunks import choose_hunks, render_unified
from devtools_lsp.core.invisible import reveal
from devtools_lsp.core.linediff import lines_of
from devtools_lsp.core.workspace import sha256
from devtools_lsp.daemon.approval_payload import Approval
from devtools_lsp.daemon.approval_words import (
    MAX_TEXT_BYTES,
    consequences,
    diff_text,
    fitting,
    headline,
    wire_size,
)
from devtools_lsp.daemon.disk import Disk
from devtools_lsp.errors import BadArgumentError, DevToolsError
from devtools_lsp.ports import Edited
from devtools_lsp.text import NotTextError, decode, unwritable
from devtools_lsp.wire.messages import Params

MAX_DOCUMENT_BYTES = MAX_TEXT_BYTES
"""How much text one diff document carries; beyond it files come one by one, by path."""

_SUMMARY = 200
"""How many characters of a hunk's first changed line name it in a list."""


class DiffParams(Params, frozen=True):
    """`devtools/diff`: a waiting approval as a person is shown it; with `path` one file's part.

    `part` says how much: the words, with them where the hunks are, with them the diff as one text, or everything, the
    whole texts of the files too.
    `drop` names hunks that the person means to leave out: the texts are then those that the rest would make.
    """

    id: str
    path: str | None = None
    part: Literal["words", "hunks", "text", "texts"] = "texts"
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer, as given. `edited` and `drop` go with an approval only."""

    approve: bool
    note: str | None = None
    remember: bool = False
    edited: tuple[Edited, ...] = ()
    drop: tuple[str, ...] = ()


def check_answer(approval: Approval, answer: Answer) -> None:
    """Refuse an answer that does not fit what was shown. Raises BadArgumentError that says how to mend it."""
    if not answer.approve:
        if answer.edited or answer.drop or answer.remember:
            raise BadArgumentError("edited, drop and remember go with approve = true; to deny, give a note at most")
        return
    for edit in answer.edited:
        fault = unwritable(edit.text)
        if fault is not None:
            raise BadArgumentError(f"the edited text holds {fault}, which no text file can", reason="malformed")
    check_choice(approval, answer.edited, answer.drop)
    if answer.remember and approval.remember is None:
        raise BadArgumentError(
            f"approval {approval.id} cannot be remembered: names that always ask never are; approve it alone, or "
            "write a rule in the configuration"
        )


def check_choice(approval: Approval, edited: Sequence[Edited], drop: Sequence[str]) -> None:
    """Refuse a choice that does not fit what was shown. Raises BadArgumentError that says how to mend it."""
    files = {file.path: file for file in approval.shown.files}
    hunks = {hunk.id: (file, hunk) for file in approval.shown.files for hunk in file.hunks}
    whole: set[str] = set()
    bodies: dict[str, str] = {}
    for entry in edited:
        if entry.path is not None:
            if entry.path not in files:
                raise BadArgumentError(f"approval {approval.id} does not change {entry.path!r}", path=entry.path)
            whole.add(entry.path)
        elif entry.hunk_id is not None:
            _known(approval, hunks, entry.hunk_id)
            if entry.hunk_id in bodies:
                raise BadArgumentError(f"hunk {entry.hunk_id} is edited twice; give one text")
            bodies[entry.hunk_id] = entry.text
    for name in drop:
        _known(approval, hunks, name)
    for name in [*bodies, *drop]:
        if hunks[name][0].path in whole:
            raise BadArgumentError(
                f"{hunks[name][0].path!r} is given whole, so that its hunk {name} cannot be dropped or edited as well",
                path=hunks[name][0].path,
            )
        _check_hunk(hunks[name][1], bodies, drop)


def _known(approval: Approval, hunks: dict[str, tuple[FileChange, Hunk]], name: str) -> None:
    if name not in hunks:
        raise BadArgumentError(
            f"approval {approval.id} has no hunk {name!r}; it has {', '.join(hunks) or 'none'}", reason="notFound"
        )


def _check_hunk(hunk: Hunk, bodies: dict[str, str], drop: Sequence[str]) -> None:
    """Take the choice on the hunk's own old lines, as the pipeline will on the whole file."""
    alone = msgspec.structs.replace(hunk, old_start=1 if hunk.old_lines else 0)
    choose_hunks(_old_lines(hunk), [alone], dropped=drop, edited=bodies)


def _old_lines(hunk: Hunk) -> str:
    old: list[str] = []
    above = ""
    for row in lines_of(hunk.text):
        if row.startswith("\\") and above in (" ", "-"):
            old[-1] = old[-1].removesuffix("\n")
        elif row[:1] in (" ", "-"):
            old.append(row[1:])
        above = row[:1]
    return "".join(old)


def shown_document(approval: Approval, disk: Disk, wanted: DiffParams) -> dict[str, Any]:
    """The answer to `devtools/diff`: {id, headline, details}, with `text`, with everything of `diff_document`.

    The words are the daemon's own, invisible characters written out, so that every editor says the same. Reads files
    for the whole texts; call it in a thread.
    """
    document: dict[str, Any] = {
        "id": approval.id,
        "headline": headline(approval),
        "details": consequences(approval),
    }
    if wanted.part == "words":
        return document
    check_choice(approval, (), wanted.drop)
    files = _chosen(approval, wanted.path)
    if wanted.part == "hunks":
        return document | {"files": [_named(file, wanted.drop) for file in files]}
    if wanted.part == "text":
        left_out = sum(hunk.id in wanted.drop for file in files for hunk in file.hunks)
        notes = [f"left out: {left_out} of {sum(len(file.hunks) for file in files)} hunks"] if left_out else []
        diff = _diff(approval, files, wanted.drop)
        return document | {"text": diff_text(approval, diff=diff, notes=notes)}
    return document | diff_document(approval, disk, wanted.path, wanted.drop)


def diff_document(
    approval: Approval, disk: Disk, path: str | None = None, drop: Collection[str] = ()
) -> dict[str, Any]:
    """{id, diff, files: [{path, from?, kind, before, after, hunks}], invisible: [{path, line, column, what}]}.

    `before` is what is on disk, `after` what would be written without the hunks in `drop`; null for a file that is
    not there, and for one whose whole text is not known here (then `partial` is true: the hunks are all there is).
    `hunks` are {id, dropped, start, lines, added, removed, summary} in order: the 1-based lines of `after` (of
    `before`, for a deleted file) that the hunk changes, 0 lines where it only removes, how many lines it adds and
    removes, and the first line that it changes. `invisible` lists what a person would not see in the added lines.
    With more text than fits a frame, `truncated` is true and the files' texts are null: ask for each by `path`.
    Reads files; call it in a thread.
    """
    files = _chosen(approval, path)
    diff = _diff(approval, files, drop)
    shown = [_texts(file, disk, drop) for file in files]
    size = wire_size(diff) + sum(wire_size(entry[key] or "") for entry in shown for key in ("before", "after"))
    named = {file.path for file in files}
    unseen = [entry for entry in approval.unseen if entry.path in named]
    document: dict[str, Any] = {"id": approval.id, "diff": diff, "files": shown, "invisible": unseen}
    if size > MAX_DOCUMENT_BYTES:
        document["truncated"] = True
        for entry in shown:
            entry["before"] = entry["after"] = None
        document["diff"] = fitting(diff, MAX_DOCUMENT_BYTES)
    return document


def _chosen(approval: Approval, path: str | None) -> Sequence[FileChange]:
    if path is None:
        return approval.shown.files
    files = [file for file in approval.shown.files if path in (file.path, file.from_)]
    if not files:
        raise BadArgumentError(f"approval {approval.id} does not change {path!r}", path=path, reason="notFound")
    return files


def _diff(approval: Approval, files: Sequence[FileChange], drop: Collection[str]) -> str:
    if not drop and len(files) == len(approval.shown.files):
        return approval.shown.diff
    return render_unified([msgspec.structs.replace(file, hunks=_kept(file.hunks, drop)) for file in files])


def _kept(hunks: Sequence[Hunk], drop: Collection[str]) -> list[Hunk]:
    """The hunks that stay, at the new lines that they then have."""
    kept: list[Hunk] = []
    moved = 0
    for hunk in hunks:
        if hunk.id in drop:
            moved += hunk.old_lines - hunk.new_lines
        else:
            kept.append(msgspec.structs.replace(hunk, new_start=hunk.new_start + moved))
    return kept


def _texts(file: FileChange, disk: Disk, drop: Collection[str]) -> dict[str, Any]:
    entry = _named(file, drop) | {"before": None, "after": None}
    before = "" if file.kind == "added" else _text_with_hash(disk, file.from_ or file.path, file.base_hash)
    after: str | None = None
    if before is not None:
        try:
            after = choose_hunks(before, file.hunks, dropped=drop, edited={})
        except DevToolsError:
            # The proposal starts from a text that earlier steps of its plan made, and not from the disk's.
            before = None
    if before is None:
        entry["partial"] = True
        return entry
    own = {hunk.id for hunk in file.hunks}
    entry["before"] = None if file.kind == "added" else before
    # A deletion of which a part is left out keeps the file, an addition of which nothing is left makes none.
    gone = not own & set(drop) if file.kind == "deleted" else file.kind == "added" and own and own <= set(drop)
    entry["after"] = None if gone else after
    return entry


def _named(file: FileChange, drop: Collection[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": file.path, "kind": file.kind, "hunks": _places(file, drop)}
    return entry if file.from_ is None else entry | {"from": file.from_}


def _places(file: FileChange, drop: Collection[str]) -> list[dict[str, Any]]:
    places: list[dict[str, Any]] = []
    moved = 0
    for hunk in file.hunks:
        rows = [row for row in lines_of(hunk.text) if row[:1] in (" ", "+", "-")]
        changed = [index for index, row in enumerate(rows) if row[0] != " "]
        first, last = (changed[0], changed[-1]) if changed else (0, -1)
        dropped = hunk.id in drop
        absent = "+" if dropped else "-"
        there = sum(row[0] != absent for row in rows[first : last + 1])
        start = (hunk.new_start if hunk.new_lines else hunk.new_start + 1) + moved + first
        if file.kind == "deleted":
            start, there = max(1, hunk.old_start) + first, last + 1 - first
        elif dropped:
            moved += hunk.old_lines - hunk.new_lines
        telling = next((row for row in rows[first : last + 1] if row[0] == "+"), rows[first] if changed else " ")
        places.append(
            {
                "id": hunk.id,
                "dropped": dropped,
                "start": start,
                "lines": there,
                "added": sum(row[0] == "+" for row in rows),
                "removed": sum(row[0] == "-" for row in rows),
                "summary": reveal(telling.strip("\n")[:_SUMMARY]),
            }
        )
    return places


def _text_with_hash(disk: Disk, path: str, base_hash: str | None) -> str | None:
    data = disk.read(path)
    if data is None or (base_hash is not None and sha256(data) != base_hash):
        return None
    try:
        return decode(data)[0]
    except NotTextError:
        return None

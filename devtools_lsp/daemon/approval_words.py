"""What a waiting approval says to a person: titles, messages, the text of "Show diff". Pure.

Everything that comes from an agent or a file is shown with its invisible characters written out, so that nobody
approves what they cannot see.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from devtools_lsp.core.changeset import FileChange
from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.core.invisible import TRAILING_BLANKS, reveal
from devtools_lsp.daemon.approval_payload import Approval

MAX_TEXT_BYTES = 6 * 1024 * 1024
"""How much of a diff one message carries as a text: a frame holds 8 MiB."""
LF = "\n"
_MAX_COMMAND = 400
_MAX_LISTED = 3
_MAX_UNSEEN = 200
_CONTROLS = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")

_ACTS = {
    "acquire": "read",
    "apply_patch": "patch",
    "bash": "run",
    "edit": "edit",
    "edit_file": "edit",
    "format": "format",
    "lint": "fix",
    "undo": "undo changes of",
    "write": "write",
    "write_file": "write",
}
_KINDS = {"modified": "change", "added": "add", "deleted": "DELETE", "renamed": "MOVE"}


def headline(approval: Approval) -> str:
    """Who wants what, in one line: `claude wants to edit src/app.py (+3 -1)`."""
    agent = reveal(approval.agent)
    command = approval.question.command
    if command is not None:
        shown = reveal(" ".join(command.split()))
        return f"{agent} wants to run: {shown if len(shown) <= _MAX_COMMAND else shown[:_MAX_COMMAND] + '…'}"
    act = _ACTS.get(approval.step, approval.step)
    if approval.question.in_place:
        engines = ", ".join(approval.question.call.engines or ()) or "an engine"
        act = f"let {reveal(engines)} {act} in place:"
    return f"{agent} wants to {act} {_what(approval)}"


class MarkWords:
    """What stands at the places of one approval: the headline, each file's own part, and the consequences.

    What is the same everywhere is put into words once: there may be hundreds of files.
    """

    def __init__(self, approval: Approval) -> None:
        self._approval = approval
        self._headline = headline(approval)
        self._consequences = consequences(approval)

    def on(self, change: FileChange | None) -> str:
        """The message in the file that a change is of, None for one that is only named."""
        own = ""
        if change is not None and (len(self._approval.shown.files) > 1 or change.kind in ("deleted", "renamed")):
            moved = f" to {reveal(change.path)}" if change.kind == "renamed" else ""
            own = f" - here: {_KINDS[change.kind]}{moved}{_counts(self._approval, [change])}"
        return "\n".join([f"{self._headline}{own}", *self._consequences])


def request_message(approval: Approval) -> str:
    """The question where there is no file to put it in."""
    return "\n".join([headline(approval), *consequences(approval)])


def consequences(approval: Approval) -> list[str]:
    """What it would introduce and resolve, what is not known, and what a person should look at twice."""
    shown = approval.shown
    lines: list[str] = []
    if shown.introduced:
        lines.append(f"introduces {len(shown.introduced)}: {_listed(shown.introduced)}")
    if shown.resolved:
        lines.append(f"resolves {len(shown.resolved)}: {_listed(shown.resolved)}")
    if not shown.introduced and not shown.resolved and not shown.pending and shown.files:
        lines.append("introduces and resolves nothing")
    reasons = sorted({entry.reason for entry in shown.pending})
    if reasons:
        lines.append(f"not judged: {'; '.join(reasons[:_MAX_LISTED])}")
    if shown.normalized:
        names = ", ".join(f"{reveal(entry.path)} ({entry.from_} to {entry.to})" for entry in shown.normalized)
        lines.append(f"also rewrites line ends or encoding: {names}")
    unseen = [entry for entry in approval.unseen if entry.what != TRAILING_BLANKS]
    if unseen:
        place = f"{reveal(unseen[0].path)}:{unseen[0].line}"
        lines.append(f"adds {len(unseen)} invisible characters, the first {unseen[0].what} at {place}")
    return lines


def action_subject(approval: Approval) -> str:
    """What follows `Approve`, `Deny` and so on in the title of an action."""
    shown = headline(approval)
    return shown if len(shown) <= 100 else shown[:100] + "…"


def diff_text(approval: Approval, *, diff: str | None = None, notes: Sequence[str] = ()) -> str:
    """The document of "Show diff": who asks and what follows from it, then the diff as it would be applied.

    `diff` takes the place of the whole proposal's, `notes` stand with the consequences. At most about `MAX_TEXT_BYTES`
    on the wire: what is cut off is said at the top.
    """
    head = [headline(approval), *consequences(approval)]
    if approval.remember is not None:
        head.append(f"remember: {approval.remember.name}")
    unseen = approval.unseen[:_MAX_UNSEEN]
    head += [f"invisible: {reveal(entry.path)}:{entry.line}:{entry.column} {entry.what}" for entry in unseen]
    if len(approval.unseen) > len(unseen):
        head.append(f"invisible: {len(approval.unseen) - len(unseen)} more")
    body = approval.shown.diff if diff is None else diff
    if approval.question.command is not None:
        body = reveal(approval.question.command) + "\n"
    shown = fitting(body, MAX_TEXT_BYTES)
    head += notes
    if len(shown) < len(body):
        hint = "; look at single files for the rest" if len(approval.shown.files) > 1 else ""
        head.append(f"NOT ALL IS SHOWN: {shown.count(LF)} of {body.count(LF)} lines{hint}")
    return "".join(f"# {line}\n" for line in LF.join(head).split(LF)) + LF + shown


def fitting(text: str, budget: int) -> str:
    """The whole lines of a text that take at most `budget` bytes in a message; of a longer first line, a part."""
    # No character takes more than six bytes there.
    if len(text) * 6 <= budget or wire_size(text) <= budget:
        return text
    end, left = 0, budget
    for line in text.split(LF):
        left -= wire_size(line) + 2
        if left < 0:
            break
        end += len(line) + 1
    return text[: end or budget // 6]


def wire_size(text: str) -> int:
    """The bytes that a text takes as a string of a JSON message."""
    escaped = sum(text.count(character) for character in '\n\r\t\b\f"\\')
    return len(text.encode("utf-8", "surrogatepass")) + escaped + 5 * len(_CONTROLS.findall(text))


def _what(approval: Approval) -> str:
    files = approval.shown.files
    paths = approval.paths
    if not paths:
        return "something that names no file"
    if len(files) == 1 and files[0].kind == "renamed":
        return f"{reveal(files[0].from_ or '')} by moving it to {reveal(files[0].path)}{_counts(approval, files)}"
    if len(paths) == 1:
        deleting = " by deleting it" if files and files[0].kind == "deleted" else ""
        return f"{reveal(paths[0])}{deleting}{_counts(approval, files)}"
    named = ", ".join(reveal(path) for path in paths[:_MAX_LISTED])
    more = f" and {len(paths) - _MAX_LISTED} more" if len(paths) > _MAX_LISTED else ""
    return f"{len(files) or len(paths)} files: {named}{more}{_counts(approval, files)}"


def _counts(approval: Approval, files: Sequence[FileChange]) -> str:
    if not files:
        return ""
    counts = [approval.counts.get(file.path, (0, 0)) for file in files]
    return f" (+{sum(added for added, _ in counts)} -{sum(removed for _, removed in counts)})"


def _listed(diagnostics: Sequence[Diagnostic]) -> str:
    shown = [
        f"{reveal(entry.path or '')}:{entry.line or 1} {entry.severity}: {reveal(entry.message)}"
        for entry in diagnostics[:_MAX_LISTED]
    ]
    more = [f"and {len(diagnostics) - _MAX_LISTED} more"] if len(diagnostics) > _MAX_LISTED else []
    return "; ".join([*shown, *more])

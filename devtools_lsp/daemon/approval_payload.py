"""One pending approval as data: what the gate was asked, what is shown of it, and its wire form (SPEC 8.0.8).

Owns the payload, how much of it fits a frame, and the messages that carry it. It knows nothing of waiting, of
editors or of answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, Protocol, cast

import msgspec

from devtools_lsp.core.changeset import FileChange, Hunk, Preview
from devtools_lsp.pipeline.rules import Question, Rule
from devtools_lsp.wire.framing import MAX_FRAME_BYTES
from devtools_lsp.wire.messages import Notification, encode

REQUESTED = "devtools/approvalRequested"
UPDATED = "devtools/approvalUpdated"
RESOLVED = "devtools/approvalResolved"

Status = Literal["pending", "approved", "denied", "expired", "withdrawn", "stale", "lost"]

MAX_HUNK_BYTES = 6 * 1024 * 1024
"""How many bytes of hunk text one message carries. A frame holds 8 MiB; the rest comes through `devtools/diff`."""
MAX_ARGUMENT_BYTES = 1024 * 1024
"""Beyond this much, long strings in an agent's arguments are cut: what they would change is in the hunks."""
_SHOWN_STRING = 2000
_ENTRY_BYTES = 200
"""About what a file or a finding takes beside its text."""


class Unseen(msgspec.Struct, frozen=True):
    """Something invisible in an added line, at the 1-based place where it would stand."""

    path: str
    line: int
    column: int
    what: str


@dataclass(eq=False, slots=True)
class Approval:
    """A question that waits for a person.

    `shown` grows: first the diff alone, then its consequences. `remember` is the rule that "remember" would leave
    behind, None when nothing can be. `existing` are the files that are on disk and concerned. `baseline` maps each
    file to the SHA-256 that it must still have for the approval to mean what was shown; None is "nothing there".
    `counts` are (added, removed) lines by path; `unseen` is everything invisible in what is added. `hunk_bytes` and
    `argument_bytes` are what the texts take on the wire, so that nobody has to measure them again. `encoded` is the
    notification that is being announced, by its method.
    """

    id: str
    plan: str
    step_index: int
    question: Question
    shown: Preview
    remember: Rule | None
    expires_at: float
    existing: tuple[str, ...] = ()
    baseline: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    unseen: tuple[Unseen, ...] = ()
    hunk_bytes: int = 0
    argument_bytes: int = 0
    status: Status = "pending"
    by: str = ""
    encoded: tuple[str, bytes] | None = None

    @property
    def weight(self) -> int:
        """About how many bytes its payload has."""
        shown = self.shown
        entries = len(shown.files) + len(shown.introduced) + len(shown.resolved) + len(shown.normalized)
        return self.hunk_bytes + self.argument_bytes + _ENTRY_BYTES * entries

    @property
    def step(self) -> str:
        """The gated step."""
        return self.question.call.step

    @property
    def agent(self) -> str:
        """Who asks."""
        return self.question.agent

    @property
    def paths(self) -> list[str]:
        """Every file concerned: of the diff, both ends of moves, else the targets."""
        found = {file.path for file in self.shown.files} | {file.from_ for file in self.shown.files if file.from_}
        return sorted(found or set(self.question.call.targets))

    def changes(self) -> dict[str, FileChange]:
        """What the proposal does to each file that is on disk now (of a move: to its source)."""
        found: dict[str, FileChange] = {}
        for file in self.shown.files:
            found.setdefault(file.from_ or file.path, file)
        return found


class Resolution(msgspec.Struct, frozen=True):
    """How an approval ended, and by whom: `editor`, `terminal`, `clock`, `agent`, `disk` or `daemon`."""

    id: str
    status: Status
    by: str


class ApprovalView(Protocol):
    """Somebody who is shown approvals. Called on the event loop; must not block."""

    def requested(self, approval: Approval) -> None:
        """One waits. A view that is attached late is told of each that waits already."""
        ...

    def updated(self, approval: Approval) -> None:
        """Its consequences became known, or that they will not be."""
        ...

    def resolved(self, approval: Approval, resolution: Resolution) -> None:
        """It ended."""
        ...


class Decided(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The answer to `devtools/decide`: `applied` says whether it was this answer that counted.

    `rule` comes with one that is remembered: what would keep it for good, as it stands in `rule_file`, the file at the
    root that has the rules; both are absent where no rule of the configuration can say it.
    """

    id: str
    status: Status
    applied: bool
    by: str
    rule: str | None = None
    rule_file: str | None = None


def timestamp(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC with milliseconds."""
    second, milliseconds = divmod(int(seconds * 1000), 1000)
    return f"{_to_the_second(second)}.{milliseconds:03d}Z"


@lru_cache(maxsize=8)
def _to_the_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def to_wire(
    approval: Approval, *, hunk_bytes: int = MAX_HUNK_BYTES, argument_bytes: int = MAX_ARGUMENT_BYTES
) -> dict[str, Any]:
    """The payload, exactly as SPEC 8.0.8 lists it.

    Only when it would not fit a frame it has one field more: `truncated` {hunks, bytes, args} says how many hunk
    texts beyond `hunk_bytes` are left out and how large they are (their ids and lines stay, and `devtools/diff` has
    them whole), and whether long strings in `args` beyond `argument_bytes` are cut.
    """
    files: Sequence[FileChange] = approval.shown.files
    left_out = left_bytes = 0
    if approval.hunk_bytes > hunk_bytes:
        files, left_out, left_bytes = _fit(files, hunk_bytes)
    call = approval.question.call.to_wire()
    cut = approval.argument_bytes > argument_bytes
    if cut:
        call["args"] = _cut(call["args"])
    shown = approval.shown
    payload: dict[str, Any] = {
        "id": approval.id,
        "plan": approval.plan,
        "stepIndex": approval.step_index,
        **call,
        "agent": approval.agent,
        "files": files,
        "normalized": shown.normalized,
        "introduced": shown.introduced,
        "resolved": shown.resolved,
        "pending": shown.pending,
        "rememberText": approval.remember.name if approval.remember is not None else None,
        "expiresAt": timestamp(approval.expires_at),
    }
    if left_out or cut:
        payload["truncated"] = {"hunks": left_out, "bytes": left_bytes, "args": cut}
    return payload


def announcement(method: str, approval: Approval) -> bytes:
    """A notification about a waiting approval; encoded once for all who are told together."""
    if approval.encoded is None or approval.encoded[0] != method:
        approval.encoded = (method, encode_announcement(method, approval))
    return approval.encoded[1]


def encode_announcement(method: str, approval: Approval) -> bytes:
    """A notification about a waiting approval, which fits a frame. Takes long for a heavy one: go to a thread."""
    message = encode(Notification(method=method, params=to_wire(approval)))
    if len(message) > MAX_FRAME_BYTES:
        message = encode(Notification(method=method, params=to_wire(approval, hunk_bytes=0, argument_bytes=0)))
    return message


def list_to_wire(approvals: Sequence[Approval], *, total_bytes: int = MAX_HUNK_BYTES) -> list[dict[str, Any]]:
    """Payloads of many approvals that fit one frame together: later ones lose their long texts first."""
    items: list[dict[str, Any]] = []
    left = total_bytes
    for approval in approvals:
        item = to_wire(approval, hunk_bytes=left, argument_bytes=min(left, MAX_ARGUMENT_BYTES))
        items.append(item)
        left_out = item.get("truncated", {}).get("bytes", 0)
        arguments = 0 if item.get("truncated", {}).get("args") else approval.argument_bytes
        left = max(0, left - (approval.hunk_bytes - left_out) - arguments)
    return items


def _cut(value: Any) -> Any:
    """Arguments with every long string cut, which says how long it was."""
    if isinstance(value, str):
        return value if len(value) <= _SHOWN_STRING else f"{value[:_SHOWN_STRING]}… ({len(value)} characters in all)"
    if isinstance(value, dict):
        return {key: _cut(entry) for key, entry in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_cut(entry) for entry in cast("list[Any]", value)]
    return value


def _fit(files: Sequence[FileChange], budget: int) -> tuple[Sequence[FileChange], int, int]:
    fitted: list[FileChange] = []
    left_out = left_bytes = 0
    for file in files:
        hunks: list[Hunk] = []
        for hunk in file.hunks:
            size = size_of(hunk)
            if size <= budget:
                budget -= size
                hunks.append(hunk)
                continue
            left_out += 1
            left_bytes += size
            hunks.append(msgspec.structs.replace(hunk, text=""))
        fitted.append(msgspec.structs.replace(file, hunks=hunks))
    return fitted, left_out, left_bytes


def size_of(hunk: Hunk) -> int:
    """What a hunk's text takes in JSON, nearly: each line end costs one byte more there."""
    return len(hunk.text.encode("utf-8", "surrogatepass")) + hunk.text.count("\n")

"""The one result shape of every tool (SPEC 3.12). The structs are the wire form: camelCase, absent when None."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from devtools_lsp.core.diagnostics import Diagnostic, Pending

ChangeKind = Literal["modified", "added", "deleted", "renamed"]


class Change(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One file's difference between acquisition and end. Unknown line counts are absent, never 0 (I12)."""

    path: str
    kind: ChangeKind
    from_: str | None = msgspec.field(default=None, name="from")
    added: int | None = None
    removed: int | None = None


class Read(msgspec.Struct, frozen=True, rename="camel"):
    """A window of a file: `start` and `end` are 1-based and inclusive; `end` < `start` for an empty file."""

    path: str
    start: int
    end: int
    total_lines: int
    text: str


class Written(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A mutation that is on the disk."""

    path: str
    kind: ChangeKind
    from_: str | None = msgspec.field(default=None, name="from")


class Normalized(msgspec.Struct, frozen=True, rename="camel"):
    """What text policy `normalize` changed about a file's bytes beyond the edit, e.g. `utf-8 crlf` to `utf-8 lf`."""

    path: str
    from_: str = msgspec.field(name="from")
    to: str


class Unreadable(msgspec.Struct, frozen=True, rename="camel"):
    """A file that an in-place engine left in a state that is not text any more."""

    path: str
    reason: str


class EngineUse(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An engine that took part. `config` names the configuration file that it used, absent when that is not known."""

    id: str
    version: str | None
    path: str | None
    config: str | None = None


class DiagnosticsDelta(msgspec.Struct, frozen=True, rename="camel"):
    """Findings introduced and resolved against the acquired state, and how many stayed; counts never cancel."""

    introduced: list[Diagnostic]
    resolved: list[Diagnostic]
    unchanged: int
    pending: list[Pending]


class DecisionReport(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the person took: `edited` paths and hunk ids whose text they changed, `dropped` hunk ids."""

    approved: bool
    edited: list[str]
    dropped: list[str]
    by: str
    note: str | None = None


class Result(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The outcome of one plan. `ok` is false exactly when an error diagnostic exists."""

    plan: str
    diagnostics: list[Diagnostic]
    changes: list[Change]
    reads: dict[str, Read]
    written: list[Written]
    unwritten: list[str]
    unreadable: list[Unreadable]
    normalized: list[Normalized]
    ok: bool
    line_counts_available: bool
    atomic: bool
    engines: list[EngineUse]
    delta: DiagnosticsDelta | None = None
    decision: DecisionReport | None = None

    def to_wire(self) -> dict[str, Any]:
        """Plain data with the wire's names, for clients, artifacts and tests."""
        return msgspec.to_builtins(self)

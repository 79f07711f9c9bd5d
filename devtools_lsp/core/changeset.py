"""A proposed change as a person sees it: files, hunks and their stable ids (SPEC 8.0.8).

Owns the data only; `core/hunks.py` computes hunks and applies a person's choice of them.
"""

from __future__ import annotations

import msgspec

from devtools_lsp.core.diagnostics import Diagnostic, Pending
from devtools_lsp.core.result import ChangeKind, Normalized


class Hunk(msgspec.Struct, frozen=True, rename="camel"):
    """One hunk. `text` is its unified-diff body (lines that start with blank, `+`, `-` or `\\`), without the `@@` line.

    Lines are 1-based as in unified diffs: a start of 0 with 0 lines means "before the first line".
    """

    id: str
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    text: str


class FileChange(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One file's part of a proposal. `base_hash` is the SHA-256 of the bytes it was computed from, None if absent."""

    path: str
    kind: ChangeKind
    base_hash: str | None
    hunks: list[Hunk]
    from_: str | None = msgspec.field(default=None, name="from")


class Preview(msgspec.Struct, frozen=True, rename="camel"):
    """What the approver is shown: the whole diff, its files, and what the warm checkers would say."""

    diff: str
    files: list[FileChange]
    normalized: list[Normalized]
    introduced: list[Diagnostic]
    resolved: list[Diagnostic]
    pending: list[Pending]

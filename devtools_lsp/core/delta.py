"""What an engine or a step says that it changed. Claims only: the runtime checks them (I10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from devtools_lsp.core.diagnostics import Finding, Pending


@dataclass(frozen=True, slots=True)
class Delta:
    """One engine's answer to one call.

    `changed` and `added` map root-relative paths to whole LF texts; `renamed` maps old to new paths.
    For an in-place engine the path sets are advice and the texts may be empty: the disk is read again.
    `fixed` are the findings, as they stood before, that an answer to `lint` with `fix` did away with; what is left
    is asked for afterwards, so `diagnostics` of such an answer are not taken.
    """

    changed: Mapping[str, str] = field(default_factory=dict[str, str])
    added: Mapping[str, str] = field(default_factory=dict[str, str])
    deleted: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    diagnostics: tuple[Finding, ...] = ()
    pending: tuple[Pending, ...] = ()
    fixed: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """A judging engine's view of two states of the workspace, for the per-plan delta (SPEC 3.12.4).

    `before` are the findings in the acquired texts and `after` those in the texts given, each over the files
    in `judged`, which may include files that were never acquired (dependents). `pending` says what was not
    judged and why.
    """

    before: tuple[Finding, ...] = ()
    after: tuple[Finding, ...] = ()
    judged: frozenset[str] = frozenset()
    pending: tuple[Pending, ...] = ()

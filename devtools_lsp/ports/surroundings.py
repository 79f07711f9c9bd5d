"""What else a plan meets: time, unsaved text in editors, who watches what happens, and counting lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.core.result import Written
from devtools_lsp.ports.gate import Decision, GateCall


class Clock(Protocol):
    """Time, so that tests own it."""

    def time(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Buffers(Protocol):
    """Unsaved text in attached editors."""

    def dirty(self, paths: Sequence[str]) -> list[str]:
        """Which of the paths have unsaved changes in some editor."""
        ...


class LandedFile(msgspec.Struct, frozen=True):
    """A file as it is after it landed: `ranges` are 1-based inclusive line ranges of what changed, as they are now."""

    path: str
    kind: str
    from_: str | None = None
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PlanIdentity:
    """Who runs a plan: shown to people and written to the activity log."""

    plan: str
    agent: str
    session: str = ""


class Observer(Protocol):
    """Told, synchronously and in order, what happens. Must not raise and must not block."""

    def gate_answered(self, who: PlanIdentity, call: GateCall, decision: Decision) -> None:
        """One gate call was answered."""
        ...

    def landed(self, who: PlanIdentity, step: str, files: Sequence[LandedFile], written: Sequence[Written]) -> None:
        """A step's mutations reached the disk."""
        ...

    def judged(
        self, who: PlanIdentity, engine_id: str, step: str, paths: Sequence[str], diagnostics: Sequence[Diagnostic]
    ) -> None:
        """A lint or check answered for `paths`, judged as they are on disk; replaces earlier findings."""
        ...

    def failed(self, who: PlanIdentity, step: str, code: str, paths: Sequence[str]) -> None:
        """A step failed with an error code."""
        ...


class LineCounter(Protocol):
    """Counts added and removed lines between two LF texts; lives in the optional extra `diff` (SPEC 3.12.3)."""

    def __call__(self, before: str, after: str) -> tuple[int, int]:
        """(added, removed)."""
        ...

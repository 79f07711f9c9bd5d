"""The activity log: one JSON line for each thing that happened, rotated (SPEC 8.0.13).

Owns the file, its size and which fields a line may have. No contents, no arguments, no secrets reach it: callers
can only name plans, steps, people and paths. It never fails whoever tells it: a full disk is said once in the
daemon's own log.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from devtools_lsp.daemon.approval_payload import timestamp
from devtools_lsp.ports import Clock

_log = logging.getLogger(__name__)

Event = Literal["gate", "landed", "failed", "engine", "approval"]

MAX_BYTES = 4 * 1024 * 1024
KEPT_FILES = 4
MAX_PATHS = 200
"""A line names at most this many paths; `morePaths` counts the others."""
_MAX_NAME = 200


class Line(msgspec.Struct, rename="camel", omit_defaults=True):
    """One line of the log: members without a default are always there."""

    time: str
    event: Event
    plan: str
    step: str | None = None
    agent: str | None = None
    verdict: str | None = None
    by: str | None = None
    paths: list[str] | None = None
    more_paths: int | None = None


class ActivityLog:
    """Appends lines to `path`; at `max_bytes` it becomes `path.1`, and of the older ones `kept_files` stay."""

    def __init__(self, path: Path, clock: Clock, *, max_bytes: int = MAX_BYTES, kept_files: int = KEPT_FILES) -> None:
        self.path = path
        self._clock = clock
        self._max_bytes = max_bytes
        self._kept_files = kept_files
        self._descriptor: int | None = None
        self._size = 0
        self._failing = False

    def record(
        self,
        event: Event,
        *,
        plan: str,
        step: str | None = None,
        agent: str | None = None,
        verdict: str | None = None,
        by: str | None = None,
        paths: Sequence[str] | None = None,
    ) -> None:
        """Append one line. A line is written in one call, so that readers never see half of one."""
        line = Line(
            time=timestamp(self._clock.time()),
            event=event,
            plan=plan,
            step=step,
            agent=agent[:_MAX_NAME] if agent is not None else None,
            verdict=verdict,
            by=by,
            paths=list(paths[:MAX_PATHS]) if paths is not None else None,
            more_paths=max(0, len(paths) - MAX_PATHS) or None if paths is not None else None,
        )
        try:
            self._append(_one_line(msgspec.json.encode(line)) + b"\n")
            self._failing = False
        except (OSError, UnicodeEncodeError) as error:
            if not self._failing:
                _log.warning("the activity log %s cannot be written: %s", self.path, error)
            self._failing = True

    def close(self) -> None:
        """Let go of the file; a later line opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _append(self, data: bytes) -> None:
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self.path, flags, 0o600)
            self._size = os.fstat(self._descriptor).st_size
        if self._size and self._size + len(data) > self._max_bytes:
            self._rotate()
            self._append(data)
            return
        self._size += os.write(self._descriptor, data)

    def _rotate(self) -> None:
        self.close()
        for number in range(self._kept_files - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                older.replace(self._numbered(number + 1))
        self.path.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


_LINE_ENDS = {"\u0085".encode(): b"\\u0085", "\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029"}


def _one_line(data: bytes) -> bytes:
    """JSON leaves some characters as they are that many readers take for the end of a line."""
    if not data.isascii():
        for character, escaped in _LINE_ENDS.items():
            data = data.replace(character, escaped)
    return data

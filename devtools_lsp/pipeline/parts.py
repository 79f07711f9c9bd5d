"""What a pipeline is made of, and what one execution of it is asked to do. Plain data; no behaviour."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from devtools_lsp.core.result import Result
from devtools_lsp.core.workspace import Workspace
from devtools_lsp.pipeline.path_locks import PathLocks
from devtools_lsp.pipeline.steps import CompiledStep
from devtools_lsp.ports import (
    Buffers,
    Cancellation,
    Candidate,
    Clock,
    DevEngine,
    FileSystem,
    Gate,
    Gauntlet,
    LineCounter,
    Observer,
    PathTranslator,
    PlanIdentity,
)
from devtools_lsp.text import TextPolicy


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one plan may acquire: files, bytes a file, bytes in all, and path components (SPEC 3.3.2)."""

    max_files: int = 500
    max_bytes_per_file: int = 2 * 1024 * 1024
    max_total_bytes: int = 32 * 1024 * 1024
    max_depth: int = 20


class SystemClock:
    """The machine's own time."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class StepContext(msgspec.Struct, frozen=True):
    """What step middleware is told; `stash` lives for one execution and is shared by its steps."""

    plan: str
    step: str
    index: int
    args: Mapping[str, Any]
    workspace: Workspace
    stash: dict[str, Any]


Continue = Callable[[], Awaitable[Workspace]]
StepMiddleware = Callable[[StepContext, Continue], Awaitable[Workspace]]
Selection = Callable[[str, Sequence[Candidate]], Sequence[Candidate]]


@dataclass(frozen=True, slots=True)
class PipelineParts:
    """Everything that a plan's execution uses. Built by the composition root, validated there."""

    root: str
    file_system: FileSystem
    gauntlet: Gauntlet
    gate: Gate
    engines: Callable[[], Sequence[DevEngine]]
    translator: PathTranslator
    handle: object = None
    selection: Selection | None = None
    middleware: tuple[StepMiddleware, ...] = ()
    bounds: Bounds = field(default_factory=Bounds)
    text: TextPolicy = "normalize"
    buffers: Buffers | None = None
    observer: Observer | None = None
    line_counter: LineCounter | None = None
    clock: Clock = field(default_factory=SystemClock)
    engine_deadline_s: float = 30.0
    preview_deadline_s: float = 2.0
    locks: PathLocks = field(default_factory=PathLocks)


class Witness(Protocol):
    """Somebody who must know the texts of a plan, such as a session that remembers what it has read."""

    def acquired(self, workspace: Workspace) -> None:
        """The files as acquisition found them; may refuse the plan by raising an error of the taxonomy."""
        ...

    def finished(self, workspace: Workspace) -> None:
        """The files as the plan left them."""
        ...


class PlanRequest(msgspec.Struct, frozen=True):
    """One execution: what to acquire, the steps, who asks.

    `paths` are literals and patterns, `literals` file names as they are (SPEC 3.2.1: a `path` argument is one, and so
    is what a patch names); `acquire_args` is what the caller authored for acquisition (`{}` where a
    path or a patch implies it); `persists` marks a granular call, whose single step is followed by a write that
    asks nothing. `optional` are paths that are acquired where they exist; when nothing is acquired through it, the
    question about acquisition falls away too. `witness` is told what was acquired and what it became. `foretold` may be
    told the result that a call which persists will have if all of it lands, while the disk is waited for.
    """

    paths: tuple[str, ...]
    acquire_args: Mapping[str, Any]
    steps: tuple[CompiledStep, ...]
    who: PlanIdentity
    signal: Cancellation
    persists: bool = False
    literals: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    witness: Witness | None = None
    foretold: Callable[[Result], None] | None = None

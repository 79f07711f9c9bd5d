"""The protocols between the rooms: what the pipeline asks of the world and what the world asks of it.

Everything here is a protocol or plain data; implementations live in `fs/`, `engines/`, `daemon/` and in the
programs that embed the pipeline. Paths are root-relative POSIX unless a name says `host`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, runtime_checkable

from devtools_lsp.core.changeset import Preview
from devtools_lsp.core.delta import Comparison, Delta
from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.core.result import EngineUse, Written

StepName = Literal["acquire", "read_lines", "edit", "apply_patch", "write", "format", "lint", "check"]
FileKind = Literal["file", "directory", "symlink", "other"]
Access = Literal["read", "write", "create", "delete", "restore"]


# -- cancellation and time ---------------------------------------------------------------------------------------


class Cancellation:
    """A one-way switch that a caller turns; everything that waits on its behalf looks at it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._callbacks: list[Callable[[], object]] = []
        self.reason = ""

    def cancel(self, reason: str = "cancelled by the caller") -> None:
        """Turn it; later calls change nothing."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()
            for callback in list(self._callbacks):
                callback()

    @property
    def cancelled(self) -> bool:
        """Whether it was turned."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Return when it is turned."""
        await self._event.wait()

    async def wait_or_done(self, work: asyncio.Future[Any], timeout_s: float | None = None) -> None:
        """Return when `work` is done, it is turned, or `timeout_s` is over; the work is neither ended nor read."""
        turned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        unsubscribe = self.subscribe(lambda: turned.set_result(None))
        try:
            await asyncio.wait({work, turned}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            unsubscribe()

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have `callback` called once when it is turned, now if it has been; returns what ends the subscription."""
        if self.cancelled:
            callback()
            return lambda: None
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)


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


# -- file system -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileStat:
    """What one path is: `size` in bytes; a `symlink` is reported only where links are not followed."""

    kind: FileKind
    size: int = 0


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One name in a directory."""

    name: str
    kind: FileKind


@runtime_checkable
class FileSystem(Protocol):
    """The four methods that every adapter has (SPEC 5.1); adapters are duck-typed.

    "Not found" is FileNotFoundError; any other error of `stat` is a refusal, never an absence. The optional
    methods `delete(path, signal=)`, `rename(source, target, signal=)` and `mkdir(path, signal=)` take a
    `Cancellation`; the others are described by `WindowedFileSystem`, `BatchFileSystem` and
    `TransactionalFileSystem`. `atomic = True` promises that `commit` is all or nothing across files, also after a
    crash.
    """

    async def stat(self, path: str) -> FileStat:
        """What the path is, links that stay inside followed; raises FileNotFoundError."""
        ...

    async def list(self, path: str) -> Sequence[DirectoryEntry]:
        """The names in a directory (`""` is the root), unsorted; raises FileNotFoundError."""
        ...

    async def read(self, path: str) -> bytes:
        """A regular file's whole content; raises FileNotFoundError."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Replace or create a file whose parent exists."""
        ...


@runtime_checkable
class WindowedFileSystem(Protocol):
    """An adapter that can read a part of a file without loading it."""

    async def read_window(self, path: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from byte `offset`."""
        ...


class BatchFileSystem(Protocol):
    """An adapter that looks at or reads many files in one go, which saves a thread hop a file.

    Links are followed and refused as by `stat` and `read`; what fails is an exception at its path.
    """

    async def stat_many(self, paths: Sequence[str]) -> Mapping[str, FileStat | Exception]:
        """What each path is."""
        ...

    async def read_many(self, paths: Sequence[str]) -> Mapping[str, bytes | Exception]:
        """Each file's whole content."""
        ...


def batching(file_system: FileSystem) -> BatchFileSystem | None:
    """The adapter again where it can do both, else None: whoever asks then goes file by file."""
    able = all(callable(getattr(file_system, name, None)) for name in ("stat_many", "read_many"))
    return cast("BatchFileSystem", file_system) if able else None


UNCHECKED = "unchecked"
"""An `expect` that compares nothing; no SHA-256 looks like it."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of the tree, with what must be true of its target before it.

    `write` takes `data`; `rename` takes `source`, and `path` is its destination. `expect` is the SHA-256 of the
    bytes that must be there (for `rename`: at the source), None for "nothing is there", and `UNCHECKED` to
    skip the comparison (the pipeline always knows). `mode` are the permission bits of a file that `write` brings
    into being; None leaves them to the system. A file that exists keeps its own.

    `rmdir` removes a directory that is empty once the others have landed and still is the one of inode `expect` (in
    decimal digits); any other stays, and that is no failure. Only an undo asks for it.

    `restores` names the before-image in the journal of what an undo brings back to a place where nothing is: the file
    gets its owner and attributes again, and its name is not held to the rules for new ones.
    """

    kind: Literal["write", "delete", "rename", "mkdir", "rmdir"]
    path: str
    data: bytes = b""
    source: str | None = None
    expect: str | None = UNCHECKED
    mode: int | None = None
    restores: str = ""


@runtime_checkable
class TransactionalFileSystem(Protocol):
    """An adapter whose `commit` is journalled: all mutations land or none, also across a crash (SPEC 5.3)."""

    atomic: bool

    async def commit(self, plan: str, mutations: Sequence[Mutation]) -> None:
        """Land all mutations or none. Raises ConflictError, naming every path, when an `expect` does not hold.

        The ordering is the caller's; missing parents were created by earlier `mkdir` mutations of the list.
        """
        ...


class PathTranslator(Protocol):
    """Maps root-relative paths to the adapter's own, and takes host paths out of messages."""

    def to_adapter(self, path: str) -> str:
        """The adapter's path of a root-relative one."""
        ...

    def redact(self, message: str) -> str:
        """The message with absolute paths under the root made relative and others removed."""
        ...


# -- gauntlet ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Permit:
    """Proof that the gate approved one step: what it may touch. Only the pipeline makes one (I1).

    `targets` are concrete paths, `may_create` patterns or paths that may come into being.
    """

    plan: str
    step_index: int
    step: str
    targets: frozenset[str]
    may_create: tuple[str, ...] = ()


class Gauntlet(Protocol):
    """The only way from the pipeline to a changed disk: the eight stages of SPEC 5.2, in order (I4)."""

    def lexical(self, raw: str) -> str:
        """Stages 2 and 3 on a path that somebody wrote: the root-relative path; raises PolicyError."""
        ...

    async def screen(self, raw: str, access: Access) -> str:
        """Stages 2 to 6 without mutating, for paths that a plan will read or mutate; raises PolicyError.

        Run before the gate is asked, so that what could not land is never asked (SPEC 4.3).
        """
        ...

    async def screen_many(self, raws: Sequence[tuple[str, Access]]) -> list[str]:
        """`screen` for paths that a plan will read or mutate together: what only all of them show is refused, too."""
        ...

    async def look_many(self, raws: Sequence[tuple[str, Access]]) -> Mapping[str, FileStat | None] | None:
        """`screen_many` and what each path below the root is (None where nothing is), in one go; None when the file
        system can only be asked about one path at a time.
        """
        ...

    def judge_text(self, path: str, text: str) -> None:
        """Stage 5 on what a root-relative path would hold, as far as that is known before the gate is asked.

        Raises PolicyError; `commit` judges the bytes again.
        """
        ...

    async def commit(self, permit: Permit, mutations: Sequence[Mutation], landed: Callable[[Mutation], None]) -> None:
        """All eight stages for each mutation, in the order given; `landed` is called as each reaches the disk.

        On a transactional file system the list lands as a whole or not at all, and `landed` is called for each
        afterwards. Raises PolicyError, ConflictError or StepFailedError; what `landed` reported is then what is
        on the disk (I6). A commit that has begun is finished and reported when its caller is cancelled meanwhile.
        """
        ...

    @property
    def atomic(self) -> bool:
        """Whether `commit` is all or nothing."""
        ...

    @property
    def methods(self) -> frozenset[str]:
        """Which of `delete`, `rename`, `mkdir`, `read_window`, `commit` the file system has."""
        ...


# -- engines -----------------------------------------------------------------------------------------------------


class Facade(Protocol):
    """What an in-place engine gets instead of the disk: bounded by scope, `needs` and the gauntlet (SPEC 3.10)."""

    @property
    def scope(self) -> tuple[str, ...]:
        """The patterns that bound every call below."""
        ...

    async def read(self, path: str) -> bytes:
        """A file's bytes."""
        ...

    async def exists(self, path: str) -> bool:
        """Whether something is there."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Replace a file, or create one where nothing is."""
        ...

    async def delete(self, path: str) -> None:
        """Delete a file; only with `delete` in `needs`."""
        ...

    async def rename(self, source: str, target: str) -> None:
        """Move a file to where nothing is; only with `rename` in `needs`."""
        ...

    async def mkdir(self, path: str) -> None:
        """Make a directory; only with `mkdir` in `needs`."""
        ...


@dataclass(frozen=True, slots=True)
class EngineCall:
    """What an engine is asked, once a step.

    `paths` are the files to work on; `texts` the plan's whole workspace as it stands; `acquired` the same as
    acquisition found it; `disk` what is on disk now, None where the file is absent there. `deadline_s` bounds
    the answer in seconds from now. `facade` is given to in-place engines only. `handle` is the embedder's.
    """

    engine_id: str
    step: Literal["format", "lint", "check"]
    paths: tuple[str, ...]
    texts: Mapping[str, str]
    acquired: Mapping[str, str]
    disk: Mapping[str, str | None]
    signal: Cancellation
    fix: bool = False
    deadline_s: float = 30.0
    facade: Facade | None = None
    handle: object = None


Run = Callable[[EngineCall], Awaitable[Delta]]
Compare = Callable[[EngineCall], Awaitable[Comparison]]


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing an engine can do, as plain data.

    `extensions` are lower-case without the dot; `*` stands for all and `""` for names without one. `generates`
    may run without matching paths and may add files that match `creates`. `fixable` (lint) says that `fix` is
    understood. `in_place` engines change the disk themselves, inside the patterns of `scope`, with the optional
    powers in `needs` (`delete`, `rename`, `mkdir`). `compare` judges the acquired and the given texts in one go
    (lint and check); without it the runtime calls `run` on both.
    """

    run: Run
    extensions: frozenset[str] = frozenset({"*"})
    generates: bool = False
    creates: tuple[str, ...] = ()
    fixable: bool = False
    in_place: bool = False
    scope: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()
    compare: Compare | None = None

    def handles(self, extension: str) -> bool:
        """Whether files of this extension (see `paths.extension_of`) are its business."""
        return "*" in self.extensions or extension in self.extensions


@dataclass(frozen=True, slots=True)
class DevEngine:
    """An engine: plain data. Discovery reads it and runs nothing; the core ships none (SPEC 6.1)."""

    id: str
    formats: tuple[Capability, ...] = ()
    lints: tuple[Capability, ...] = ()
    checks: tuple[Capability, ...] = ()
    describe: Callable[[], EngineUse] | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """An engine's capability with the files it would get: what selection middleware sees."""

    engine: DevEngine
    capability: Capability
    paths: tuple[str, ...]


# -- gate --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GateCall:
    """The question, exactly as SPEC 4.1: authored `args`, resolved `targets`, what may be created, which engines."""

    step: str
    args: Mapping[str, Any]
    targets: tuple[str, ...]
    may_create: tuple[str, ...] = ()
    engines: tuple[str, ...] | None = None

    def to_wire(self) -> dict[str, Any]:
        """The wire form: `{step, args, targets, mayCreate, engines}`."""
        return {
            "step": self.step,
            "args": dict(self.args),
            "targets": list(self.targets),
            "mayCreate": list(self.may_create),
            "engines": list(self.engines) if self.engines is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Edited:
    """A person's own text in place of the proposal: of a whole file (`path`) or of one hunk (`hunk_id`)."""

    text: str
    path: str | None = None
    hunk_id: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The gate's answer. `by` names who or what decided (`rule`, `editor`, `terminal`, ...).

    A decline carries `reason` and `note` for the agent; `withdrawn` says that the asker left before anybody
    answered, and is only reported, never given. `person` is
    true when somebody looked at the preview, so that `edited` and `dropped` (hunk ids) may be present.
    """

    approved: bool
    by: str
    note: str | None = None
    reason: Literal["denied", "expired", "noDecider", "stale", "withdrawn"] = "denied"
    edited: tuple[Edited, ...] = ()
    dropped: tuple[str, ...] = ()
    person: bool = False


@dataclass(frozen=True, slots=True)
class GateContext:
    """Who asks, where in which plan, and the lazily computed preview (SPEC 4.4)."""

    plan: str
    step_index: int
    agent: str
    signal: Cancellation
    diff: Callable[[], Awaitable[Preview]]
    """The proposal's files and diff alone, without consequences: quick, so that it can be shown at once."""
    preview: Callable[[], Awaitable[Preview]]
    """The proposal with its diff and consequences; computed once, and only when somebody asks."""
    session: str = ""
    in_place: bool = False
    handle: object = None
    """The embedder's own, as it was given to `create_dev_pipeline`."""


class Gate(Protocol):
    """The one function asked before each step. The pipeline owns the asking; embedders own the answer."""

    async def __call__(self, context: GateContext, call: GateCall) -> Decision:
        """Answer, sooner or later: every implementation bounds its own wait."""
        ...


# -- the rest of the world ---------------------------------------------------------------------------------------


class Buffers(Protocol):
    """Unsaved text in attached editors."""

    def dirty(self, paths: Sequence[str]) -> list[str]:
        """Which of the paths have unsaved changes in some editor."""
        ...


@dataclass(frozen=True, slots=True)
class LandedFile:
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

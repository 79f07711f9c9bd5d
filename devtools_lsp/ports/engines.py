"""What formats, lints and checks: an engine as plain data, what it is asked, and what it gets instead of the disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from devtools_lsp.core.delta import Comparison, Delta
from devtools_lsp.core.result import EngineUse
from devtools_lsp.ports.cancellation import Cancellation


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

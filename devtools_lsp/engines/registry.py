"""All engines of one root: built from their specs, started, told of changes on disk, listed, replaced and stopped.

Owns the set of engines and what they share (the project tree, the guard). It refuses to know what a plan is: it
hands out `DevEngine` values and the pipeline calls them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from devtools_lsp.core.result import EngineUse
from devtools_lsp.engines.guard import Guard
from devtools_lsp.engines.judging import Judge
from devtools_lsp.engines.language_server import LanguageServerEngine
from devtools_lsp.engines.locate import locate_server
from devtools_lsp.engines.server import LanguageServer, OnEvent, missing_reason
from devtools_lsp.engines.spec import EngineSpec
from devtools_lsp.engines.tree import FileEvent, ProjectTree
from devtools_lsp.ports import Capability, DevEngine


class EngineStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One engine as `devtools/status` shows it (SPEC 8.0.5)."""

    id: str
    state: str
    version: str | None
    path: str | None
    generation: int
    pid: int | None = None
    rss_bytes: int | None = None
    reason: str | None = None


class _Entry:
    """One configured engine with whatever runs it."""

    def __init__(self, spec: EngineSpec, root: Path, tree: ProjectTree, guard: Guard, on_event: OnEvent) -> None:
        self.spec = spec
        self.root = root
        self.config: Path | None = None
        self._version: str | None = None
        self.server: LanguageServer | None = None
        self.located = locate_server(spec, root)
        self.engine: DevEngine | None = None
        if self.located is None:
            return
        if spec.kind == "language-server":
            self.server = LanguageServer(spec, root, guard, on_event)
            self.server.located = self.located
            self._serve(LanguageServerEngine(self.server, Judge(self.server.spec, tree)))

    def _serve(self, served: LanguageServerEngine) -> None:
        spec = self.spec
        extensions = frozenset(spec.extensions)
        formats = Capability(run=served.format, extensions=extensions)
        lints = Capability(
            run=served.lint, extensions=extensions, fixable="fix" in spec.capabilities, compare=served.compare
        )
        checks = Capability(run=served.judge, extensions=extensions, compare=served.compare)
        self.engine = DevEngine(
            id=spec.id,
            formats=(formats,) if "format" in spec.capabilities else (),
            lints=(lints,) if "lint" in spec.capabilities else (),
            checks=(checks,) if "check" in spec.capabilities else (),
            describe=self.describe,
        )

    def describe(self) -> EngineUse:
        """Which program answers, and with which configuration the last call was answered."""
        return EngineUse(id=self.spec.id, version=self.version, path=self.program, config=self._shown(self.config))

    @property
    def version(self) -> str | None:
        """What the program says it is, once it has been asked."""
        return (self.server.version if self.server is not None else None) or self._version

    @property
    def program(self) -> str | None:
        """The program's path, relative where it lies under the root."""
        return self._shown(Path(self.located.program)) if self.located is not None else None

    def _shown(self, path: Path | None) -> str | None:
        if path is None:
            return None
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)

    def status(self) -> EngineStatus:
        """This engine's line of `devtools/status`."""
        if self.located is None:
            return EngineStatus(
                id=self.spec.id,
                state="missing",
                version=None,
                path=None,
                generation=0,
                reason=missing_reason(self.spec),
            )
        server = self.server
        if server is None:
            return EngineStatus(id=self.spec.id, state="ready", version=self.version, path=self.program, generation=0)
        session = server.current
        return EngineStatus(
            id=self.spec.id,
            state=server.state,
            version=self.version,
            path=self.program,
            generation=server.generation,
            pid=session.pid if session is not None else None,
            rss_bytes=resident_bytes(session.pid) if session is not None else None,
            reason=server.reason,
        )


def resident_bytes(pid: int) -> int | None:
    """Resident memory of a process and its descendants; None when it is gone."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return None
    total = 0
    for member in family:
        try:
            total += member.memory_info().rss
        except psutil.Error:
            continue  # It ended while we looked.
    return total


class EngineRegistry:
    """The engines of one root. Build, `await start()`, give `engines` to the pipeline, `await close()`.

    An engine that is not installed does not prevent anything: it is absent from `engines`, and `status()` names
    the remedy. `on_event(engine id, what, details)` is told what happens to the processes.
    """

    def __init__(self, root: str | Path, specs: Iterable[EngineSpec], *, on_event: OnEvent | None = None) -> None:
        self.root = Path(root).resolve()
        self._on_event = on_event or _nobody
        self._guard = Guard()
        self._tree = ProjectTree(self.root)
        self._entries = {spec.id: self._entry(spec) for spec in specs}
        self._started = False

    def _entry(self, spec: EngineSpec) -> _Entry:
        return _Entry(spec, self.root, self._tree, self._guard, self._on_event)

    @property
    def engines(self) -> Sequence[DevEngine]:
        """What is installed, in the order of the configuration."""
        return [entry.engine for entry in self._entries.values() if entry.engine is not None]

    async def start(self) -> None:
        """Begin to start every language server, in the background: a call that comes earlier waits within its time."""
        self._started = True
        for entry in self._entries.values():
            self._warm(entry)

    def _warm(self, entry: _Entry) -> None:
        if entry.server is not None and entry.spec.start == "eager":
            entry.server.warm()

    async def reconfigure(self, specs: Iterable[EngineSpec]) -> None:
        """Take another list of engines: unchanged ones go on, changed and removed ones stop, new ones start."""
        wanted = {spec.id: spec for spec in specs}
        kept: dict[str, _Entry] = {}
        leaving = [entry for engine_id, entry in self._entries.items() if not _same(entry, wanted.get(engine_id))]
        for engine_id, spec in wanted.items():
            known = self._entries.get(engine_id)
            kept[engine_id] = known if known is not None and known not in leaving else self._entry(spec)
        fresh = [entry for engine_id, entry in kept.items() if self._entries.get(engine_id) is not entry]
        self._entries = kept
        if self._started:
            for entry in fresh:
                self._warm(entry)
        await _stop(leaving)

    def status(self) -> list[EngineStatus]:
        """One line an engine; reads the process table (about a millisecond an engine)."""
        return [entry.status() for entry in self._entries.values()]

    async def files_changed(self, events: Sequence[FileEvent]) -> None:
        """Something changed on disk, by ourselves or from outside: every engine learns of it before its next answer."""
        self._tree.note(events)

    async def close(self) -> None:
        """Stop everything and reap it; the registry is of no use afterwards."""
        await _stop(self._entries.values())
        await asyncio.to_thread(self._guard.close)


def _same(entry: _Entry, spec: EngineSpec | None) -> bool:
    """Whether an entry can go on as it is: same spec, and not one that was missing and may be installed by now."""
    return entry.spec == spec and entry.located is not None


async def _stop(entries: Iterable[_Entry]) -> None:
    servers = [entry.server for entry in entries if entry.server is not None]
    await asyncio.gather(*(server.close() for server in servers))


def _nobody(engine_id: str, what: str, details: Mapping[str, Any]) -> None:
    del engine_id, what, details

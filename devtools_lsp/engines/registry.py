"""All engines of one root: built from their specs, started, told of changes on disk, listed, replaced and stopped.

Owns the set of engines and what they share (the project tree, the guard). It refuses to know what a plan is: it
hands out `DevEngine` values and the pipeline calls them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from devtools_lsp.core.result import EngineUse
from devtools_lsp.engines.command import CommandEngine
from devtools_lsp.engines.dmypy import DmypyEngine
from devtools_lsp.engines.guard import Guard
from devtools_lsp.engines.judging import Judge
from devtools_lsp.engines.language_server import LanguageServerEngine
from devtools_lsp.engines.locate import locate_command, locate_server
from devtools_lsp.engines.process import LaunchError, engine_environment, run_command
from devtools_lsp.engines.scratch import remove_scratch, scratch_directory
from devtools_lsp.engines.server import LanguageServer, OnEvent, missing_reason
from devtools_lsp.engines.spec import EngineSpec
from devtools_lsp.engines.tree import FileEvent, ProjectTree
from devtools_lsp.ports import Capability, DevEngine, Run

VERSION_TIMEOUT_S = 30.0
_NOTED_AT_ONCE = 100
"""Changed files that are looked at in one turn of the loop: some ten microseconds each, and more on slow systems."""
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")


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

    def __init__(self, spec: EngineSpec, home: Path, tree: ProjectTree, guard: Guard, on_event: OnEvent) -> None:
        self.spec = spec
        self._home = home
        self._guard = guard
        self._version: str | None = None
        self.server: LanguageServer | None = None
        self.served: LanguageServerEngine | None = None
        self.command: CommandEngine | None = None
        self.daemon: DmypyEngine | None = None
        self.engine: DevEngine | None = None
        self.located = locate_server(spec, home)
        self._cache: Path | None = None
        if self.located is None:
            return
        if spec.private_cache:
            self._cache = scratch_directory("cache")
            spec = msgspec.structs.replace(spec, environment={**spec.environment, "XDG_CACHE_HOME": str(self._cache)})
        if spec.warm == "dmypy":
            self.daemon = DmypyEngine(spec, tree, guard, home=home)
        elif spec.kind == "language-server":
            self.server = LanguageServer(spec, tree, guard, on_event, home=home)
            self.server.located = self.located
            self.served = LanguageServerEngine(self.server, Judge(self.server.spec, tree))
        if any(spec.command_for(ability) is not None for ability in spec.capabilities):
            self.command = CommandEngine(spec, tree, guard, home=home)
        self.engine = self._engine()

    def _engine(self) -> DevEngine:
        spec = self.spec
        served = self.served
        return DevEngine(
            id=spec.id,
            formats=self._formats(served) if "format" in spec.capabilities else (),
            lints=self._lints(served) if "lint" in spec.capabilities else (),
            checks=self._checks(served) if "check" in spec.capabilities else (),
            describe=self.describe,
        )

    def _formats(self, served: LanguageServerEngine | None) -> tuple[Capability, ...]:
        command = self.spec.command_for("format")
        if command is not None and self.command is not None:
            if command.input == "in-place":
                return (self._in_place(self.command.format_in_place),)
            return (Capability(run=self.command.format, extensions=self._extensions),)
        return (Capability(run=served.format, extensions=self._extensions),) if served is not None else ()

    def _lints(self, served: LanguageServerEngine | None) -> tuple[Capability, ...]:
        fixable = "fix" in self.spec.capabilities
        if self.spec.command_for("lint") is not None and self.command is not None:
            fixing = self.spec.command_for("fix") if fixable else None
            if fixing is not None and fixing.input == "in-place":
                return (self._in_place(self.command.lint_in_place, fixable=True),)
            return (Capability(run=self.command.lint, extensions=self._extensions, fixable=fixable),)
        if served is None:
            return ()
        return (Capability(run=served.lint, extensions=self._extensions, fixable=fixable, compare=served.compare),)

    def _checks(self, served: LanguageServerEngine | None) -> tuple[Capability, ...]:
        if self.daemon is not None:
            return (Capability(run=self.daemon.check, extensions=self._extensions, compare=self.daemon.compare),)
        if self.spec.command_for("check") is not None and self.command is not None:
            return (Capability(run=self.command.check, extensions=self._extensions),)
        if served is None:
            return ()
        return (Capability(run=served.judge, extensions=self._extensions, compare=served.compare),)

    def _in_place(self, run: Run, *, fixable: bool = False) -> Capability:
        spec = self.spec
        scope = spec.scope or tuple(f"**/*.{extension}" for extension in spec.extensions if extension not in ("", "*"))
        return Capability(
            run=run,
            extensions=self._extensions,
            fixable=fixable,
            in_place=True,
            scope=scope or ("**",),
            needs=frozenset(spec.needs),
        )

    @property
    def _extensions(self) -> frozenset[str]:
        return frozenset(self.spec.extensions)

    async def close(self) -> None:
        """Stop and reap what runs, remove what was left on disk."""
        if self.served is not None:
            await self.served.close()
        if self.daemon is not None:
            await self.daemon.close()
        if self.command is not None:
            await asyncio.to_thread(self.command.close)
        if self._cache is not None:
            await asyncio.to_thread(remove_scratch, self._cache)

    def describe(self) -> EngineUse:
        """Which program answers, and with which configuration the last call was answered."""
        return EngineUse(id=self.spec.id, version=self.version, path=self.program, config=self._shown(self.config))

    @property
    def config(self) -> Path | None:
        """The configuration file that the last call was answered with, as far as it is known."""
        for part in (self.served, self.daemon, self.command):
            if part is not None and part.config is not None:
                return part.config
        return None

    @property
    def version(self) -> str | None:
        """What the program says it is, once it has been asked."""
        said = self.server.version if self.server is not None else None
        if said is None:
            return self._version
        match = _VERSION.search(said)
        return match.group() if match else said

    async def ask_version(self) -> None:
        """Ask the program itself, unless its server says it anyway."""
        if self.server is not None:
            await asyncio.wait({self.server.warm()})
        if self.version is not None or not self.spec.version:
            return
        self._version = await program_version(self.spec, self._home, self._guard)

    @property
    def program(self) -> str | None:
        """The program's path, relative where it lies under the root."""
        return self._shown(Path(self.located.program)) if self.located is not None else None

    def _shown(self, path: Path | None) -> str | None:
        if path is None:
            return None
        return path.relative_to(self._home).as_posix() if path.is_relative_to(self._home) else str(path)

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
        pid, generation, state, reason = None, 0, "ready", None
        if self.server is not None:
            session = self.server.current
            pid = session.pid if session is not None else None
            generation, state, reason = self.server.generation, str(self.server.state), self.server.reason
        elif self.daemon is not None:
            pid, generation, reason = self.daemon.pid, self.daemon.generation, self.daemon.reason
            state = "restarting" if reason else "ready" if pid else "stopped"
        return EngineStatus(
            id=self.spec.id,
            state=state,
            version=self.version,
            path=self.program,
            generation=generation,
            pid=pid,
            rss_bytes=resident_bytes(pid) if pid is not None else None,
            reason=reason,
        )


async def program_version(spec: EngineSpec, root: Path, guard: Guard) -> str | None:
    """The first version number that the engine's `version` command prints; None when it prints none."""
    located = locate_command(spec, spec.version, root)
    if located is None:
        return None
    try:
        completed = await run_command(
            located.command,
            cwd=root,
            environment=engine_environment(spec.environment),
            guard=guard,
            name=f"{spec.id}.version",
            timeout_s=VERSION_TIMEOUT_S,
        )
    except LaunchError:
        return None
    match = _VERSION.search(completed.stdout.decode("utf-8", "replace"))
    return match.group() if match else None


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

    def __init__(
        self,
        root: str | Path,
        specs: Iterable[EngineSpec],
        *,
        on_event: OnEvent | None = None,
        home: Path | None = None,
    ) -> None:
        """`home` is where programs are looked for, if that is not the root itself (a probe in another directory)."""
        self.root = Path(root).resolve()
        self._home = home or self.root
        self._on_event = on_event or _nobody
        self._guard = Guard()
        self._tree = ProjectTree(self.root)
        self._entries = {spec.id: self._entry(spec) for spec in specs}
        self._started = False
        self._tasks: set[asyncio.Task[None]] = set()

    def _entry(self, spec: EngineSpec) -> _Entry:
        return _Entry(spec, self._home, self._tree, self._guard, self._on_event)

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
        if entry.spec.start == "lazy":
            return
        if entry.served is not None:
            entry.served.warm()
        for work in (entry.ask_version(), *((entry.daemon.warm(),) if entry.daemon is not None else ())):
            task = asyncio.get_running_loop().create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

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

    async def ask_versions(self) -> None:
        """Ask every program for its version now; otherwise `start` does so in the background."""
        await asyncio.gather(*(entry.ask_version() for entry in self._entries.values()))

    def status(self) -> list[EngineStatus]:
        """One line an engine; reads the process table (about a millisecond an engine)."""
        return [entry.status() for entry in self._entries.values()]

    def skipped(self) -> list[str]:
        """What the engines do not know of the project, in words."""
        return [self._tree.limited] if self._tree.limited is not None else []

    async def files_changed(self, events: Sequence[FileEvent]) -> None:
        """Something changed on disk, by ourselves or from outside: every engine learns of it before its next answer.

        Noted a few at a time, since each is looked at; an engine that is asked meanwhile sweeps the tree first.
        """
        for start in range(0, len(events), _NOTED_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            self._tree.note(events[start : start + _NOTED_AT_ONCE])
        for entry in self._entries.values():
            if entry.served is not None:
                entry.served.disk_changed()

    async def close(self) -> None:
        """Stop everything and reap it; the registry is of no use afterwards."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await _stop(self._entries.values())
        await asyncio.to_thread(self._guard.close)


def _same(entry: _Entry, spec: EngineSpec | None) -> bool:
    """Whether an entry can go on as it is: same spec, and not one that was missing and may be installed by now."""
    return entry.spec == spec and entry.located is not None


async def _stop(entries: Iterable[_Entry]) -> None:
    await asyncio.gather(*(entry.close() for entry in entries))


def _nobody(engine_id: str, what: str, details: Mapping[str, Any]) -> None:
    del engine_id, what, details

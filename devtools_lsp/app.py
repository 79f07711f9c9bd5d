"""The composition root: from a configuration, or from an embedder's own parts, to a pipeline that runs.

The only module that knows every room. It decides nothing that a room could decide itself.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from devtools_lsp.agent import shell_processes
from devtools_lsp.agent.artifacts import ArtifactStore
from devtools_lsp.agent.forge import SurfaceName, ToolSet, forge_dev_tools
from devtools_lsp.agent.sessions import SessionMemory
from devtools_lsp.agent.shell import ShellSettings, confinement
from devtools_lsp.agent.workspace_tools import WorkspaceTools
from devtools_lsp.config import FILE_NAME, Configuration
from devtools_lsp.discovery import is_too_wide
from devtools_lsp.engines.registry import EngineRegistry
from devtools_lsp.engines.server import OnEvent
from devtools_lsp.errors import InvalidConfigError, StepUnavailableError
from devtools_lsp.fs.gauntlet import WriteGauntlet
from devtools_lsp.fs.opening import OpenedRoot, open_local
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.translate import RootTranslator
from devtools_lsp.line_counts import line_counter
from devtools_lsp.pipeline.declarations import check_engine
from devtools_lsp.pipeline.parts import Bounds, PipelineParts, Selection, StepMiddleware, SystemClock
from devtools_lsp.pipeline.pipeline import DevPipeline
from devtools_lsp.ports import (
    Buffers,
    Clock,
    DevEngine,
    FileSystem,
    Gate,
    LineCounter,
    Observer,
    PathTranslator,
)

_OPTIONS = frozenset(
    {
        "root",
        "file_system",
        "policy",
        "gate",
        "engines",
        "path_translator",
        "handle",
        "selection",
        "use",
        "bounds",
        "text",
        "buffers",
        "observer",
        "line_counter",
        "clock",
        "read_only",
    }
)
_OBSERVER = ("gate_answered", "landed", "judged", "failed")
_CLOCK = ("time", "monotonic", "sleep")


def create_dev_pipeline(**options: Any) -> DevPipeline:
    """A pipeline over an embedder's own parts (SPEC 3.0).

    Required: `root` (absolute path), `file_system` (four methods suffice), `policy` (a `PathPolicy`; None refuses
    every write), `gate` (an async function of context and call), `engines` (a sequence of DevEngine, or a function
    that returns one). Optional: `path_translator`, `handle` (opaque, passed to engines), `selection`, `use` (step
    middleware), `bounds` (a `Bounds` or a mapping of its fields), `text` (`normalize` or `preserve`), `buffers`,
    `observer`, `line_counter`, `clock`, `read_only`.

    Raises InvalidConfigError that names the key; nothing fails later for a reason that could be seen here.
    """
    for key in options:
        if key not in _OPTIONS:
            raise InvalidConfigError(f"unknown key {key!r}; known: {', '.join(sorted(_OPTIONS))}")
    for key in ("root", "file_system", "policy", "gate", "engines"):
        if key not in options:
            raise InvalidConfigError(f"key {key!r} is missing")
    root = _checked_root(options["root"])
    file_system = cast("FileSystem", options["file_system"])
    for method in ("stat", "list", "read", "write"):
        if not callable(getattr(file_system, method, None)):
            raise InvalidConfigError(f"file_system has no method {method!r}; stat, list, read and write are required")
    if not callable(options["gate"]):
        raise InvalidConfigError("gate must be an async function of (context, call)")
    policy: PathPolicy | None = options["policy"]
    if policy is not None and not isinstance(policy, PathPolicy):  # pyright: ignore[reportUnnecessaryIsInstance] -- embedders
        raise InvalidConfigError("policy must be a PathPolicy, or None to refuse every write")
    text = options.get("text", "normalize")
    if text not in ("normalize", "preserve"):
        raise InvalidConfigError(f"text must be 'normalize' or 'preserve', not {text!r}")
    own_paths = _with_methods("path_translator", options.get("path_translator"), "to_adapter", "redact")
    translator = cast("PathTranslator | None", own_paths) or RootTranslator(root)
    parts = PipelineParts(
        root=root,
        file_system=file_system,
        gauntlet=WriteGauntlet(root, file_system, policy, translator),
        gate=cast("Gate", options["gate"]),
        engines=_engine_source(options["engines"]),
        translator=translator,
        handle=options.get("handle"),
        selection=cast("Selection | None", _callable_or_none("selection", options.get("selection"))),
        middleware=_middleware(options.get("use", ())),
        bounds=_bounds(options.get("bounds")),
        text=text,
        buffers=cast("Buffers | None", _with_methods("buffers", options.get("buffers"), "dirty")),
        observer=cast("Observer | None", _with_methods("observer", options.get("observer"), *_OBSERVER)),
        line_counter=cast("LineCounter | None", _callable_or_none("line_counter", options.get("line_counter"))),
        clock=cast("Clock | None", _with_methods("clock", options.get("clock"), *_CLOCK)) or SystemClock(),
    )
    read_only = options.get("read_only", False)
    if not isinstance(read_only, bool):
        raise InvalidConfigError(f"read_only must be true or false, not {read_only!r}")
    return DevPipeline(parts, read_only=read_only)


def _checked_root(root: object) -> str:
    if isinstance(root, Path):
        root = str(root)
    if not isinstance(root, str) or not root.startswith("/"):
        raise InvalidConfigError(f"root must be an absolute path, not {root!r}")
    absolute = os.path.normpath("/" + root.lstrip("/"))
    if is_too_wide(absolute):
        raise InvalidConfigError(f"root may not be {absolute}: it is too wide; name a project")
    return absolute


def _with_methods(key: str, value: object, *methods: str) -> object:
    """A part that is looked at by its methods; None where it was not given."""
    for method in methods:
        if value is not None and not callable(getattr(value, method, None)):
            raise InvalidConfigError(f"{key} has no method {method!r}; it needs {', '.join(methods)}")
    return value


def _callable_or_none(key: str, value: object) -> object:
    if value is not None and not callable(value):
        raise InvalidConfigError(f"{key} must be a function")
    return value


def _middleware(value: object) -> tuple[StepMiddleware, ...]:
    if not isinstance(value, Iterable):
        raise InvalidConfigError("use must be a list of step middleware functions")
    entries = tuple(cast("Iterable[StepMiddleware]", value))
    for entry in entries:
        _callable_or_none("use", entry)
    return entries


def _bounds(value: object) -> Bounds:
    if value is None:
        return Bounds()
    given: Mapping[str, Any]
    if isinstance(value, Bounds):
        given = {field.name: getattr(value, field.name) for field in dataclasses.fields(Bounds)}
    elif isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
    else:
        raise InvalidConfigError("bounds must be a Bounds or a mapping of its fields")
    known = {field.name for field in dataclasses.fields(Bounds)}
    for key, number in given.items():
        if key not in known:
            raise InvalidConfigError(f"bounds.{key}: unknown key; known: {', '.join(sorted(known))}")
        if type(number) is not int or number < 1:
            raise InvalidConfigError(f"bounds.{key} must be an integer >= 1, not {number!r}")
    return Bounds(**given)


def _engine_source(value: object) -> Callable[[], Sequence[DevEngine]]:
    if callable(value):
        return cast("Callable[[], Sequence[DevEngine]]", value)
    if not isinstance(value, Iterable):
        raise InvalidConfigError("engines must be a list of DevEngine, or a function that returns one")
    engines = tuple(check_engine(engine) for engine in cast("Iterable[object]", value))
    seen: set[str] = set()
    for engine in engines:
        if engine.id in seen:
            raise InvalidConfigError(f"engines: the id {engine.id!r} is used twice")
        seen.add(engine.id)
    return lambda: engines


@dataclass(slots=True)
class _Serving:
    """One root as one configuration opened it, and how many calls still run on it."""

    configuration: Configuration
    opened: OpenedRoot
    pipeline: DevPipeline
    running: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """What the outside gives a composed root: who answers the gate, unsaved buffers, who is told what happens."""

    gate: Gate
    buffers: Buffers | None = None
    observer: Observer | None = None
    clock: Clock = field(default_factory=SystemClock)
    own_paths: tuple[str, ...] = ()
    """Absolute paths that no tool may ever touch: state directory, socket, lock."""
    check_command: Callable[[str], None] | None = None
    redact: Callable[[str], str] | None = None
    """The shell's hooks, as `agent.shell.ShellSettings` says them."""


class _Lease:
    """As long as one is held, what it is on is not closed; `given_back` is called afterwards."""

    __slots__ = ("_given_back", "_serving")

    def __init__(self, serving: _Serving, given_back: Callable[[], None]) -> None:
        self._serving = serving
        self._given_back = given_back

    def __enter__(self) -> DevPipeline:
        self._serving.running += 1
        return self._serving.pipeline

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._serving.running -= 1
        self._given_back()


class App:
    """One root, composed from its configuration. Make it with `build`, and `close` it."""

    def __init__(
        self, root: str, world: World, serving: _Serving, registry: EngineRegistry, artifacts: ArtifactStore
    ) -> None:
        self.root = root
        self.registry = registry
        self.artifacts = artifacts
        self._world = world
        self._serving = serving
        self._retired: list[_Serving] = []
        self._memory = SessionMemory()
        self._tools: dict[tuple[object, ...], ToolSet] = {}
        self._open = True
        shell_processes.acquire()

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self._serving.configuration

    @property
    def pipeline(self) -> DevPipeline:
        """The pipeline in force; hold it through `lease` for as long as a call runs."""
        return self._serving.pipeline

    @property
    def opened(self) -> OpenedRoot:
        """The open root in force."""
        return self._serving.opened

    def lease(self) -> AbstractContextManager[DevPipeline]:
        """The pipeline for one call: a reload meanwhile does not close the root under it."""
        return _Lease(self._serving, self._close_retired)

    def tools(self, surface: SurfaceName) -> ToolSet:
        """The tools of a surface as they are offered now."""
        offered = (surface, self.pipeline, tuple(engine.id for engine in self.registry.engines))
        if offered not in self._tools:
            # Schemas cost milliseconds to make, and what is offered changes only with the engines.
            self._tools = {offered: self._forge(surface), **dict(list(self._tools.items())[:8])}
        return self._tools[offered]

    def _forge(self, surface: SurfaceName) -> ToolSet:
        if surface != "workspace":
            return forge_dev_tools(self.pipeline, surface)
        model = self.configuration.file
        shell = None
        if model.shell.enabled:
            shell = shell_settings(self.configuration, self._world.own_paths, self._own_files())
            shell = dataclasses.replace(shell, check_command=self._world.check_command, redact=self._world.redact)
        policy = self.opened.policy
        tools = WorkspaceTools(
            self.pipeline, memory=self._memory, deny=lambda path: not policy.readable(path), shell=shell
        )
        return tools.tools()

    def _own_files(self) -> tuple[str, ...]:
        """The files that decide who decides: no command may change them."""
        source = self.configuration.source
        own = Path(self.root, FILE_NAME)
        return tuple(str(path) for path in dict.fromkeys((own, source)) if path is not None)

    def end_session(self, session: str) -> None:
        """Forget what a session has read: it is over, and nobody can take it up again."""
        self._memory.forget(session)

    async def confinement(self) -> dict[str, str]:
        """How far commands are confined, for `devtools/initialize`: {level, description}."""
        return await confinement_of(self.root, self.configuration)

    async def reload(self, configuration: Configuration) -> None:
        """Take another configuration; calls that run go on under the old one. What `build` raises changes nothing."""
        replacement = await asyncio.to_thread(_serve, self.root, configuration, self._world, self.registry)
        # The old one served until here, and calls may have taken it meanwhile: it is retired only now.
        self._retired.append(self._serving)
        self._serving = replacement
        self._close_retired()
        await self.registry.reconfigure(configuration.engines)

    def _close_retired(self) -> None:
        if not self._retired:
            return
        for serving in [entry for entry in self._retired if not entry.running]:
            self._retired.remove(serving)
            serving.opened.close()

    async def close(self) -> None:
        """Stop the engines and let go of the root. Once is enough."""
        if not self._open:
            return
        self._open = False
        await self.registry.close()
        await asyncio.to_thread(shell_processes.release)
        await asyncio.to_thread(self.artifacts.close)
        for serving in [*self._retired, self._serving]:
            serving.opened.close()
        self._retired.clear()


def build(
    root: str, configuration: Configuration, world: World, *, artifacts: Path, on_engine: OnEvent | None = None
) -> App:
    """Compose a root: opens it, recovers what a crash left, prepares the engines without starting them. Blocks.

    `artifacts` is the directory for spooled results, outside the root.
    """
    registry = EngineRegistry(root, configuration.engines, on_event=on_engine)
    serving = _serve(root, configuration, world, registry)
    return App(root, world, serving, registry, ArtifactStore(artifacts, clock=world.clock))


def _serve(root: str, configuration: Configuration, world: World, registry: EngineRegistry) -> _Serving:
    model = configuration.file
    opened = open_local(
        root,
        symlinks=model.workspace.symlinks,
        allow_write=model.policy.allow_write,
        deny_write=model.policy.deny_write,
        deny_read=model.policy.deny_read,
        own_paths=world.own_paths,
    )
    parts = PipelineParts(
        root=root,
        file_system=opened.file_system,
        gauntlet=opened.gauntlet,
        gate=world.gate,
        engines=lambda: registry.engines,
        translator=opened.translator,
        bounds=model.workspace.bounds(),
        text=model.workspace.text,
        buffers=world.buffers,
        observer=world.observer,
        line_counter=line_counter(),
        clock=world.clock,
        preview_deadline_s=model.gate.preview_deadline_s,
    )
    return _Serving(configuration, opened, DevPipeline(parts, read_only=model.workspace.read_only))


def shell_settings(
    configuration: Configuration, hidden: Sequence[str] = (), fixed: Sequence[str] = ()
) -> ShellSettings:
    """The configuration's `[shell]` as the shell takes it; `hidden` are host paths that commands shall not see,
    `fixed` files that they shall not change.
    """
    shell = configuration.file.shell
    return ShellSettings(
        sandbox=shell.sandbox,
        require_sandbox=shell.require_sandbox,
        env_allow=tuple(shell.env_allow) if shell.env_allow is not None else None,
        inherit_env=shell.inherit_env,
        runner=tuple(shell.runner),
        timeout_s=shell.timeout_s,
        max_output_bytes=shell.max_output_bytes,
        hidden=tuple(hidden),
        fixed=tuple(fixed),
    )


async def confinement_of(root: str, configuration: Configuration) -> dict[str, str]:
    """How far commands would be confined: {level, description}. Never raises for a sandbox that is missing."""
    if not configuration.file.shell.enabled:
        return {"level": "disabled", "description": "bash is turned off in the configuration."}
    try:
        found = await confinement(root, shell_settings(configuration))
    except StepUnavailableError as error:
        return {"level": "unavailable", "description": error.message}
    return {"level": found.level, "description": found.description}

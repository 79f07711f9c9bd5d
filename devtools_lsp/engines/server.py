"""A language server kept alive: started when needed, restarted with back-off, stopped when idle, locked for one plan.

Owns when a process of one engine runs and why it does not. What is said to it belongs to `session`; what is made
of that to `language_server`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from devtools_lsp.engines.client import ServerGoneError, ServerRefusedError, ServerTimeoutError
from devtools_lsp.engines.guard import Guard
from devtools_lsp.engines.locate import Located, locate_server, project_interpreter
from devtools_lsp.engines.process import LaunchError
from devtools_lsp.engines.session import Session
from devtools_lsp.engines.spec import EngineSpec
from devtools_lsp.engines.tree import ProjectTree

State = Literal["stopped", "starting", "ready", "idle", "restarting", "failed", "missing"]

FIRST_BACKOFF_S = 0.25
LAST_BACKOFF_S = 60.0
PATIENCE_S = 1.0
"""A call waits this long for a restart that is due; a later one is answered at once."""
HEALTHY_AFTER_S = 30.0
AUTOMATIC_RESTARTS = 5

OnEvent = Callable[[str, str, Mapping[str, Any]], None]
"""(engine id, what happened, details): `started`, `exited`, `failed`, `stopped`, `idle`."""


class EngineUnavailableError(Exception):
    """The engine cannot be asked now; the message says why and what is done about it."""


class EngineClosedError(EngineUnavailableError):
    """The engine was taken out of the configuration, or given other settings, while it was asked."""


class EngineRestsError(EngineUnavailableError):
    """The engine failed and is given some time before it is started again."""


class EngineBusyError(Exception):
    """The deadline came while the engine was still starting, or served another plan."""


class LanguageServer:
    """One engine's server. Take `lease` to talk to it: one plan at a time, so that overlays cannot mix."""

    def __init__(
        self, spec: EngineSpec, tree: ProjectTree, guard: Guard, on_event: OnEvent, *, home: Path | None = None
    ) -> None:
        """`home` is where the program and the interpreter are looked for, if that is not the root of the tree."""
        self._home = home or tree.root
        self.spec = _with_interpreter(spec, self._home)
        self.root = tree.root
        self._tree = tree
        self.state: State = "stopped"
        self.reason: str | None = None
        self.generation = 0
        self.version: str | None = None
        self.located: Located | None = None
        self._guard = guard
        self._on_event = on_event
        self._session: Session | None = None
        self._starting: asyncio.Task[Session] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unreaped: set[Session] = set()
        self._lock = asyncio.Lock()
        self._failures = 0
        self._not_before = 0.0
        self._last_used = time.monotonic()
        self._closed = False

    def over(self, tree: ProjectTree) -> LanguageServer:
        """Another server of the same engine over another directory, which starts when it is asked."""
        return LanguageServer(self.spec, tree, self._guard, self._on_event, home=self._home)

    # -- being asked

    @asynccontextmanager
    async def lease(self, deadline: float) -> AsyncGenerator[Session]:
        """The running session, alone, from now on; starts the server when it does not run.

        `deadline` is a monotonic time. Raises EngineBusyError when it passes first, EngineUnavailableError when
        the engine is missing, failing or closed.
        """
        await self._acquire(deadline)
        try:
            self._last_used = time.monotonic()
            session = await self._running(deadline)
            yield session
            self._failures = 0
        finally:
            self._last_used = time.monotonic()
            self._lock.release()

    async def _acquire(self, deadline: float) -> None:
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                await self._lock.acquire()
        except TimeoutError as error:
            raise EngineBusyError("the engine served another plan until the deadline") from error

    @property
    def _closed_reason(self) -> str:
        return f"{self.spec.id} was stopped, because the configuration changed or the daemon ends; ask again"

    @property
    def current(self) -> Session | None:
        """The session if one runs, without starting it."""
        return self._session if self._session is not None and self._session.alive else None

    async def _running(self, deadline: float) -> Session:
        if self._closed:
            raise EngineClosedError(self._closed_reason)
        if (session := self.current) is not None:
            return session
        if self._session is not None:
            self._note_death(self._session)
        if self._starting is None:
            wait = self._not_before - time.monotonic()
            if wait > PATIENCE_S:
                raise EngineRestsError(
                    f"{self.spec.id} is not available: {self.reason}; it is tried again in {wait:.0f} s"
                )
            if wait > max(deadline - time.monotonic(), 0):
                raise EngineBusyError(f"the engine is being restarted ({self.reason})")
            if wait > 0:
                await asyncio.sleep(wait)
            if (session := self.current) is not None:
                return session
        start = self.warm()
        done, _ = await asyncio.wait({start}, timeout=max(deadline - time.monotonic(), 0))
        if not done:
            raise EngineBusyError("the engine is still starting")
        if start.cancelled():
            # The engine was taken out of the configuration meanwhile; whoever asked has not been cancelled by that.
            raise EngineClosedError(self._closed_reason)
        return start.result()

    def warm(self) -> asyncio.Task[Session]:
        """Begin to start it, unless that is under way; the task raises EngineUnavailableError."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
            self._starting.add_done_callback(self._started)
        return self._starting

    def _started(self, task: asyncio.Task[Session]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()  # Retrieved: whoever waits gets it too, and `reason` keeps it for the next.

    async def _start(self) -> Session:
        if self._closed:
            raise EngineClosedError(self._closed_reason)
        if (session := self.current) is not None:
            return session
        self.state = "starting"
        self.located = locate_server(self.spec, self._home)
        if self.located is None:
            self.state, self.reason = "missing", missing_reason(self.spec)
            raise EngineUnavailableError(self.reason)
        self.generation += 1
        # What changes on disk from here on is told: the server may read a file before or after that.
        await self._tree.sweep()
        revision = self._tree.revision
        try:
            session = await Session.start(
                self.spec,
                self.located.command,
                self.root,
                generation=self.generation,
                guard=self._guard,
                timeout_s=self.spec.start_timeout_s,
            )
        except (LaunchError, ServerGoneError, ServerTimeoutError, ServerRefusedError) as error:
            self._failed(str(error))
            raise EngineUnavailableError(f"{self.spec.id} could not be started: {error}") from error
        session.disk_revision = revision
        self._session = session
        self._unreaped.add(session)
        self.version = session.server_version or self.version
        self.state, self.reason = "ready", None
        self._last_used = time.monotonic()
        self._spawn(self._watch(session))
        self._on_event(self.spec.id, "started", {"generation": self.generation, "pid": session.pid})
        return session

    # -- ending and coming back

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, session: Session) -> None:
        """Live as long as the session; clean up after it and bring the next one."""
        while session.alive:
            idle_s = time.monotonic() - self._last_used
            if idle_s >= self.spec.idle_stop_s and not self._lock.locked():
                await self._stop_idle(session)
                return
            try:
                async with asyncio.timeout(max(self.spec.idle_stop_s - idle_s, 0.05)):
                    await session.connection.ended.wait()
            except TimeoutError:
                continue
        self._note_death(session)
        await self._reap(session)
        if not self._closed and self._session is None and self._failures <= AUTOMATIC_RESTARTS:
            await asyncio.sleep(max(self._not_before - time.monotonic(), 0))
            if not self._closed and self.current is None:
                await asyncio.wait({self.warm()})

    def _note_death(self, session: Session) -> None:
        """Count one death once, whoever sees it first: the watch over the process or the call that was running."""
        if self._closed or self._session is not session:
            return
        self._session = None
        if time.monotonic() - session.started_at > HEALTHY_AFTER_S:
            self._failures = 0
        self._failed(session.connection.gone or "it ended")

    async def _stop_idle(self, session: Session) -> None:
        async with self._lock:
            self._session = None
            self.state, self.reason = "idle", "stopped because nothing asked it; the next call starts it"
            await session.shutdown()
            self._unreaped.discard(session)
        self._on_event(self.spec.id, "idle", {"generation": session.generation})

    def _failed(self, why: str) -> None:
        self._failures += 1
        delay = min(FIRST_BACKOFF_S * 2 ** (self._failures - 1), LAST_BACKOFF_S)
        if self._failures > AUTOMATIC_RESTARTS:
            delay = LAST_BACKOFF_S
        self._not_before = time.monotonic() + delay
        self.state = "failed" if self._failures > AUTOMATIC_RESTARTS else "restarting"
        self.reason = why
        self._on_event(self.spec.id, "failed", {"reason": why, "failures": self._failures, "retryIn_s": delay})

    async def hung(self, session: Session, why: str) -> None:
        """The session does not answer any more: end it, so that the next call gets a new one."""
        session.connection.end(why)
        await self._reap(session)

    async def _reap(self, session: Session) -> None:
        """Kill it; if this is cancelled, `close` does it."""
        await session.kill()
        self._unreaped.discard(session)

    async def close(self) -> None:
        """Stop for good; returns when the process is reaped."""
        self._closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        session, self._session = self._session, None
        if session is not None:
            await session.shutdown()
            self._unreaped.discard(session)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for ended in list(self._unreaped):
            await self._reap(ended)
        self.state, self.reason = "stopped", None


def missing_reason(spec: EngineSpec) -> str:
    """What to tell when the program is not installed."""
    remedy = f"; {spec.remedy}" if spec.remedy else ""
    return f"{spec.command[0]} is not installed for this project nor on PATH{remedy}"


def _with_interpreter(spec: EngineSpec, root: Path) -> EngineSpec:
    """The spec with the project's own interpreter among its settings, unless the configuration says otherwise."""
    if not spec.interpreter_setting:
        return spec
    interpreter = project_interpreter(root, spec.interpreter)
    if interpreter is None:
        return spec
    settings: dict[str, Any] = {**spec.settings}
    level = settings
    *sections, last = spec.interpreter_setting.split(".")
    for section in sections:
        level[section] = {**level.get(section, {})}
        level = level[section]
    level.setdefault(last, interpreter)
    return msgspec.structs.replace(spec, settings=settings)

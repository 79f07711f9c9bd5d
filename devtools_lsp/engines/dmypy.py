"""mypy kept warm: its daemon in the foreground, under our guard, over a shadow copy of the project.

The daemon reads files, so a state of the workspace is laid into the copy and checked there: what it says covers
the whole project, dependents included. Owns the daemon's life and its socket (one JSON object behind a four-byte
big-endian length each way); the words of its answers are read by `parsers`.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from devtools_lsp.core.delta import Comparison, Delta
from devtools_lsp.core.diagnostics import Finding, Pending
from devtools_lsp.engines.calls import until_cancelled
from devtools_lsp.engines.guard import Guard
from devtools_lsp.engines.locate import Located, locate_server, nearest, project_interpreter
from devtools_lsp.engines.parsers import OutputError, parse_output
from devtools_lsp.engines.process import LaunchError, ServerProcess, engine_environment
from devtools_lsp.engines.scratch import remove_scratch, scratch_directory
from devtools_lsp.engines.server import FIRST_BACKOFF_S, LAST_BACKOFF_S
from devtools_lsp.engines.shadow import Shadow
from devtools_lsp.engines.spec import EngineSpec, Output
from devtools_lsp.engines.tree import ProjectTree
from devtools_lsp.errors import StepFailedError
from devtools_lsp.paths import extension_of
from devtools_lsp.ports import EngineCall

T = TypeVar("T")

STATUS_POLL_S = 0.02
MAX_ANSWER_BYTES = 64 * 1024 * 1024
NARROW = "the project holds one module name twice, so that mypy can only check the plan's own files"
_NOT_ONE_PROGRAM = ("Duplicate module named", "Source file found twice under different module names")


class DaemonFailedError(Exception):
    """The daemon could not be started, ended, or refused; the message says how."""


class DaemonRestsError(DaemonFailedError):
    """The daemon failed and is given some time before it is started again."""


class _Status(msgspec.Struct, frozen=True):
    connection_name: str


class _Answer(msgspec.Struct, frozen=True):
    out: str = ""
    err: str = ""
    status: int = 0
    error: str | None = None
    final: bool = False


@dataclass(frozen=True, slots=True)
class _Said:
    """What was said about one state: about the `whole` project, or about the files in `only`."""

    findings: tuple[Finding, ...]
    whole: bool
    only: frozenset[str]
    why: str

    def covers(self, path: str) -> bool:
        """Whether a file without findings is clean."""
        return self.whole or path in self.only or any(finding.path == path for finding in self.findings)

    def pending(self, paths: Iterable[str]) -> tuple[Pending, ...]:
        """The files that were not judged."""
        return tuple(Pending(reason=self.why, path=path) for path in sorted(paths) if not self.covers(path))


class _Daemon:
    """One running daemon and the directory of its status file."""

    def __init__(self, process: ServerProcess, directory: Path, address: str) -> None:
        self.process = process
        self._directory = directory
        self._address = address

    @classmethod
    async def start(
        cls, located: Located, cwd: Path, environment: Mapping[str, str], guard: Guard, name: str, timeout_s: float
    ) -> _Daemon:
        """Start it and wait for its address; raises LaunchError and DaemonFailedError."""
        directory = await asyncio.to_thread(scratch_directory, "dmypy")
        status = directory / "status.json"
        command = [word.replace("{status}", str(status)) for word in located.command]
        process: ServerProcess | None = None
        try:
            process = await ServerProcess.start(
                command,
                cwd=cwd,
                environment=environment,
                guard=guard,
                name=name,
                on_output=_ignored,
                on_exit=_nothing,
            )
            async with asyncio.timeout(timeout_s):
                while (address := await asyncio.to_thread(_address_in, status)) is None:
                    if process.exited.is_set():
                        raise DaemonFailedError(f"the daemon ended: {process.stderr_tail[-600:]}")
                    await asyncio.sleep(STATUS_POLL_S)
        except BaseException as error:
            if process is not None:
                await process.kill()
            await asyncio.to_thread(remove_scratch, directory)
            if isinstance(error, TimeoutError):
                raise DaemonFailedError(f"the daemon was not ready within {timeout_s:.0f} s") from error
            raise
        return cls(process, directory, address)

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self.process.exited.is_set()

    async def ask(self, command: str, deadline: float, **arguments: Any) -> _Answer:
        """One question; raises TimeoutError at the deadline and DaemonFailedError when the daemon is gone."""
        question = {"command": command, "export_types": False, "is_tty": False, "terminal_width": 80, **arguments}
        body = msgspec.json.encode(question)
        try:
            async with asyncio.timeout_at(_loop_time(deadline)):
                reader, writer = await asyncio.open_unix_connection(self._address)
                try:
                    writer.write(struct.pack("!L", len(body)) + body)
                    await writer.drain()
                    return await _final_answer(reader)
                finally:
                    writer.close()
        except (OSError, asyncio.IncompleteReadError, msgspec.DecodeError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise DaemonFailedError(f"the daemon broke off: {error}; {self.process.stderr_tail[-300:]}") from error

    async def stop(self) -> None:
        """Kill it and remove what it left."""
        await self.process.kill()
        socket = Path(self._address)
        for directory in {self._directory, socket.parent}:
            await asyncio.to_thread(remove_scratch, directory)


async def _final_answer(reader: asyncio.StreamReader) -> _Answer:
    while True:
        (length,) = struct.unpack("!L", await reader.readexactly(4))
        if length > MAX_ANSWER_BYTES:
            raise DaemonFailedError(f"it announced an answer of {length} bytes")
        answer = msgspec.json.decode(await reader.readexactly(length), type=_Answer)
        if answer.final:
            return answer


def _address_in(status: Path) -> str | None:
    try:
        return msgspec.json.decode(status.read_bytes(), type=_Status).connection_name
    except (OSError, msgspec.DecodeError):
        return None  # Not written yet, or only in part.


def _loop_time(deadline: float) -> float:
    """A monotonic deadline on the loop's clock."""
    return asyncio.get_running_loop().time() + deadline - time.monotonic()


def _why_it_stopped(findings: Sequence[Finding], answer: _Answer) -> str:
    first = f"{findings[0].path}:{findings[0].line}: {findings[0].message}" if findings else answer.err.strip()[-300:]
    return f"mypy stopped and did not check this: {first or 'it gave no reason'}"


def _ignored(data: bytes) -> None:
    del data


def _nothing(process: ServerProcess) -> None:
    del process


class DmypyEngine:
    """The capability functions of mypy over its daemon. One state at a time, held by a lock."""

    def __init__(self, spec: EngineSpec, tree: ProjectTree, guard: Guard, *, home: Path | None = None) -> None:
        self.spec = spec
        self.config: Path | None = None
        self.generation = 0
        self.reason: str | None = None
        self._root = tree.root
        self._home = home or tree.root
        self._tree = tree
        self._guard = guard
        self._output = spec.output or Output()
        self._lock = asyncio.Lock()
        self._shadow: Shadow | None = None
        self._daemon: _Daemon | None = None
        self._narrow = False
        self._failures = 0
        self._not_before = 0.0

    @property
    def pid(self) -> int | None:
        """The daemon's process id while it runs."""
        return self._daemon.process.pid if self._daemon is not None and self._daemon.alive else None

    async def close(self) -> None:
        """Stop the daemon, reap it, and remove the copy."""
        async with self._lock:
            await self._stop()
            if self._shadow is not None:
                await asyncio.to_thread(self._shadow.close)
                self._shadow = None

    async def warm(self) -> None:
        """Check the project as it is on disk, so that the first call finds the daemon ready."""
        async with self._lock:
            await self._tree.sweep()
            with suppress(DaemonFailedError, LaunchError, TimeoutError):
                await self._checked({}, {}, time.monotonic() + self.spec.start_timeout_s)

    async def check(self, call: EngineCall) -> Delta:
        """Findings in `call.paths` as `call.texts` has them. Raises StepFailedError when the daemon breaks down."""

        async def work(deadline: float) -> Delta:
            said = await self._checked(call.texts, call.disk, deadline)
            wanted = frozenset(path for path in call.paths if path in call.texts and self._handles(path))
            findings = tuple(finding for finding in said.findings if finding.path in wanted)
            return Delta(diagnostics=findings, pending=said.pending(wanted))

        return await self._framed(call, work, lambda pending: Delta(pending=pending))

    async def compare(self, call: EngineCall) -> Comparison:
        """Findings before and after, over the whole project."""

        async def work(deadline: float) -> Comparison:
            before = await self._checked(call.acquired, call.disk, deadline)
            after = before if call.acquired == call.texts else await self._checked(call.texts, call.disk, deadline)
            files = {*self._tree.with_extensions(frozenset(self.spec.extensions)), *call.acquired, *call.texts}
            handled = frozenset(path for path in files if self._handles(path))
            judged = frozenset(path for path in handled if before.covers(path) and after.covers(path))
            pending = {entry.path: entry for said in (before, after) for entry in said.pending(handled & {*call.paths})}
            if handled - judged - set(pending):
                pending[None] = Pending(reason=after.why or before.why)
            return Comparison(
                before=tuple(finding for finding in before.findings if finding.path in judged),
                after=tuple(finding for finding in after.findings if finding.path in judged),
                judged=judged,
                pending=tuple(pending.values()),
            )

        return await self._framed(call, work, lambda pending: Comparison(pending=pending))

    # -- one state

    async def _checked(self, texts: Mapping[str, str], disk: Mapping[str, str | None], deadline: float) -> _Said:
        """What the daemon says about a state of the whole project. The lock is held by the caller."""
        await self._tree.sweep()
        if self._tree.limited is not None:
            return _Said(
                (), whole=False, only=frozenset(), why=f"this engine works on a copy, and {self._tree.limited}"
            )
        overlays = {path: text for path, text in texts.items() if disk.get(path) != text}
        deleted = {path for path, text in disk.items() if text is not None and path not in texts}
        if self._shadow is None:
            self._shadow = await asyncio.to_thread(Shadow, self.spec.id)
        await asyncio.to_thread(self._shadow.lay, self._tree, overlays, deleted)
        daemon = await self._running(self._shadow, deadline)
        if not self._narrow:
            answer = await daemon.ask("check", deadline, files=list(self.spec.targets))
            if answer.status != 2 or not any(sign in answer.out + answer.err for sign in _NOT_ONE_PROGRAM):
                return self._understood(answer, texts, whole=answer.status in (0, 1))
            self._narrow = True
        files = sorted(path for path in texts if self._handles(path))
        answer = await daemon.ask("check", deadline, files=files) if files else _Answer()
        return self._understood(answer, texts, whole=False, only=frozenset(files) if answer.status < 2 else frozenset())

    def _understood(
        self, answer: _Answer, texts: Mapping[str, str], *, whole: bool, only: frozenset[str] = frozenset()
    ) -> _Said:
        if answer.error is not None:
            raise DaemonFailedError(f"the daemon refused: {answer.error[:600]}")
        shadow = self._shadow
        assert shadow is not None

        def resolve(printed: str) -> str | None:
            host = Path(printed) if printed.startswith("/") else shadow.root / printed
            return host.relative_to(shadow.root).as_posix() if host.is_relative_to(shadow.root) else None

        def text_of(path: str) -> str | None:
            return texts[path] if path in texts else self._tree.read(path)

        try:
            findings = parse_output(self._output, answer.out, resolve, text_of)
        except OutputError as error:
            raise DaemonFailedError(f"its output was not understood: {error}") from error
        why = "" if whole else NARROW if only else _why_it_stopped(findings, answer)
        return _Said(tuple(findings), whole, only, why)

    def _handles(self, path: str) -> bool:
        return extension_of(path) in self.spec.extensions

    # -- the daemon

    async def _running(self, shadow: Shadow, deadline: float) -> _Daemon:
        if self._daemon is not None and self._daemon.alive:
            return self._daemon
        await self._stop()
        wait_s = self._not_before - time.monotonic()
        if wait_s > 0:
            raise DaemonRestsError(f"{self.reason}; it is tried again in {wait_s:.0f} s")
        located = locate_server(self.spec, self._home)
        if located is None:
            raise DaemonFailedError(f"{self.spec.command[0]} is not installed; {self.spec.remedy}")
        self.generation += 1
        started = _Daemon.start(
            Located(self._with_interpreter(located.command), located.program),
            shadow.root,
            engine_environment(self.spec.environment),
            self._guard,
            f"{self.spec.id}.{self.generation}",
            max(min(deadline - time.monotonic(), self.spec.start_timeout_s), 0.1),
        )
        self._daemon = await started
        return self._daemon

    def _with_interpreter(self, command: Sequence[str]) -> tuple[str, ...]:
        interpreter = project_interpreter(self._home, self.spec.interpreter)
        extra = ("--python-executable", interpreter) if interpreter is not None else ()
        return (*command, *extra)

    async def _stop(self) -> None:
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            await daemon.stop()

    async def _framed(
        self,
        call: EngineCall,
        work: Callable[[float], Awaitable[T]],
        not_judged: Callable[[tuple[Pending, ...]], T],
    ) -> T:
        """One state at a time, within the deadline; a daemon that broke gets one more try, a hung one is replaced."""
        deadline = time.monotonic() + min(call.deadline_s, self.spec.timeout_s)
        self.config = nearest(self._root, call.paths[0] if call.paths else "_", self.spec.config_files)

        async def alone() -> T:
            async with self._lock:
                try:
                    return await self._twice(work, deadline)
                except BaseException:
                    # Whatever was asked may still be computed, over a copy that is about to change: start afresh.
                    await self._stop()
                    raise

        try:
            async with asyncio.timeout_at(_loop_time(deadline)):
                return await until_cancelled(call, self.spec.id, alone())
        except TimeoutError:
            reason = "the engine did not answer before the deadline"
            return not_judged(tuple(Pending(reason=reason, path=path) for path in call.paths if self._handles(path)))
        except (DaemonFailedError, LaunchError) as error:
            again = isinstance(error, DaemonRestsError)
            raise StepFailedError(f"{self.spec.id}: {error}", step=call.step, retry="yes" if again else "no") from error

    async def _twice(self, work: Callable[[float], Awaitable[T]], deadline: float) -> T:
        try:
            result = await work(deadline)
        except DaemonFailedError as error:
            self._note_failure(str(error))
            await self._stop()
            if self._failures > 1:
                raise
            self._not_before = 0.0
            result = await work(deadline)
        self._failures, self.reason = 0, None
        return result

    def _note_failure(self, why: str) -> None:
        self._failures += 1
        self.reason = why
        self._not_before = time.monotonic() + min(FIRST_BACKOFF_S * 2 ** (self._failures - 1), LAST_BACKOFF_S)

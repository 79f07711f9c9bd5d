"""Starting a command and ending everything that it started, with what this machine offers.

`start` prefers the fork server of `shell_supervisor.py` (Linux): every descendant of a command stays findable,
whatever it forks or detaches. Elsewhere, or when that server does not come up, a command gets a process group of
its own and its descendants are sampled while it runs (`processGroup`): most of what it started is then found,
not certainly all. Knows nothing of shells, sandboxes or output.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from devtools_lsp.errors import StepUnavailableError

GRACE_S = 0.4
"""Between SIGTERM and SIGKILL: long enough for a tool to remove its lock files."""

END_BOUND_S = 6.0
"""No end of a command takes longer; what a kernel will not end by then is reported as surviving."""

_SAMPLE_INTERVAL_S = 0.2
_SEND_BOUND_S = 5.0


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start. `report_fd` becomes its descriptor 3; `spare_first` keeps SIGTERM from its first process."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    stdout_fd: int
    stderr_fd: int
    report_fd: int | None = None
    spare_first: bool = False


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A process that still ran when the command itself had ended."""

    pid: int
    command: str


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command's first process ended: `status` is negative for a signal, None when nobody saw it."""

    status: int | None
    left: tuple[LeftBehind, ...] = ()


class Running(Protocol):
    """A started command."""

    async def exited(self) -> Exit:
        """Wait until its first process ended."""
        ...

    async def end(self) -> tuple[int, ...]:
        """End it and everything it started; the pids that survived (none, unless the kernel refused)."""
        ...

    def release(self) -> None:
        """Let go; what still runs is ended without anybody waiting for it."""
        ...


async def start(launch: Launch) -> tuple[Running, bool]:
    """Start a command; the flag says whether every descendant is certain to be found.

    Raises StepUnavailableError when the program does not exist or cannot be executed. The descriptors remain the
    caller's to close.
    """
    path = shutil.which(launch.argv[0], path=launch.env.get("PATH", os.defpath))
    if path is None:
        raise StepUnavailableError(f"the program {launch.argv[0]!r} was not found on PATH", step="bash")
    server = _fork_server()
    if server is not None:
        try:
            kept = server.spawn(launch, path)
            await kept.started()
        except _ServerLostError:
            server.close()
        else:
            return kept, True
    return await _GroupedProcess.start(launch, path), False


def subreaper_available() -> bool:
    """Whether the fork server can be used here, as far as is known without starting a command."""
    return sys.platform == "linux" and not _FORK_SERVER.broken


def close() -> None:
    """End the fork server and with it every command that still runs; the next `start` opens another."""
    _FORK_SERVER.close()


# -- the fork server ---------------------------------------------------------------------------------------------


class _ServerLostError(Exception):
    """The fork server died or never came up."""


class _ForkServer:
    """The client of one supervisor process, started when first needed and shared by every event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._failures = 0

    @property
    def broken(self) -> bool:
        """It was lost so often that it is not tried again."""
        return self._failures >= 3

    def spawn(self, launch: Launch, path: str) -> _KeptProcess:
        """Ask for a command; raises _ServerLostError."""
        request = {
            "argv": list(launch.argv),
            "path": path,
            "env": dict(launch.env),
            "cwd": launch.cwd,
            "grace_s": GRACE_S,
            "spare": launch.spare_first,
        }
        body = json.dumps(request).encode()
        ours, theirs = socket.socketpair()
        outputs = [launch.stdout_fd, launch.stderr_fd]
        if launch.report_fd is not None:
            outputs.append(launch.report_fd)
        with self._lock, theirs:
            try:
                server = self._open()
                socket.send_fds(server, [len(body).to_bytes(4, "big")], [*outputs, theirs.fileno()])
                server.sendall(body)
            except OSError as error:
                ours.close()
                self._failures += 1
                raise _ServerLostError(str(error)) from error
        return _KeptProcess(ours, self)

    def _open(self) -> socket.socket:
        if self._socket is not None and self._process is not None and self._process.poll() is None:
            return self._socket
        self._close()
        ours, theirs = socket.socketpair()
        with theirs:
            script = Path(__file__).with_name("shell_supervisor.py")
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={},
                cwd="/",
            )
        ours.settimeout(_SEND_BOUND_S)
        self._socket = ours
        return ours

    def lost(self) -> None:
        """A command got no answer: the server is not to be trusted again until it is replaced."""
        with self._lock:
            self._failures += 1
            self._close()

    def answered(self) -> None:
        """It works: earlier losses are forgiven."""
        self._failures = 0

    def close(self) -> None:
        """End it."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            try:
                self._process.wait(_SEND_BOUND_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


_FORK_SERVER = _ForkServer()
atexit.register(_FORK_SERVER.close)


def _fork_server() -> _ForkServer | None:
    return _FORK_SERVER if subreaper_available() else None


class _KeptProcess:
    """A command under a keeper: see the wire in `shell_supervisor.py`."""

    def __init__(self, control: socket.socket, server: _ForkServer) -> None:
        control.setblocking(False)
        self._control = control
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._started: asyncio.Future[str | None] = self._loop.create_future()
        self._exited: asyncio.Future[Exit] = self._loop.create_future()
        self._gone: asyncio.Future[tuple[int, ...]] = self._loop.create_future()
        self._loop.add_reader(control, self._readable)

    async def started(self) -> None:
        """Return once the command runs; raises StepUnavailableError or _ServerLostError."""
        try:
            async with asyncio.timeout(_SEND_BOUND_S):
                refusal = await self._started
        except (TimeoutError, _ServerLostError) as error:
            self.release()
            await asyncio.to_thread(self._server.lost)
            raise _ServerLostError("no answer") from error
        except asyncio.CancelledError:
            self.release()
            raise
        self._server.answered()
        if refusal is not None:
            self.release()
            raise StepUnavailableError(f"the command could not be started: {refusal}", step="bash")

    async def exited(self) -> Exit:
        """Wait until its first process ended."""
        return await asyncio.shield(self._exited)

    async def end(self) -> tuple[int, ...]:
        """End everything; the survivors."""
        if not self._gone.done():
            self._ask_to_end()
        try:
            async with asyncio.timeout(END_BOUND_S):
                return await asyncio.shield(self._gone)
        except TimeoutError:
            return ()

    def release(self) -> None:
        """Close the control socket, which the keeper takes as the wish to end everything."""
        if self._control.fileno() < 0:
            return
        self._loop.remove_reader(self._control)
        self._control.close()
        self._settle()

    def _ask_to_end(self) -> None:
        with contextlib.suppress(OSError):
            self._control.send(b"K")

    def _readable(self) -> None:
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._control)
            self._settle()
            return
        self._buffer += data
        while (newline := self._buffer.find(b"\n")) >= 0:
            message: dict[str, Any] = json.loads(self._buffer[:newline])
            del self._buffer[: newline + 1]
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        if "pid" in message:
            self._started.set_result(None)
        elif "error" in message:
            self._started.set_result(str(message["error"]))
        elif "exit" in message:
            left = tuple(LeftBehind(int(pid), str(command)) for pid, command in message["left"])
            self._exited.set_result(Exit(int(message["exit"]), left))
        elif "gone" in message:
            self._gone.set_result(tuple(int(pid) for pid in message["survivors"]))

    def _settle(self) -> None:
        """The keeper is gone: nobody is going to answer what is still open."""
        if not self._started.done():
            self._started.set_exception(_ServerLostError("the fork server closed the connection"))
            # Retrieved here as well: a released command's outcome may interest nobody.
            self._started.exception()
        if not self._exited.done():
            self._exited.set_result(Exit(None))
        if not self._gone.done():
            self._gone.set_result(())


# -- the fallback ------------------------------------------------------------------------------------------------


class _GroupedProcess:
    """A command in a session of its own, whose descendants are remembered as far as they were seen."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._seen: dict[int, psutil.Process] = {}
        self._sampler = asyncio.create_task(self._sample())

    @classmethod
    async def start(cls, launch: Launch, path: str) -> _GroupedProcess:
        """Start; raises StepUnavailableError."""
        argv = list(launch.argv)
        pass_fds: tuple[int, ...] = ()
        if launch.report_fd is not None:
            # Without a fork server nobody moves the descriptor to number 3: a shell does it before the program runs.
            pass_fds = (launch.report_fd,)
            argv = ["sh", "-c", f'exec "$@" 3>&{launch.report_fd}', "sh", path, *argv[1:]]
            path = "/bin/sh"
        try:
            process = await asyncio.create_subprocess_exec(
                path,
                *argv[1:],
                stdin=subprocess.DEVNULL,
                stdout=launch.stdout_fd,
                stderr=launch.stderr_fd,
                pass_fds=pass_fds,
                env=dict(launch.env),
                cwd=launch.cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise StepUnavailableError(f"the command could not be started: {error.strerror}", step="bash") from error
        return cls(process)

    async def exited(self) -> Exit:
        """Wait until its first process ended."""
        status = await self._process.wait()
        await self._look()
        left = tuple(
            LeftBehind(pid, _command_line(process)) for pid, process in self._seen.items() if _is_alive(process)
        )
        return Exit(status, left)

    async def end(self) -> tuple[int, ...]:
        """SIGTERM, a moment, SIGKILL, and once more for what appeared meanwhile."""
        await self._look()
        self._signal_all(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await asyncio.to_thread(psutil.wait_procs, list(self._seen.values()), GRACE_S)
                await self._process.wait()
        for _ in range(3):
            await self._look()
            self._signal_all(signal.SIGKILL)
            if not self._alive():
                break
            await asyncio.sleep(0.05)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._process.wait()
        self._sampler.cancel()
        return tuple(self._alive())

    def release(self) -> None:
        """End what is known to run, at once."""
        self._sampler.cancel()
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
        for process in self._seen.values():
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)

    def _alive(self) -> list[int]:
        alive = [pid for pid, process in self._seen.items() if _is_alive(process)]
        return alive if self._process.returncode is not None else [self._process.pid, *alive]

    async def _sample(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(_SAMPLE_INTERVAL_S)

    async def _look(self) -> None:
        """Remember the members of the session and every descendant of what is known."""
        self._seen.update(await asyncio.to_thread(_find_related, self._process.pid, dict(self._seen)))


def _find_related(leader: int, seen: dict[int, psutil.Process]) -> dict[int, psutil.Process]:
    related: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        if process.pid == leader or process.pid in seen:
            continue
        with contextlib.suppress(psutil.Error, OSError):
            parent = process.ppid()
            if os.getsid(process.pid) == leader or parent == leader or parent in seen or parent in related:
                related[process.pid] = process
    return related


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:200]
    except psutil.Error:
        return ""

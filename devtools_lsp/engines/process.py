"""Engine processes: started in a group of their own, bounded, drained, killed as a group and reaped.

Owns the life of one child process and its bytes: `ServerProcess` for a server that talks over its pipes,
`run_command` for a program that is run once. It knows nothing of LSP and of what the output means.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools_lsp.engines.guard import Guard

STDERR_KEPT_BYTES = 16 * 1024
MAX_OUTPUT_BYTES = 64 * 1024 * 1024
STOP_GRACE_S = 2.0
REAP_LIMIT_S = 10.0
"""What is killed ends at once, but on a busy machine it may take a while until that is noticed."""
PIPE_GRACE_S = 0.5

_PASSED_ON = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "SSL_CERT_FILE"),
    *("VIRTUAL_ENV", "PYTHONPATH", "NODE_PATH", "JAVA_HOME"),
    *("GOPATH", "GOROOT", "GOCACHE", "GOMODCACHE", "CARGO_HOME", "RUSTUP_HOME"),
)


def engine_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of an engine process: what tools need to find things, and no secrets of the daemon's own."""
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {"NO_COLOR": "1", "TERM": "dumb", **kept, **extra}


class LaunchError(OSError):
    """The program could not be started; the message names it and why."""


class _Child(asyncio.SubprocessProtocol):
    """A child process of which it is known whether it was reaped."""

    def __init__(self) -> None:
        self.exited = asyncio.Event()

    async def reaped(self) -> None:
        """Return when it is reaped, or after a while: one that hangs in the kernel is not waited for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REAP_LIMIT_S):
                await self.exited.wait()


class ServerProcess(_Child):
    """A running server: `on_output` gets its output as it comes, `on_exit` is called once, with it, after the last
    byte; that may be before `start` has returned."""

    def __init__(self, on_output: Callable[[bytes], None], on_exit: Callable[[ServerProcess], None]) -> None:
        super().__init__()
        self._on_output = on_output
        self._on_exit = on_exit
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._stderr = bytearray()
        self._guard: Guard | None = None
        self._mark = ""
        self.pid = 0
        self.returncode: int | None = None
        self._ended = False
        self._killing: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        guard: Guard,
        name: str,
        on_output: Callable[[bytes], None],
        on_exit: Callable[[ServerProcess], None],
    ) -> ServerProcess:
        """Start it; `name` is for whoever looks at its environment. Raises LaunchError."""
        process = cls(on_output, on_exit)
        process._guard = guard
        process._mark = guard.mark(name)
        transport = await _spawn(process, command, cwd, environment, guard, process._mark, stdin=True)
        process._transport = transport
        guard.add(process.pid)
        return process

    def write(self, data: bytes) -> None:
        """Queue bytes for its standard input; dropped when it is gone (the exit is reported apart)."""
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(data)

    @property
    def stderr_tail(self) -> str:
        """The last lines that it wrote to standard error."""
        return self._stderr.decode("utf-8", "replace").strip()

    def pause_output(self) -> None:
        """Stop reading its output, so that a flood waits in the pipe and not in our memory."""
        self._with_output(lambda pipe: pipe.pause_reading())

    def resume_output(self) -> None:
        """Read on."""
        self._with_output(lambda pipe: pipe.resume_reading())

    def _with_output(self, act: Callable[[asyncio.ReadTransport], None]) -> None:
        pipe = self._transport.get_pipe_transport(1) if self._transport is not None else None
        if isinstance(pipe, asyncio.ReadTransport):
            act(pipe)

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Close its input, wait `grace_s` for it to go, then kill the group; returns when it is reaped."""
        if self._stdin is not None:
            self._stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.exited.wait()
        await self.kill()

    async def kill(self) -> None:
        """Kill the whole group, then what left it; returns when the process is reaped.

        Whoever asks first does it for all, and goes on with it when its own caller is cancelled.
        """
        if self._killing is None:
            self._killing = asyncio.get_running_loop().create_task(self._kill())
        await asyncio.shield(self._killing)

    async def _kill(self) -> None:
        kill_group(self.pid)
        guard, self._guard = self._guard, None
        try:
            await self.reaped()
            if guard is not None:
                await asyncio.to_thread(guard.sweep, self._mark)
        finally:
            if guard is not None:
                guard.remove(self.pid)
            if self._transport is not None:
                self._transport.close()

    # -- asyncio.SubprocessProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio when the process runs."""
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport
        self.pid = transport.get_pid()
        stdin = transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)
        self._stdin = stdin

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Called by asyncio with output."""
        if fd == 1:
            self._on_output(data)
            return
        self._stderr += data
        if len(self._stderr) > STDERR_KEPT_BYTES:
            del self._stderr[:-STDERR_KEPT_BYTES]

    def process_exited(self) -> None:
        """Called by asyncio when the process is reaped; descendants may still hold its pipes."""
        if self._transport is not None:
            self.returncode = self._transport.get_returncode()
        kill_group(self.pid)
        self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio when all pipes are closed and the process is reaped."""
        del exc
        self._finish()
        if self._transport is not None:
            self._transport.close()

    def _finish(self) -> None:
        if self._ended:
            return
        self._ended = True
        self.exited.set()
        # Output that was already in the pipe is delivered before the callbacks that asyncio queued for it run out.
        asyncio.get_running_loop().call_soon(self._on_exit, self)


async def _spawn(
    protocol: _Child,
    command: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    guard: Guard,
    mark: str,
    *,
    stdin: bool,
) -> asyncio.SubprocessTransport:
    """Start a process in a group of its own, watched by the guard; raises LaunchError.

    A caller that is cancelled meanwhile waits for the start all the same, some milliseconds: only a child that is
    known can be ended with all its group.
    """
    guard.ready()
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            lambda: protocol,
            *command,
            cwd=cwd,
            env={**environment, **guard.environment(mark)},
            start_new_session=True,
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
        )
    )
    try:
        transport, _ = await asyncio.shield(starting)
    except (OSError, ValueError) as error:
        raise LaunchError(f"cannot start {command[0]}: {error}") from error
    except asyncio.CancelledError:
        with contextlib.suppress(OSError, ValueError):
            transport, _ = await starting
            kill_group(transport.get_pid())
            await protocol.reaped()
            transport.close()
        raise
    guard.add(transport.get_pid())
    return transport


def kill_group(group: int) -> None:
    """SIGKILL a process group; nothing happens when it is gone."""
    if group > 0:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command did. `timed_out` and `overflowed` mean that it was killed: the output is then a part."""

    returncode: int
    stdout: bytes
    stderr: bytes
    duration_s: float
    timed_out: bool = False
    overflowed: bool = False


async def run_command(
    command: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    guard: Guard,
    name: str,
    timeout_s: float,
    stdin: bytes | None = None,
    sweep: bool = False,
) -> Completed:
    """Run a program once. Its group is killed at the time limit, on cancellation, and when it ends leaving children.

    `sweep` also ends what left the group (some tens of milliseconds). Raises LaunchError.
    """
    started = time.monotonic()
    run = _OneRun()
    mark = guard.mark(name)
    transport = await _spawn(run, command, cwd, environment, guard, mark, stdin=stdin is not None)
    timed_out = False
    try:
        if stdin is not None:
            run.feed(stdin)
        async with asyncio.timeout(timeout_s):
            await run.exited.wait()
    except TimeoutError:
        timed_out = True
    finally:
        kill_group(run.pid)
        await run.exited.wait()
        guard.remove(run.pid)
        # What left the group may hold the pipes open for ever; what is in them by now is all there is.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PIPE_GRACE_S):
                await run.closed.wait()
        transport.close()
        if sweep or timed_out:
            await asyncio.to_thread(guard.sweep, mark)
    code = transport.get_returncode()
    return Completed(
        code if code is not None else -int(signal.SIGKILL),
        bytes(run.output[1]),
        bytes(run.output[2]),
        time.monotonic() - started,
        timed_out,
        run.overflowed,
    )


class _OneRun(_Child):
    """Collects the output of one run, up to a bound; tells the end of the process from the end of its pipes."""

    def __init__(self) -> None:
        super().__init__()
        self.output = {1: bytearray(), 2: bytearray()}
        self.overflowed = False
        self.closed = asyncio.Event()
        self.pid = 0
        self._stdin: asyncio.BaseTransport | None = None

    def feed(self, data: bytes) -> None:
        """Write its whole input and close it. A program that ends before it has read everything does not fail."""
        if isinstance(self._stdin, asyncio.WriteTransport):
            self._stdin.write(data)
            self._stdin.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self.pid = transport.get_pid()
        self._stdin = transport.get_pipe_transport(0)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        into = self.output[fd]
        if len(into) + len(data) > MAX_OUTPUT_BYTES:
            self.overflowed = True
            kill_group(self.pid)
            return
        into += data

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.closed.set()

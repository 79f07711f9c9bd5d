"""One shell command, from its text to what it printed: bounded in time and output, and nothing of it left behind.

Owns the environment, the limits and the story of one call. Confinement is `sandbox.py`, processes are
`shell_processes.py`, output is `shell_output.py`. Asks no gate: whoever calls has asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from devtools_lsp.agent import sandbox, shell_processes
from devtools_lsp.agent.pipe_end import PipeEnd
from devtools_lsp.agent.sandbox import Confinement, SandboxMode
from devtools_lsp.agent.shell_launch import Ended, Exit, Launch, LeftBehind, Running
from devtools_lsp.agent.shell_output import CapturedOutput, OutputCapture, Stream
from devtools_lsp.errors import BadArgumentError, CallCancelledError, StepUnavailableError
from devtools_lsp.ports import Cancellation

ENVIRONMENT_ALLOWED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "SHELL")
"""What a command inherits of the environment unless configured otherwise."""

ENVIRONMENT_FIXED: Mapping[str, str] = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    # An editor that is opened on behalf of an agent must fail: one that succeeds would accept whatever stands there.
    "EDITOR": "false",
    "VISUAL": "false",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
}
"""What a command gets whatever is configured: no colours, no prompt, no pager, editors that fail."""

_NEVER_INHERITED = ("DEVTOOLS_LSP_SOCKET",)
_LONGEST_COMMAND_BYTES = 131_071
"""The kernel's limit for one argument."""

_DRAIN_S = 0.25
"""After the shell ended: how long its pipes may stay open because a background process holds them."""

_LAST_READS = 32
"""How often a pipe is read once more when it is given up; whoever still writes then is not listened to for ever."""


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """How commands run. Durations in seconds, sizes in bytes.

    `env_allow` replaces the names that are inherited, `inherit_env` passes all. `runner` prefixes each command (a
    container, say) and takes the sandbox's place. `hidden` are host paths that a sandboxed command does not see,
    `fixed` files that it can read and not change.
    `check_command` is asked before anything starts and refuses by raising one of the taxonomy's errors. `redact`
    takes secrets out of text: applied to whole lines as they are streamed, and to the whole output at the end.
    """

    sandbox: SandboxMode = "auto"
    require_sandbox: bool = False
    env_allow: tuple[str, ...] | None = None
    inherit_env: bool = False
    runner: tuple[str, ...] = ()
    timeout_s: float = 120.0
    max_output_bytes: int = 1024 * 1024
    hidden: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    check_command: Callable[[str], None] | None = None
    redact: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class ShellResult:
    """How a command went.

    `exit_code` is 128 + n for a command that died of signal n, and None for one that was ended by us or whose end
    nobody saw. `background` are processes that still ran when the shell had ended and were ended then;
    `surviving` the pids that could not be ended. `notes` says in words what `content` shows of all this.
    """

    exit_code: int | None
    timed_out: bool
    cancelled: bool
    output: CapturedOutput
    duration_s: float
    confinement: Confinement
    background: tuple[LeftBehind, ...] = ()
    surviving: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def content(self) -> str:
        """Output and notes as one text for a model."""
        body = self.output.text
        if body and not body.endswith("\n"):
            body += "\n"
        return body + "".join(f"[{note}]\n" for note in self.notes)

    def to_wire(self) -> dict[str, Any]:
        """Plain data with the wire's names."""
        return {
            "exitCode": self.exit_code,
            "timedOut": self.timed_out,
            "cancelled": self.cancelled,
            "stdout": self.output.stdout,
            "stderr": self.output.stderr,
            "totalBytes": self.output.total_bytes,
            "droppedBytes": self.output.dropped_bytes,
            "durationS": round(self.duration_s, 3),
            "confinement": self.confinement.level,
            "background": [{"pid": process.pid, "command": process.command} for process in self.background],
            "surviving": list(self.surviving),
            "notes": list(self.notes),
        }


async def confinement(root: str, settings: ShellSettings) -> Confinement:
    """What bounds commands of this root; raises StepUnavailableError when a required sandbox does not work."""
    return await sandbox.assess(
        root, sandbox=settings.sandbox, required=settings.require_sandbox, runner=settings.runner
    )


def command_environment(settings: ShellSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command, made from the daemon's own."""
    if settings.inherit_env:
        inherited = {name: value for name, value in environ.items() if name not in _NEVER_INHERITED}
    else:
        names = ENVIRONMENT_ALLOWED if settings.env_allow is None else settings.env_allow
        found = {name: environ.get(name) for name in names if name not in _NEVER_INHERITED}
        inherited = {name: value for name, value in found.items() if value is not None}
    inherited.setdefault("PATH", os.defpath)
    return {**inherited, **ENVIRONMENT_FIXED}


async def run_command(
    root: str,
    command: str,
    *,
    settings: ShellSettings,
    timeout_s: float | None = None,
    signal: Cancellation | None = None,
    on_output: Callable[[Stream, str], None] | None = None,
) -> ShellResult:
    """Run `sh -c command` at `root` and return when it, and all that it started, has ended.

    `on_output(stream, text)` is called on the event loop for each line as it comes, without its end (a burst comes
    as one text of many lines). Without `timeout_s` the settings' limit holds. Time-out and cancellation are
    outcomes, not errors, once the command runs. Raises BadArgumentError for a command that cannot be passed on,
    StepUnavailableError when it cannot be started, CallCancelledError when it was cancelled before that, and what
    `check_command` raises.
    """
    limit_s = settings.timeout_s if timeout_s is None else timeout_s
    _check(command, limit_s)
    if settings.check_command is not None:
        settings.check_command(command)
    bounds = await confinement(root, settings)
    wrapped = sandbox.wrap(command, bounds, root, runner=settings.runner, hidden=settings.hidden, fixed=settings.fixed)
    capture = OutputCapture(settings.max_output_bytes, on_output=on_output, redact=settings.redact)
    call = _Call(capture, signal or Cancellation(), limit_s, redacts=settings.redact is not None)
    if signal is not None and signal.cancelled:
        raise CallCancelledError("cancelled before the command was started", step="bash")
    return await call.run(wrapped, command_environment(settings, os.environ), root, bounds)


def _check(command: str, limit_s: float) -> None:
    if not command.strip():
        raise BadArgumentError("command is empty; give a shell command", step="bash", reason="malformed")
    if "\0" in command:
        raise BadArgumentError("command contains a NUL character; remove it", step="bash", reason="malformed")
    try:
        size = len(command.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise BadArgumentError(
            "command is not valid Unicode (it contains a lone surrogate)", step="bash", reason="malformed"
        ) from error
    if size > _LONGEST_COMMAND_BYTES:
        raise BadArgumentError(
            f"command has {size:,} bytes; the system takes at most {_LONGEST_COMMAND_BYTES:,}: write it to a file and "
            "run that",
            step="bash",
            reason="malformed",
        )
    if not limit_s > 0:
        raise BadArgumentError(f"the time limit is {limit_s:g} s; it must be positive", step="bash", reason="malformed")


class _Pipe(PipeEnd):
    """One of the command's outputs, drained whenever there is something."""

    def __init__(self, consume: Callable[[bytes], None]) -> None:
        super().__init__()
        self._consume = consume
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.reader, self._readable)
        self.ended = asyncio.Event()

    def close(self) -> None:
        """Take what is there and stop."""
        for _ in range(_LAST_READS):
            if self.ended.is_set() or not self._readable():
                break
        self._stop()

    def _readable(self) -> bool:
        data = self.read()
        if data:
            self._consume(data)
        elif data is not None:
            self._stop()
        return bool(data)

    def _stop(self) -> None:
        if not self.ended.is_set():
            self._loop.remove_reader(self.reader)
            self.ended.set()
        super().close()


class _Call:
    """One running command."""

    def __init__(self, capture: OutputCapture, signal: Cancellation, limit_s: float, *, redacts: bool) -> None:
        self._capture = capture
        self._signal = signal
        self._limit_s = limit_s
        self._redacts = redacts
        self._report = bytearray()
        self._began = time.monotonic()

    async def run(self, wrapped: sandbox.Wrapped, env: dict[str, str], root: str, bounds: Confinement) -> ShellResult:
        pipes = [self._pipe("stdout"), self._pipe("stderr")]
        if wrapped.reports:
            pipes.append(_Pipe(self._take_report))
        running: Running | None = None
        try:
            launch = Launch(
                argv=wrapped.argv,
                env=env,
                cwd=root,
                stdout_fd=pipes[0].writer,
                stderr_fd=pipes[1].writer,
                report_fd=pipes[2].writer if wrapped.reports else None,
                spare_first=wrapped.reports,
            )
            running, _ = await shell_processes.start(launch)
            for pipe in pipes:
                pipe.started()
            exit_, ended_because = await self._until_over(running)
            ended = Ended()
            if exit_ is not None:
                await self._drain(pipes)
            if exit_ is None or exit_.left:
                ended = await running.end()
        finally:
            if running is not None:
                running.release()
            for pipe in pipes:
                pipe.close()
        self._capture.flush(time.monotonic())
        if self._redacts:
            # A megabyte goes through the hook that takes secrets out: not on the loop.
            output = await asyncio.to_thread(self._capture.finish, time.monotonic())
        else:
            output = self._capture.finish(time.monotonic())
        if wrapped.reports and not self._report.startswith(b"ready\n") and exit_ is not None:
            raise StepUnavailableError(
                f"the sandbox could not be set up, so the command did not run: {output.stderr.strip()[:500]}",
                step="bash",
            )
        return self._tell(exit_, ended_because, ended, output, bounds)

    def _pipe(self, stream: Stream) -> _Pipe:
        return _Pipe(lambda data: self._capture.feed(stream, data, time.monotonic()))

    def _take_report(self, data: bytes) -> None:
        # A command inside cannot write here, but its children's names can be long.
        self._report += data[: max(0, 65536 - len(self._report))]

    async def _until_over(self, running: Running) -> tuple[Exit | None, str]:
        """The exit, or None with the reason (`timeout`, `cancel`) why it must be ended."""
        exited = asyncio.ensure_future(running.exited())
        try:
            await self._signal.wait_or_done(exited, self._limit_s)
            if exited.done():
                return exited.result(), ""
            return None, "cancel" if self._signal.cancelled else "timeout"
        finally:
            exited.cancel()

    async def _drain(self, pipes: list[_Pipe]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                for pipe in pipes:
                    await pipe.ended.wait()

    def _tell(
        self,
        exit_: Exit | None,
        ended_because: str,
        ended: Ended,
        output: CapturedOutput,
        bounds: Confinement,
    ) -> ShellResult:
        # Inside a sandbox what is left is the sandbox coming down; its own shell has reported the stragglers.
        background = self._reported() if bounds.level == "bwrap" else ended.processes if exit_ is not None else ()
        code = exit_.status if exit_ is not None else None
        if code is not None and code < 0:
            code = 128 - code
        notes: list[str] = []
        if ended_because == "timeout":
            notes.append(f"timed out after {self._limit_s:g} s: the command and everything it started was ended")
        elif ended_because == "cancel":
            notes.append("cancelled: the command and everything it started was ended")
        elif code is None:
            notes.append("nobody saw how the command ended; its outcome is unknown")
        elif code:
            notes.append(f"exit code {code}")
        if background:
            names = ", ".join(process.command or str(process.pid) for process in background[:5])
            more = f" and {len(background) - 5} more" if len(background) > 5 else ""
            notes.append(
                f"still running in the background when the shell ended, and ended with the call: {names}{more}"
            )
        if ended.survivors:
            notes.append(f"could not be ended: pid {', '.join(map(str, ended.survivors))}")
        if output.dropped_bytes:
            notes.append(f"{output.dropped_bytes:,} of {output.total_bytes:,} bytes of output were dropped")
        return ShellResult(
            exit_code=code,
            timed_out=ended_because == "timeout",
            cancelled=ended_because == "cancel",
            output=output,
            duration_s=time.monotonic() - self._began,
            confinement=bounds,
            background=background,
            surviving=ended.survivors,
            notes=tuple(notes),
        )

    def _reported(self) -> tuple[LeftBehind, ...]:
        found: list[LeftBehind] = []
        for line in self._report.decode("utf-8", "replace").splitlines()[1:]:
            pid, _, command = line.partition(" ")
            if pid.isdigit():
                found.append(LeftBehind(int(pid), command.strip()))
        return tuple(found)

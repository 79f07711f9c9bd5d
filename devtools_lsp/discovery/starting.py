"""Starting the daemon of a root, and waiting until it serves or has said why it does not (SPEC 8.0.2)."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from devtools_lsp.discovery.peers import POLL_S, connect, lock_holder, lock_path
from devtools_lsp.discovery.places import socket_path, state_directory
from devtools_lsp.errors import DevToolsError, InvalidConfigError, StepFailedError, WaitTimeoutError

START_TIMEOUT_S = 30.0
_LOG_BYTES = 1024 * 1024
_LOG_TAIL_BYTES = 4096


class NotRunningError(StepFailedError):
    """No daemon runs for the root, and none was to be started."""


class StartFailedError(StepFailedError):
    """A daemon was started and did not come up; the message carries its own words."""

    default_retry = "no"


class Starting:
    """A daemon that was started and may not be ready yet. What it prints goes to its log file."""

    def __init__(self, root: Path, command: Sequence[str]) -> None:
        # Imported here because most of the time a daemon runs already.
        import subprocess

        self.log_path = state_directory(root) / "daemon.log"
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        log = os.open(self.log_path, flags, 0o600)
        try:
            if os.fstat(log).st_size > _LOG_BYTES:
                os.ftruncate(log, 0)
            self._offset = os.fstat(log).st_size
            self._process = subprocess.Popen(
                [*command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
            )
        finally:
            os.close(log)
        self.pid = self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code once it has ended."""
        return self._process.poll()

    def output(self) -> str:
        """The end of what was logged since it started."""
        with self.log_path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(min(self._offset, size), size - _LOG_TAIL_BYTES))
            return log.read().decode("utf-8", "replace").strip()


_started: list[Starting] = []
"""Daemons that this process started: kept, so that each is reaped and none is reported as forgotten."""


def daemon_command(root: Path) -> list[str]:
    """How to run the daemon of a root with this very interpreter.

    `-P` keeps the working directory out of the import path: a repository must not be able to replace modules.
    """
    return [sys.executable, "-P", "-m", "devtools_lsp", "serve", "--root", os.fspath(root)]


def spawn_daemon(root: Path, command: Sequence[str] | None = None) -> Starting:
    """Start a daemon that outlives us, and return at once."""
    _started[:] = [earlier for earlier in _started if earlier.exit_code is None]
    starting = Starting(root, command or daemon_command(root))
    _started.append(starting)
    return starting


def started() -> list[Starting]:
    """The daemons that this process started and that were not seen to end yet."""
    return list(_started)


def connect_or_start(
    root: Path,
    *,
    start: bool = True,
    command: Sequence[str] | None = None,
    timeout_s: float = START_TIMEOUT_S,
) -> socket.socket:
    """A blocking connection to the daemon of a checked root, which is started when none runs.

    Raises NotRunningError when `start` is false and none runs, StartFailedError with the daemon's own output,
    WaitTimeoutError when it is not ready within `timeout_s`, PolicyError when the place is not safe.
    """
    path = socket_path(root)
    deadline = time.monotonic() + timeout_s
    starting: Starting | None = None
    while True:
        try:
            return connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            pass
        except NotADirectoryError as error:
            raise InvalidConfigError(f"the socket path {path} leads through a file: {error.strerror}") from None
        if not start:
            import shlex

            raise NotRunningError(
                f"no daemon runs for {root}; `devtools-lsp serve --root {shlex.quote(str(root))}` starts one, and so "
                "does the first call of an agent, an editor or `devtools-lsp call`",
                reason="notFound",
            )
        if starting is None:
            starting = spawn_daemon(root, command)
        elif starting.exit_code is not None and lock_holder(lock_path(path)) is None:
            # Read after the exit: a loser of a race ends, too, but then the winner holds the lock.
            return _connect_after_all(path, starting)
        if time.monotonic() > deadline:
            raise WaitTimeoutError(
                f"the daemon (pid {starting.pid}) was not ready within {timeout_s:g} s and was left running; "
                f"its log {starting.log_path} ends with:\n{starting.output()}"
            )
        time.sleep(POLL_S)


def _connect_after_all(path: Path, starting: Starting) -> socket.socket:
    try:
        return connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        raise _why_it_ended(starting) from None


def _why_it_ended(starting: Starting) -> DevToolsError:
    """The error that the daemon ended with, where its last line is one; else all that it said."""
    import json

    said = starting.output()
    try:
        told = json.loads(said.rpartition("\n")[2])
    except ValueError:
        told = None
    if isinstance(told, dict) and "code" in told and "message" in told:
        return DevToolsError.from_wire({**told, "message": f"the daemon did not start: {told['message']}"})  # pyright: ignore[reportUnknownArgumentType] -- JSON
    return StartFailedError(f"the daemon ended with code {starting.exit_code} and said:\n{said or '(nothing)'}")

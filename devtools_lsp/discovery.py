"""Where things are and how to reach them: the root, its socket, its private directories, and its daemon.

Only the standard library and cheap to import, because the stdio proxy pays for it before its first byte. Every
directory here is opened without following links and must belong to us (SPEC 8.0.2). Knows nothing of the wire.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from devtools_lsp.errors import DevToolsError, InvalidConfigError, PolicyError, StepFailedError, WaitTimeoutError

MARKERS = ("devtools.toml", "pyproject.toml", ".git")
SOCKET_VARIABLE = "DEVTOOLS_LSP_SOCKET"
SOCKET_PATH_BYTES = 104 if sys.platform == "darwin" else 108
START_TIMEOUT_S = 30.0
_MADE_ELSEWHERE = (
    "XDG_RUNTIME_DIR (sockets) and XDG_STATE_HOME (state) say where we make directories: set them to ones that you "
    "can write"
)
_POLL_S = 0.01
_LOG_BYTES = 1024 * 1024
_LOG_TAIL_BYTES = 4096


def require_posix() -> None:
    """Refuse platforms that have none of what the daemon stands on."""
    if sys.platform == "win32":
        raise InvalidConfigError("devtools-lsp needs Unix sockets and POSIX file locks; on Windows, run it inside WSL")


# -- the root ----------------------------------------------------------------------------------------------------


def find_root(start: Path | str) -> Path:
    """The workspace root for a place: the nearest directory up with devtools.toml, pyproject.toml or .git.

    Links are resolved. Raises InvalidConfigError when there is none, or when it is `/` or the home directory.
    """
    origin = Path(os.path.realpath(start))
    for candidate in (origin, *origin.parents):
        if any(os.path.lexists(candidate / marker) for marker in MARKERS):
            return checked_root(candidate)
    raise InvalidConfigError(f"no {', '.join(MARKERS)} in {origin} or above it; name the workspace with --root DIR")


def checked_root(root: Path | str, how: str = "with --root DIR") -> Path:
    """The root with links resolved; raises InvalidConfigError unless it is a directory and may be a root.

    `how` says in the message where another one is named.
    """
    real = Path(os.path.realpath(root))
    try:
        found = real.stat()
    except FileNotFoundError:
        raise InvalidConfigError(
            f"the root {real} is not a directory: it does not exist; name one that does {how}"
        ) from None
    except OSError as error:
        raise InvalidConfigError(f"the root {real} cannot be looked at: {error.strerror}; name another {how}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise InvalidConfigError(f"the root {real} is not a directory; name the directory of the project {how}")
    if not os.access(real, os.R_OK | os.X_OK):
        raise InvalidConfigError(
            f"the root {real} may not be read by us (mode {stat.S_IMODE(found.st_mode):04o}); change that with chmod, "
            f"or name another {how}"
        )
    if is_too_wide(real):
        raise InvalidConfigError(f"the root may not be {real}: it is too wide; name a project {how}")
    return real


def is_too_wide(root: Path | str) -> bool:
    """Whether an absolute path is `/` or the home directory, which no root may be."""
    path = Path(root)
    return path == Path(path.anchor) or any(_same_directory(path, home) for home in _homes())


def _homes() -> list[Path]:
    """The home directory by the environment and by the user database; either may lie."""
    import pwd

    homes = [os.environ.get("HOME", "")]
    with contextlib.suppress(KeyError):
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    return [Path(home) for home in homes if home.startswith("/") and home != "/"]


def _same_directory(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def root_id(root: Path | str) -> str:
    """16 hexadecimal digits that stand for a root in names: of the SHA-256 of its real path."""
    import hashlib

    return hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:16]


# -- private places ----------------------------------------------------------------------------------------------


def socket_path(root: Path | str) -> Path:
    """Where the daemon of a root listens: $DEVTOOLS_LSP_SOCKET, else in the private runtime directory.

    Makes the runtime directory. Raises InvalidConfigError for a path that no socket can have, PolicyError for a
    directory that is not ours.
    """
    chosen = os.environ.get(SOCKET_VARIABLE)
    path = Path(chosen).absolute() if chosen else runtime_directory() / f"{root_id(root)}.sock"
    size = len(os.fsencode(path)) + 1
    if size > SOCKET_PATH_BYTES:
        raise InvalidConfigError(
            f"the socket path {path} has {size} bytes, the system takes {SOCKET_PATH_BYTES}; "
            f"set {SOCKET_VARIABLE} to a shorter path"
        )
    return path


def runtime_directory() -> Path:
    """The private directory of sockets and locks, made when it is missing: $XDG_RUNTIME_DIR/devtools-lsp, else
    a per-user one under the temporary directory. Raises PolicyError when somebody else could reach into it.
    """
    base = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if base.is_absolute() and _belongs_to_us(base):
        return private_directory(base / "devtools-lsp")
    # Not set, gone, or inherited through sudo from another user: all are common, and none is ours to use.
    temporary = Path(os.environ.get("TMPDIR", ""))
    if not (temporary.is_absolute() and temporary.is_dir()):
        temporary = Path("/tmp")
    return private_directory(temporary / f"devtools-lsp-{os.getuid()}")


def state_directory(root: Path | str) -> Path:
    """The private directory that keeps a root's state across restarts (activity log, journal, daemon's log)."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():
        inside_home = "Library/Application Support" if sys.platform == "darwin" else ".local/state"
        base = next(iter(_homes()), Path("/nonexistent")) / inside_home
    try:
        (base / "devtools-lsp").mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidConfigError(
            f"cannot make the state directory {base / 'devtools-lsp'}: {error.strerror}; "
            "set XDG_STATE_HOME to a directory that you can write"
        ) from None
    return private_directory(private_directory(base / "devtools-lsp") / root_id(root))


def private_directory(path: Path) -> Path:
    """Make a directory that is ours alone, or make sure that it is (mode 0700, our user, no link).

    Raises PolicyError, and touches nothing, when it is a link, no directory, or somebody else's.
    """
    try:
        path.mkdir(0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise InvalidConfigError(
            f"cannot make the directory {path}: {error.strerror}; {_MADE_ELSEWHERE}, or make that directory writable"
        ) from None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise PolicyError(
            f"{path} is not a directory of its own ({error.strerror}): somebody may have put it there; remove it",
            reason="symlink" if path.is_symlink() else "protected",
        ) from None
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid():
            raise PolicyError(f"{path} belongs to user {found.st_uid}, not to us; remove it", reason="protected")
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o022:
            raise PolicyError(f"{path} can be written by others (mode {mode:04o}); remove it", reason="protected")
        if mode & 0o055:
            # Others could look but not write: an accident of a umask, safe to put right.
            os.fchmod(handle, 0o700)
    finally:
        os.close(handle)
    return path


def _belongs_to_us(path: Path) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


# -- peers -------------------------------------------------------------------------------------------------------


def peer_credentials(connection: socket.socket) -> tuple[int | None, int]:
    """(pid, uid) of the other end of a Unix socket, by the kernel's word; macOS does not tell the pid here."""
    import struct

    if sys.platform == "darwin":
        # SOL_LOCAL is 0 and LOCAL_PEERCRED 1; the xucred structure begins with its version and the uid.
        _, uid = struct.unpack("=II", connection.getsockopt(0, 1, 76)[:8])
        return None, uid
    pid, uid, _ = struct.unpack("=iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def connect(path: Path, timeout_s: float = 5.0) -> socket.socket:
    """A blocking connection to a daemon that runs, whose user is ours.

    Raises FileNotFoundError or ConnectionRefusedError when none listens there, PolicyError when it is another
    user's, WaitTimeoutError when it does not accept.
    """
    deadline = time.monotonic() + timeout_s
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        while True:
            try:
                connection.connect(os.fspath(path))
                break
            except BlockingIOError:
                # The queue of connections that wait to be accepted is full; Linux says so at once.
                if time.monotonic() > deadline:
                    message = f"the daemon at {path} accepted no connection within {timeout_s:g} s"
                    raise WaitTimeoutError(message) from None
                time.sleep(_POLL_S)
        _, uid = peer_credentials(connection)
        if uid != os.geteuid():
            raise PolicyError(f"the server at {path} belongs to user {uid}; nothing was sent to it", reason="protected")
        connection.setblocking(True)
    except BaseException:
        connection.close()
        raise
    return connection


# -- the daemon's lock -------------------------------------------------------------------------------------------


def lock_path(path: Path) -> Path:
    """The lock file of a socket: held by flock for the daemon's life and never unlinked."""
    return path.with_name(path.name + ".lock")


def try_lock(path: Path) -> int | None:
    """Take a lock file for as long as the returned descriptor is open; None when somebody holds it.

    The file is made when missing and keeps the holder's pid for messages. Raises PolicyError when it is a link or
    another user's.
    """
    import fcntl

    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PolicyError(
            f"cannot open the lock file {path}: {error.strerror}; look at what is there, and at who may write that "
            "directory",
            reason="protected",
        ) from None
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
            raise PolicyError(f"the lock file {path} is not ours; remove it", reason="protected")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.pwrite(handle, b"%d\n" % os.getpid(), 0)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle


def lock_holder(path: Path) -> int | None:
    """The pid that a held lock file names (0 when it names none), None when nobody holds it."""
    import fcntl

    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        written = os.pread(handle, 32, 0).strip()
        return int(written) if written.isdigit() else 0
    finally:
        os.close(handle)
    return None


# -- starting one ------------------------------------------------------------------------------------------------


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
        time.sleep(_POLL_S)


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

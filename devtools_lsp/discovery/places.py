"""Where the root is, and where the daemon of a root has its socket and its state (SPEC 8.0.1, 8.0.2).

Every directory here is opened without following links and must belong to us.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

from devtools_lsp.errors import InvalidConfigError, PolicyError

MARKERS = ("devtools.toml", "pyproject.toml", ".git")
SOCKET_VARIABLE = "DEVTOOLS_LSP_SOCKET"
SOCKET_PATH_BYTES = 104 if sys.platform == "darwin" else 108
_MADE_ELSEWHERE = (
    "XDG_RUNTIME_DIR (sockets) and XDG_STATE_HOME (state) say where we make directories: set them to ones that you "
    "can write"
)


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
    raise InvalidConfigError(
        f"no {', '.join(MARKERS)} in {origin} or above it; name the workspace with --root DIR, or root= in Python"
    )


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
    base = _states()
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidConfigError(
            f"cannot make the state directory {base}: {error.strerror}; "
            "set XDG_STATE_HOME to a directory that you can write"
        ) from None
    return private_directory(private_directory(base) / root_id(root))


def _states() -> Path:
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():
        inside_home = "Library/Application Support" if sys.platform == "darwin" else ".local/state"
        base = next(iter(_homes()), Path("/nonexistent")) / inside_home
    return base / "devtools-lsp"


def daemon_places() -> tuple[str, ...]:
    """The directories in which the daemons of all roots have their sockets, locks and states.

    No command of one root may reach them: it could answer for itself at the daemon of another. A socket that
    $DEVTOOLS_LSP_SOCKET has put elsewhere is known to its own daemon alone.
    """
    try:
        return str(runtime_directory()), str(_states())
    except (InvalidConfigError, PolicyError):
        # It is not ours, and so no daemon of ours listens there.
        return (str(_states()),)


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

"""Who serves a root: a connection to its daemon, which must be of our user, and the lock that the daemon holds."""

from __future__ import annotations

import os
import socket
import stat
import sys
import time
from pathlib import Path

from devtools_lsp.errors import PolicyError, WaitTimeoutError

POLL_S = 0.01


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
                time.sleep(POLL_S)
        _, uid = peer_credentials(connection)
        if uid != os.geteuid():
            raise PolicyError(f"the server at {path} belongs to user {uid}; nothing was sent to it", reason="protected")
        connection.setblocking(True)
    except BaseException:
        connection.close()
        raise
    return connection


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

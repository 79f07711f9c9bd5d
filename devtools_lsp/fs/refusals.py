"""Operating system errors put into the taxonomy: says what could not be done, to which path, and why.

Owns the mapping of errno values. An absence stays FileNotFoundError wherever an absence is an answer; everything
else is a refusal (SPEC 5.1). Messages name root-relative paths only.
"""

from __future__ import annotations

import errno
import os

from devtools_lsp.errors import DevToolsError, PolicyError, Retry, StepFailedError

_TRANSIENT = frozenset(
    (errno.EINTR, errno.EAGAIN, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE)
)

_ADVICE = {
    errno.EACCES: "the daemon's user may not do this; change the permissions",
    errno.EPERM: "the daemon's user may not do this; change the permissions or the owner",
    errno.EROFS: "the file system is mounted read-only",
    errno.ENOSPC: "no space is left on the device; free some and try again",
    errno.EDQUOT: "the disk quota is used up; free some space and try again",
    errno.EMFILE: "too many files are open; try again",
}


def not_found(path: str) -> FileNotFoundError:
    """The typed absence of a root-relative path."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def refusal(error: OSError, doing: str, path: str) -> DevToolsError:
    """The taxonomy's error for an OSError that came up while `doing` ("read", "write", ...) a root-relative path."""
    code = error.errno or 0
    shown = path or "."
    if code == errno.ENOENT:
        return StepFailedError(f"cannot {doing} {shown!r}: it is not there", reason="notFound", path=path)
    if code == errno.ENOTDIR:
        return StepFailedError(
            f"cannot {doing} {shown!r}: one of its parents is a file, so nothing can be below it",
            reason="notFound",
            path=path,
        )
    if code == errno.EEXIST:
        return StepFailedError(f"cannot {doing} {shown!r}: something is there already", reason="exists", path=path)
    if code == errno.EISDIR:
        return StepFailedError(f"cannot {doing} {shown!r}: it is a directory", reason="isDirectory", path=path)
    if code == errno.ELOOP:
        return PolicyError(f"cannot {doing} {shown!r}: a symbolic link is in the way", reason="symlink", path=path)
    if code == errno.ENAMETOOLONG:
        return PolicyError(f"cannot {doing} {shown!r}: the name is too long", reason="malformed", path=path)
    advice = _ADVICE.get(code) or os.strerror(code).lower() if code else "the operating system gave no reason"
    retry: Retry = "yes" if code in _TRANSIENT else "no"
    return StepFailedError(f"cannot {doing} {shown!r}: {advice}", path=path, retry=retry)


def not_regular(doing: str, path: str) -> PolicyError:
    """The refusal of sockets, FIFOs and devices."""
    return PolicyError(
        f"cannot {doing} {path!r}: it is not a regular file (a FIFO, socket or device)", reason="protected", path=path
    )

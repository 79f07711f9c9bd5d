"""Where a journal may stand, and how its directories are made, listed and locked: descriptors only, no records."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat

from devtools_lsp.fs.journal_names import LOCK
from devtools_lsp.fs.syscalls import exchange
from devtools_lsp.fs.walk import LIST_FLAGS, RootWalk, mount_of


def names_in(directory: int) -> list[str]:
    """The names in an open directory, unsorted."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def can_exchange(directory: int) -> bool:
    """Whether names can be swapped on the journal's file system, which is that of almost every target."""
    names = ("exchange.a", "exchange.b")
    try:
        for name in names:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory))
        return exchange(directory, names[0], directory, names[1])
    finally:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)


def private_directory(parent: int, name: str) -> int:
    """A directory of ours, mode 0700, opened; it is made when absent. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    descriptor = os.open(name, LIST_FLAGS, dir_fd=parent)
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "it belongs to another user", name)
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.fchmod(descriptor, 0o700)
    return descriptor


def existing_private(parent: int, name: str) -> int | None:
    """A directory of ours, opened, if it is there; None for anything else."""
    try:
        descriptor = os.open(name, LIST_FLAGS, dir_fd=parent)
    except OSError:
        return None
    if os.fstat(descriptor).st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    return None


def locked(directory: int) -> int:
    """The descriptor of a session's lock file, locked; raises BlockingIOError when its process is alive."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(LOCK, flags, 0o600, dir_fd=directory)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def git_directory(root: RootWalk) -> int | None:
    """`<root>/.git`, opened, when it is a real directory of ours on the root's own mount.

    A `.git` file (a worktree, a submodule) points to where the root does not reach, so the journal stays inside.
    """
    try:
        descriptor = os.open(".git", LIST_FLAGS, dir_fd=root.descriptor)
    except OSError:
        return None
    status = os.fstat(descriptor)
    if (
        status.st_dev == os.fstat(root.descriptor).st_dev
        and status.st_uid == os.geteuid()
        and mount_of(descriptor) == mount_of(root.descriptor)
        and os.access(".", os.W_OK | os.X_OK, dir_fd=descriptor)
    ):
        return descriptor
    os.close(descriptor)
    return None

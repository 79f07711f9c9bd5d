"""One file, fully written beside the tree, and its compare-and-swap into place.

Owns bytes, metadata and the atomic step; every name is relative to an open directory and every call blocks.
Knows no paths, no policy and no journal.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable

import msgspec

from devtools_lsp.errors import PolicyError
from devtools_lsp.fs.syscalls import exchange, move_into_gap
from devtools_lsp.fs.walk import READ_FLAGS

_CHUNK = 1 << 20
_DROPPED_ATTRIBUTES = frozenset(("security.capability", "security.ima", "security.evm"))
"""Attributes that vouch for the old content."""
_MAX_SWAPS = 256
_DEFAULT_ACL = "system.posix_acl_default"


class Print(msgspec.Struct, frozen=True):
    """A file's fingerprint, also in the journal: inode, SHA-256 of its bytes, their number, permission bits."""

    ino: int
    sha256: str
    size: int
    mode: int


class DisplacedError(Exception):
    """The target was not what it had to be; it is back in its place and nothing has changed."""


class StuckError(OSError):
    """The target was changed and could not be changed back."""


def open_regular(name: str, directory: int) -> tuple[int, os.stat_result]:
    """Open a regular file for reading; the descriptor and what it is.

    Raises PolicyError for FIFOs and devices, OSError (ELOOP for links, EISDIR).
    """
    descriptor = os.open(name, READ_FLAGS, dir_fd=directory)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return descriptor, status
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        raise PolicyError(f"{name!r} is not a regular file (a FIFO, socket or device)", reason="protected")
    except BaseException:
        os.close(descriptor)
        raise


def read_all(descriptor: int, size: int, offset: int = 0, limit: int | None = None) -> bytes:
    """The bytes of a regular file from `offset`, at most `limit` of them; `size` is a guess at how many it holds."""
    wanted = max(0, size - offset) + 1 if limit is None else max(0, limit)
    pieces: list[bytes] = []
    while wanted:
        asked = min(wanted, _CHUNK)
        pieces.append(os.pread(descriptor, asked, offset))
        got = len(pieces[-1])
        if got < asked:
            break  # A short read of a regular file is its end.
        offset += got
        wanted = _CHUNK if limit is None and wanted == asked else wanted - got
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def print_of(descriptor: int, status: os.stat_result) -> Print:
    """The fingerprint of an open file that has this status."""
    if status.st_size <= _CHUNK:
        data = read_all(descriptor, status.st_size)
        return Print(status.st_ino, hashlib.sha256(data).hexdigest(), len(data), stat.S_IMODE(status.st_mode))
    os.lseek(descriptor, 0, os.SEEK_SET)
    digest = hashlib.sha256()
    size = 0
    while chunk := os.read(descriptor, _CHUNK):
        digest.update(chunk)
        size += len(chunk)
    return Print(status.st_ino, digest.hexdigest(), size, stat.S_IMODE(status.st_mode))


def print_at(name: str, directory: int) -> Print | None:
    """The fingerprint of a name; None when nothing is there. Raises as `open_regular` does."""
    try:
        descriptor, status = open_regular(name, directory)
    except FileNotFoundError:
        return None
    try:
        return print_of(descriptor, status)
    finally:
        os.close(descriptor)


def inode_at(name: str, directory: int) -> int | None:
    """The inode behind a name, links not followed; None when nothing is there."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None


def remove_empty(name: str, directory: int, ino: int) -> None:
    """Remove a directory if it is empty and still of this inode (0 = any); raises OSError when something is in it."""
    if ino in (0, inode_at(name, directory)):
        os.rmdir(name, dir_fd=directory)


def write_staged(
    name: str,
    directory: int,
    data: bytes,
    *,
    like: int | None,
    mode: int | None = None,
    insist: bool = True,
    syncing: Callable[[], None] | None = None,
) -> int:
    """Create `name` with `data`, durably, and return its inode; an existing name is an error.

    `like` is an open file whose mode, owner and extended attributes it gets; without `insist` as far as that is
    allowed. Without one it is an ordinary new file, of permission bits `mode` if given. `syncing` is called when all
    but the disk's part is done. A failure leaves nothing.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o666 if like is None else 0o600, dir_fd=directory)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        status = os.fstat(descriptor)
        if like is not None:
            clone_metadata(like, descriptor, status, insist=insist)
        elif mode is not None:
            os.fchmod(descriptor, mode & 0o777)
        if syncing is not None:
            syncing()
        os.fsync(descriptor)
        return status.st_ino
    except BaseException:
        os.unlink(name, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)


def copy_staged(source: int, name: str, directory: int, *, insist: bool = True) -> int:
    """Create `name` as a durable copy of an open file, metadata included, and return its inode."""
    return write_staged(name, directory, read_all(source, os.fstat(source).st_size), like=source, insist=insist)


def clone_metadata(source: int, target: int, new: os.stat_result, *, insist: bool = True) -> None:
    """Give `target`, of status `new`, the owner, attributes and permission bits (without set-id) of `source`."""
    old = os.fstat(source)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        try:
            os.fchown(target, old.st_uid, old.st_gid)
        except PermissionError:
            if insist:
                raise
    if hasattr(os, "listxattr"):
        try:
            _clone_attributes(source, target)
        except PermissionError:
            if insist:
                raise
    os.fchmod(target, old.st_mode & 0o777)


def _clone_attributes(source: int, target: int) -> None:
    try:
        names = os.listxattr(source)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.EOPNOTSUPP):
            return
        raise
    for name in names:
        if name in _DROPPED_ATTRIBUTES:
            continue
        try:
            os.setxattr(target, name, os.getxattr(source, name))
        except OSError:
            # Labels that only the administrator sets (security.*, trusted.*) come from the directory instead; what
            # belongs to the user must be kept or the replacement refused.
            if name.startswith(("user.", "system.")):
                raise


def inherits(directory: int) -> bool:
    """Whether files made in this directory get more than defaults from it: a set-gid bit or a default ACL."""
    if os.fstat(directory).st_mode & stat.S_ISGID:
        return True
    if not hasattr(os, "getxattr"):
        return False
    try:
        return bool(os.getxattr(f"/proc/self/fd/{directory}", _DEFAULT_ACL))
    except OSError:
        return False  # No default ACL, no support for them, or no procfs to ask through.


def place_new(staged: str, staging: int, name: str, directory: int) -> None:
    """Move a staged file to a name where nothing is; raises FileExistsError and then has changed nothing."""
    move_into_gap(staging, staged, directory, name)


def place_over(staged: str, staging: int, name: str, directory: int, expected: Print, ours: int) -> bool:
    """Swap a staged file with the target, then compare what was displaced with `expected`.

    `ours` is the staged file's inode. Afterwards `staged` names the displaced old file (True), or nothing where the
    system cannot exchange (False: then the comparison came just before a plain rename). Raises DisplacedError when
    the target was another file or had other content, which is back in its place then, and FileNotFoundError when it
    was gone; StuckError when it could not be put back.
    """
    # The target comes first: inotify then tells of it as gone and back. In the other order it has come and gone, of
    # which watchers that fold events (VS Code's among them) make nothing, and the editor goes on showing the old text.
    if not exchange(directory, name, staging, staged):
        if not _same_file(name, directory, expected):
            raise DisplacedError(name)
        os.rename(staged, name, src_dir_fd=staging, dst_dir_fd=directory)
        return False
    try:
        same = _same_file(staged, staging, expected)
    except OSError:
        _swap_back(staged, staging, name, directory, ours)
        raise
    if same:
        return True
    _swap_back(staged, staging, name, directory, ours)
    raise DisplacedError(name)


def _swap_back(staged: str, staging: int, name: str, directory: int, ours: int) -> None:
    """Give the target's name back to what had it.

    What comes out should be ours. When it is not, somebody saved over ours meanwhile: theirs is newer than what we hold
    and goes back in its turn, until what comes out is what we had put there ourselves. That one has lost its name to
    somebody who never saw it, so it stays beside the newer file. Raises StuckError when that is not possible.
    """
    try:
        put, held = ours, inode_at(staged, staging)
        for _ in range(_MAX_SWAPS):
            exchange(directory, name, staging, staged)
            out = inode_at(staged, staging)
            if out == ours:
                return
            if out == put:
                keep_beside(staged, staging, name, directory)
                return
            put, held = held or 0, out
    except OSError as error:
        raise StuckError(error.errno, error.strerror, name) from error
    raise StuckError(errno.EBUSY, os.strerror(errno.EBUSY), name)


def take_away(name: str, directory: int, aside: str, aside_directory: int, expected: Print) -> None:
    """Move the target aside, then compare it with `expected`; raises DisplacedError having put it back.

    The error names where the file is: its own name, or a sibling `<name>.<hex>.kept` if its own was taken meanwhile.
    """
    os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=aside_directory)
    failure: OSError | None = None
    try:
        if _same_file(aside, aside_directory, expected):
            return
    except OSError as error:
        failure = error
    try:
        try:
            move_into_gap(aside_directory, aside, directory, name)
        except FileExistsError as error:
            # A still newer file stands there, and neither may be lost: the older one stays beside it.
            raise DisplacedError(keep_beside(aside, aside_directory, name, directory)) from error
    except OSError as error:
        raise StuckError(error.errno, error.strerror, name) from error
    if failure is not None:
        raise failure
    raise DisplacedError(name)


def keep_beside(taken: str, place: int, name: str, directory: int) -> str:
    """Put a file that lost its name next to the one that has it now; returns `<name>.<hex>.kept`."""
    kept = f"{name[:60]}.{secrets.token_hex(4)}.kept"
    move_into_gap(place, taken, directory, kept)
    return kept


def _same_file(name: str, directory: int, expected: Print) -> bool:
    """Whether a name is a file of this inode and content. Raises OSError when that cannot be found out."""
    try:
        found = print_at(name, directory)
    except (PolicyError, IsADirectoryError):
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise
    return found is not None and (found.ino, found.sha256) == (expected.ino, expected.sha256)

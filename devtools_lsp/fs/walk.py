"""The descriptor walk: from a root-relative path to an open parent directory, without a check/use gap.

One component at a time is opened relative to the descriptor before it and without following links; a link is
read and its target put on the to-do list, so that the kernel never resolves more than one name for us. `..`
(which only a link's target can hold) pops our own stack and is never given to the kernel: what lies above the root
cannot be reached. The one hole left: a directory that was opened and is then moved out of the root still gets
the write.

Owns containment and links. Knows nothing of policy, contents or journals. Every function here blocks.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from devtools_lsp.errors import InvalidConfigError, PolicyError, StepFailedError
from devtools_lsp.fs.names import MAX_DEPTH

_PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY)
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
STEP_FLAGS = _PATH_ONLY | _DIRECTORY
"""How a directory on the way is opened. `O_NOFOLLOW` is what makes the walk safe."""
LIST_FLAGS = os.O_RDONLY | _DIRECTORY
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_MAX_LINKS = 40
_MAX_RACES = 64
_MAX_BATCH = 64

Identity = tuple[int, int]
"""(device, inode): what a directory is, whatever it is called."""


class Trail:
    """Where a walk ended: the innermost directory that exists, open, and what remains of the path.

    `descriptor` is that directory · `parents` its resolved components · `missing` the directories between it and
    the leaf that do not exist · `name` the leaf, `""` when the path is a directory by way of links or `.` ·
    `status` what the leaf is (None = absent) · `identities` of every directory below the root that was opened ·
    `path` the resolved root-relative path of the leaf, `parent` that of its directory.
    """

    __slots__ = (
        "_opened",
        "_root",
        "descriptor",
        "identities",
        "missing",
        "name",
        "parent",
        "parents",
        "path",
        "status",
    )

    def __init__(
        self,
        opened: list[int],
        root: int,
        parents: tuple[str, ...],
        missing: tuple[str, ...],
        name: str,
        status: os.stat_result | None,
        identities: tuple[Identity, ...],
    ) -> None:
        self._opened = opened
        self._root = root
        self.descriptor = opened[-1] if opened else root
        self.parents = parents
        self.missing = missing
        self.name = name
        self.status = status
        self.identities = identities
        self.parent = "/".join((*parents, *missing))
        self.path = f"{self.parent}/{name}" if self.parent and name else self.parent or name

    def directories(self) -> dict[str, int]:
        """Every directory that this walk went through and holds open, by its resolved path."""
        path = ""
        found = {path: self._root}
        for name, descriptor in zip(self.parents, self._opened, strict=True):
            path = f"{path}/{name}" if path else name
            found[path] = descriptor
        return found

    def close(self) -> None:
        """Close every descriptor of the walk."""
        while self._opened:
            os.close(self._opened.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RootWalk:
    """Holds the root's own descriptor and walks from it."""

    def __init__(self, root: str) -> None:
        if not root.startswith("/"):
            raise InvalidConfigError(f"root: {root!r} is not an absolute path")
        try:
            # The operator chose the root, so a link in its own spelling is followed, once and for all.
            self.descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidConfigError(f"root: {root!r} cannot be opened: {error.strerror}") from error
        self.root = root
        found = os.fstat(self.descriptor)
        self._identity = (found.st_dev, found.st_ino)
        self._closed = False

    def close(self) -> None:
        """Close the root's descriptor; a second call does nothing."""
        if not self._closed:
            self._closed = True
            os.close(self.descriptor)

    def require_in_place(self) -> None:
        """Refuse to go on when the root's path means another directory by now; raises StepFailedError.

        We would go on with the one that was opened, wherever it was moved, and that is not what anybody means.
        """
        try:
            found = os.stat(self.root)
        except OSError as error:
            raise _root_is_gone() from error
        if (found.st_dev, found.st_ino) != self._identity:
            raise _root_is_gone()

    def walk(self, path: str, *, follow: bool) -> Trail:
        """Walk to the parent of a root-relative path. The caller closes the trail.

        With `follow`, relative links that stay inside the root are followed, the leaf included; without, any link
        is refused. Raises PolicyError for links (`symlink`, or `outsideRoot` when they leave the root) and
        OSError for everything else, except that missing components are an answer and not an error.
        """
        todo = path.split("/")
        todo.reverse()
        opened: list[int] = []
        names: list[str] = []
        identities: list[Identity] = []
        links = 0
        races = 0
        try:
            while todo:
                name = todo.pop()
                if name in ("", "."):
                    continue
                if name == "..":
                    if not names:
                        raise _leaves_root(path)
                    names.pop()
                    identities.pop()
                    os.close(opened.pop())
                    continue
                here = opened[-1] if opened else self.descriptor
                if todo:
                    try:
                        descriptor = os.open(name, STEP_FLAGS, dir_fd=here)
                    except FileNotFoundError:
                        return self._absent(path, opened, names, [name, *reversed(todo)], identities)
                    except OSError as error:
                        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                            raise
                        status = _look(name, here)
                        if status is None or stat.S_ISDIR(status.st_mode):
                            # It was exchanged between the two calls: look again, but not forever.
                            races += 1
                            if races > _MAX_RACES:
                                raise
                            todo.append(name)
                            continue
                        if not stat.S_ISLNK(status.st_mode):
                            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name) from error
                    else:
                        opened.append(descriptor)
                        names.append(name)
                        status = os.fstat(descriptor)
                        identities.append((status.st_dev, status.st_ino))
                        if len(names) > MAX_DEPTH:
                            raise PolicyError(
                                f"{path!r} resolves to more than {MAX_DEPTH} directories", reason="malformed", path=path
                            )
                        continue
                else:
                    status = _look(name, here)
                    if status is None or not stat.S_ISLNK(status.st_mode):
                        return Trail(opened, self.descriptor, tuple(names), (), name, status, tuple(identities))
                links += 1
                if not follow:
                    raise self._refused_link(path)
                if links > _MAX_LINKS:
                    raise PolicyError(f"{path!r} goes through too many symbolic links", reason="symlink", path=path)
                target = _target(name, here)
                if target is None:
                    races += 1
                    if races > _MAX_RACES:
                        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), name)
                    todo.append(name)
                    continue
                if target.startswith("/"):
                    raise _leaves_root(path)
                todo.extend(reversed(target.split("/")))
            here = opened[-1] if opened else self.descriptor
            return Trail(opened, self.descriptor, tuple(names), (), "", os.fstat(here), tuple(identities))
        except BaseException:
            while opened:
                os.close(opened.pop())
            raise

    def open_directory(self, path: str, *, follow: bool) -> tuple[int, Trail]:
        """A directory opened for listing and fsync, with the trail to it; the caller closes both."""
        trail = self.walk(path, follow=follow)
        try:
            if trail.missing or trail.status is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return os.open(trail.name or ".", LIST_FLAGS, dir_fd=trail.descriptor), trail
        except BaseException:
            trail.close()
            raise

    def _absent(
        self, path: str, opened: list[int], names: list[str], rest: Sequence[str], identities: list[Identity]
    ) -> Trail:
        parts = [part for part in rest if part not in ("", ".")]
        if ".." in parts:
            # The kernel would answer ENOENT too: nothing can be above a directory that does not exist.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        # What ends in a dot is a directory, and then there is no leaf that could be looked for in the one above.
        name = "" if rest[-1] == "." else parts.pop()
        return Trail(opened, self.descriptor, tuple(names), tuple(parts), name, None, tuple(identities))

    def _refused_link(self, path: str) -> PolicyError:
        """Why a link is refused: a walk that follows it tells whether it leaves the root."""
        try:
            self.walk(path, follow=True).close()
        except PolicyError as error:
            return error
        except OSError:
            pass  # A broken link is refused for being a link, which is what the caller is told below.
        return PolicyError(
            f"{path!r} goes through a symbolic link, and the workspace refuses to write through links; use the real "
            'path, or set symlinks = "inside"',
            reason="symlink",
            path=path,
        )


class BatchWalk:
    """Walks for many paths in one go: a directory that was reached without links is opened once for all below it.

    Use it as a context, and briefly: what it holds open is what the hole of this module applies to. For reading and
    looking only. The trails are its own, and each holds until the next walk.
    """

    def __init__(self, root: RootWalk) -> None:
        self._root = root
        self._directories: dict[str, Trail] = {}
        self._others: list[Trail] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def walk(self, path: str, *, follow: bool) -> Trail:
        """As `RootWalk.walk`."""
        directory, _, name = path.rpartition("/")
        known = self._directories.get(directory)
        if known is not None:
            status = _look(name, known.descriptor)
            if status is None or not stat.S_ISLNK(status.st_mode):
                return Trail([known.descriptor], known.descriptor, known.parents, (), name, status, known.identities)
        if len(self._directories) + len(self._others) >= _MAX_BATCH:
            self._close()
        trail = self._root.walk(path, follow=follow)
        if known is None and name and trail.path == path and not trail.missing:
            self._directories[directory] = trail
        else:
            self._others.append(trail)
        return trail

    def _close(self) -> None:
        while self._others:
            self._others.pop().close()
        while self._directories:
            self._directories.popitem()[1].close()


def _look(name: str, directory: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _target(name: str, directory: int) -> str | None:
    """A link's target; None when it is no link any more."""
    try:
        return os.readlink(name, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def _root_is_gone() -> StepFailedError:
    return StepFailedError(
        "the workspace root was moved, removed or replaced while it was open; restart the daemon there", retry="no"
    )


def _leaves_root(path: str) -> PolicyError:
    return PolicyError(
        f"{path!r} goes through a symbolic link that leaves the workspace root; use a path inside the root",
        reason="outsideRoot",
        path=path,
    )


def mount_of(descriptor: int) -> object:
    """What tells two mounts apart, so that a rename or hard link between them is known to be possible.

    On Linux the mount's id (a bind mount has the device of what it shows, but renames across it fail), elsewhere
    the device.
    """
    try:
        info = os.open(f"/proc/self/fdinfo/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            for line in os.read(info, 4096).splitlines():
                if line.startswith(b"mnt_id:"):
                    return int(line[7:])
        finally:
            os.close(info)
    except OSError:
        pass  # No procfs: macOS, or a container without it.
    return ("device", os.fstat(descriptor).st_dev)

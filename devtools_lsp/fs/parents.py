"""Directories and files that one transaction has open: walked to once, judged by identity, bounded in number.

Owns descriptors and their closing. Paths are resolved ones, so every walk here refuses links.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

from devtools_lsp.fs.effects import conflict
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.protected import Protected
from devtools_lsp.fs.staging import open_regular
from devtools_lsp.fs.walk import LIST_FLAGS, RootWalk, Trail

_MAX_DIRECTORIES = 64
_MAX_FILES = 32


class OpenParents:
    """Open trails, and the files that were looked at. Use it as a context.

    Nothing is closed behind a caller's back: a descriptor that it got holds until the next `trim` or `forget`, which
    belong between two paths, never inside the work on one. `crowded` says when `trim` is due.
    """

    def __init__(self, walk: RootWalk, policy: PathPolicy | None) -> None:
        self.walk = walk
        self.policy = policy
        self.protected: Protected | None = policy.protected() if policy is not None else None
        self._trails: dict[str, Trail] = {}
        self._directories: dict[str, int] = {}
        self._files: dict[str, int] = {}
        self.crowded = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.forget()
        self._close_files()

    def forget(self) -> None:
        """Close the directories, so that the next use walks again."""
        self._directories.clear()
        while self._trails:
            self._trails.popitem()[1].close()

    def trim(self) -> None:
        """Close what is open if that is a lot, so that a transaction over many directories needs few descriptors."""
        if len(self._trails) > _MAX_DIRECTORIES:
            self.forget()
        if len(self._files) > _MAX_FILES:
            self._close_files()
        self.crowded = False

    def _close_files(self) -> None:
        while self._files:
            os.close(self._files.popitem()[1])

    def of(self, path: str) -> Trail:
        """The trail to a path's directory; its leaf may be a sibling's. Raises PolicyError and OSError."""
        directory = path.rpartition("/")[0]
        trail = self._trails.get(directory)
        if trail is not None:
            return trail
        trail = self.walk.walk(path, follow=False)
        try:
            if self.policy is not None and self.protected is not None:
                self.policy.judge_identities(path, trail.identities, self.protected)
        except BaseException:
            trail.close()
            raise
        self.keep(directory, trail)
        return trail

    def keep(self, directory: str, trail: Trail) -> None:
        """Take over a trail to a directory that has been judged already."""
        if directory in self._trails:
            trail.close()
            return
        self._trails[directory] = trail
        self.crowded |= len(self._trails) > _MAX_DIRECTORIES
        self._directories.update(trail.directories())

    def directory(self, path: str) -> int | None:
        """The descriptor of an existing directory; None when it is absent."""
        if path in self._directories:
            return self._directories[path]
        trail = self.of(f"{path}/." if path else ".")
        return None if trail.missing else trail.descriptor

    def sync(self, directory: str) -> None:
        """Make what happened in a directory durable; an absent one is no matter."""
        found = self.directory(directory)
        if found is None:
            return
        # A descriptor opened with O_PATH cannot be synced.
        descriptor = os.open(".", LIST_FLAGS, dir_fd=found)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def look_at(self, path: str) -> tuple[int, os.stat_result] | None:
        """Open a regular file, kept for `known`; None when it is absent. Raises as `open_regular` does."""
        trail = self.of(path)
        if trail.missing:
            return None
        try:
            descriptor, status = open_regular(path.rpartition("/")[2], trail.descriptor)
        except FileNotFoundError:
            return None
        if path in self._files:
            os.close(self._files.pop(path))
        self._files[path] = descriptor
        self.crowded |= len(self._files) > _MAX_FILES
        return descriptor, status

    def known(self, path: str, ino: int) -> int:
        """The descriptor of a file that was looked at and had this inode; raises ConflictError when it is another."""
        if path in self._files:
            return self._files[path]
        found = self.look_at(path)
        if found is None:
            raise conflict({path: "it is gone"})
        if found[1].st_ino != ino:
            raise conflict({path: "its content is another"})
        return found[0]

"""A file system in memory: shipped for tests and for embedders whose files are not on a disk.

Holds regular files and directories only: no links, no devices, no permissions. Everything happens at once on the
event loop's thread, so nothing can be seen half done.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Mapping, Sequence

from devtools_lsp.core.workspace import sha256
from devtools_lsp.errors import StepUnavailableError
from devtools_lsp.fs.effects import net_plan
from devtools_lsp.paths import parent_of
from devtools_lsp.ports import Cancellation, DirectoryEntry, FileStat, Mutation


class MemoryFileSystem:
    """All methods of SPEC 5.1 over a dictionary.

    `files` maps root-relative paths to bytes; their parents exist. With `atomic`, `commit` takes a list of mutations
    or none; without, the gauntlet goes one by one. `on_call` is called with a method's name and path before it
    does anything, and may raise what the method shall raise: that is how tests make the n-th call fail.

    `contents` is the live dictionary, for looking and for playing somebody else who changes files.
    """

    def __init__(
        self,
        files: Mapping[str, bytes] | None = None,
        *,
        atomic: bool = False,
        on_call: Callable[[str, str], None] | None = None,
    ) -> None:
        self.atomic = atomic
        self.contents: dict[str, bytes] = dict(files or {})
        self._directories: set[str] = {""}
        self._on_call = on_call
        for path in self.contents:
            self._add_parents(path)

    async def stat(self, path: str) -> FileStat:
        """What is there; raises FileNotFoundError."""
        self._called("stat", path)
        if path in self.contents:
            return FileStat("file", len(self.contents[path]))
        if self._is_directory(path):
            return FileStat("directory")
        raise self._absent(path)

    async def list(self, path: str) -> list[DirectoryEntry]:
        """The names in a directory; raises FileNotFoundError and NotADirectoryError."""
        self._called("list", path)
        if path in self.contents:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if not self._is_directory(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        files = [name for name in self.contents if parent_of(name) == path]
        below = [name for name in self._directories if name and parent_of(name) == path]
        return [DirectoryEntry(name.rpartition("/")[2], "file") for name in files] + [
            DirectoryEntry(name.rpartition("/")[2], "directory") for name in below
        ]

    async def read(self, path: str) -> bytes:
        """A file's bytes; raises FileNotFoundError and IsADirectoryError."""
        self._called("read", path)
        return self._existing(path)

    async def read_window(self, path: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from byte `offset`."""
        self._called("read_window", path)
        return self._existing(path)[offset : offset + limit]

    async def write(self, path: str, data: bytes) -> None:
        """Replace or create a file whose parent exists."""
        self._called("write", path)
        if self._is_directory(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._require_parent(path)
        self.contents[path] = bytes(data)

    async def delete(self, path: str, signal: Cancellation | None = None) -> None:
        """Delete a file."""
        self._called("delete", path, signal)
        self._existing(path)
        del self.contents[path]

    async def rename(self, source: str, target: str, signal: Cancellation | None = None) -> None:
        """Move a file to where nothing is; raises FileExistsError."""
        self._called("rename", source, signal)
        self._existing(source)
        if target in self.contents or self._is_directory(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        self._require_parent(target)
        self.contents[target] = self.contents.pop(source)

    async def mkdir(self, path: str, signal: Cancellation | None = None) -> None:
        """Make a directory whose parent exists; one that exists is no matter."""
        self._called("mkdir", path, signal)
        if path in self.contents:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._require_parent(path)
        self._directories.add(path)

    async def commit(self, plan: str, mutations: Sequence[Mutation]) -> None:
        """Land all mutations or none; only with `atomic`."""
        if not self.atomic:
            raise StepUnavailableError('this file system was made without "atomic", so it has no commit')
        self._called("commit", plan)
        net = net_plan(mutations, lambda path: sha256(self.contents[path]) if path in self.contents else None)
        contents = dict(self.contents)
        directories = set(self._directories)
        for directory in net.directories:
            if directory in contents:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), directory)
            if parent_of(directory) not in directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), parent_of(directory))
            directories.add(directory)
        for effect in net.effects:
            if effect.after is None:
                del contents[effect.path]
                continue
            if effect.path in directories:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), effect.path)
            if parent_of(effect.path) not in directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), parent_of(effect.path))
            after = effect.after
            contents[effect.path] = after.data if after.data is not None else self.contents[after.origin or effect.path]
        self.contents.clear()
        self.contents.update(contents)
        self._directories = directories

    def _called(self, method: str, path: str, signal: Cancellation | None = None) -> None:
        if signal is not None and signal.cancelled:
            raise asyncio.CancelledError(signal.reason)
        if self._on_call is not None:
            self._on_call(method, path)

    def _existing(self, path: str) -> bytes:
        if path in self.contents:
            return self.contents[path]
        if self._is_directory(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise self._absent(path)

    def _absent(self, path: str) -> OSError:
        above = parent_of(path)
        while above:
            if above in self.contents:
                return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            above = parent_of(above)
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def _require_parent(self, path: str) -> None:
        if not self._is_directory(parent_of(path)):
            raise self._absent(parent_of(path))

    def _is_directory(self, path: str) -> bool:
        return path in self._directories

    def _add_parents(self, path: str) -> None:
        while path:
            path = parent_of(path)
            self._directories.add(path)

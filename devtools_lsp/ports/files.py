"""Where files are: what a file system can do, and what a list of changes asks of it.

Optional abilities are protocols of their own, since adapters are duck-typed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, cast, runtime_checkable

import msgspec

FileKind = Literal["file", "directory", "symlink", "other"]


class FileStat(msgspec.Struct, frozen=True):
    """What one path is: `size` in bytes; a `symlink` is reported only where links are not followed."""

    kind: FileKind
    size: int = 0


class DirectoryEntry(msgspec.Struct, frozen=True):
    """One name in a directory."""

    name: str
    kind: FileKind


@runtime_checkable
class FileSystem(Protocol):
    """The four methods that every adapter has (SPEC 5.1); adapters are duck-typed.

    "Not found" is FileNotFoundError; any other error of `stat` is a refusal, never an absence. The optional
    methods `delete(path, signal=)`, `rename(source, target, signal=)` and `mkdir(path, signal=)` take a
    `Cancellation`; the others are described by `WindowedFileSystem`, `BatchFileSystem` and
    `TransactionalFileSystem`. `atomic = True` promises that `commit` is all or nothing across files, also after a
    crash.
    """

    async def stat(self, path: str) -> FileStat:
        """What the path is, links that stay inside followed; raises FileNotFoundError."""
        ...

    async def list(self, path: str) -> Sequence[DirectoryEntry]:
        """The names in a directory (`""` is the root), unsorted; raises FileNotFoundError."""
        ...

    async def read(self, path: str) -> bytes:
        """A regular file's whole content; raises FileNotFoundError."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Replace or create a file whose parent exists."""
        ...


@runtime_checkable
class WindowedFileSystem(Protocol):
    """An adapter that can read a part of a file without loading it."""

    async def read_window(self, path: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from byte `offset`."""
        ...


class BatchFileSystem(Protocol):
    """An adapter that looks at or reads many files in one go, which saves a thread hop a file.

    Links are followed and refused as by `stat` and `read`; what fails is an exception at its path.
    """

    async def stat_many(self, paths: Sequence[str]) -> Mapping[str, FileStat | Exception]:
        """What each path is."""
        ...

    async def read_many(self, paths: Sequence[str]) -> Mapping[str, bytes | Exception]:
        """Each file's whole content."""
        ...


def batching(file_system: FileSystem) -> BatchFileSystem | None:
    """The adapter again where it can do both, else None: whoever asks then goes file by file."""
    able = all(callable(getattr(file_system, name, None)) for name in ("stat_many", "read_many"))
    return cast("BatchFileSystem", file_system) if able else None


UNCHECKED = "unchecked"
"""An `expect` that compares nothing; no SHA-256 looks like it."""


class Mutation(msgspec.Struct, frozen=True):
    """One change of the tree, with what must be true of its target before it.

    `write` takes `data`; `rename` takes `source`, and `path` is its destination. `expect` is the SHA-256 of the
    bytes that must be there (for `rename`: at the source), None for "nothing is there", and `UNCHECKED` to
    skip the comparison (the pipeline always knows). `mode` are the permission bits of a file that `write` brings
    into being; None leaves them to the system. A file that exists keeps its own.

    `rmdir` removes a directory that is empty once the others have landed and still is the one of inode `expect` (in
    decimal digits); any other stays, and that is no failure. Only an undo asks for it.

    `restores` names the before-image in the journal of what an undo brings back to a place where nothing is: the file
    gets its owner and attributes again, and its name is not held to the rules for new ones.
    """

    kind: Literal["write", "delete", "rename", "mkdir", "rmdir"]
    path: str
    data: bytes = b""
    source: str | None = None
    expect: str | None = UNCHECKED
    mode: int | None = None
    restores: str = ""


@runtime_checkable
class TransactionalFileSystem(Protocol):
    """An adapter whose `commit` is journalled: all mutations land or none, also across a crash (SPEC 5.3)."""

    atomic: bool

    async def commit(self, plan: str, mutations: Sequence[Mutation]) -> None:
        """Land all mutations or none. Raises ConflictError, naming every path, when an `expect` does not hold.

        The ordering is the caller's; missing parents were created by earlier `mkdir` mutations of the list.
        """
        ...


class PathTranslator(Protocol):
    """Maps root-relative paths to the adapter's own, and takes host paths out of messages."""

    def to_adapter(self, path: str) -> str:
        """The adapter's path of a root-relative one."""
        ...

    def redact(self, message: str) -> str:
        """The message with absolute paths under the root made relative and others removed."""
        ...

"""The project's files as they are on disk: which there are, and what changed since an engine last looked.

A sweep stats the tree, so that an engine hears of an outside change before it is asked, however late the
watcher's notice comes. Owns the rules about what is not part of a project. It reads no contents but on request.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from devtools_lsp.paths import extension_of, parent_of
from devtools_lsp.text import NotTextError, decode

MAX_FILES = 20_000
MAX_EVENTS_KEPT = 20_000
MAX_FILE_BYTES = 2 * 1024 * 1024

SKIPPED_DIRECTORIES = frozenset(
    {"node_modules", "__pycache__", "target", "venv", "site-packages", "bower_components", "__pypackages__"}
)


class FileEvent(msgspec.Struct, frozen=True):
    """Something happened to a file on disk; `path` is root-relative."""

    path: str
    kind: Literal["created", "changed", "deleted"]


Signature = tuple[int, int, int]
"""Modification time in nanoseconds, size in bytes, inode."""


class ProjectTree:
    """All engines of one root share one tree. Not thread-safe: use it from the loop."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[str, Signature] = {}
        self._directories: set[str] = set()
        self.revision = 0
        self._partial = False
        self._events: OrderedDict[int, FileEvent] = OrderedDict()
        """By revision. A change is forgotten once something later happened to the same file, which says it all."""
        self._changed: dict[str, int] = {}
        """The revisions of those that are changes, by path."""
        self._forgotten = 0
        """The last revision that was let go of because there were too many."""
        self._swept = False
        self._sweeping: asyncio.Task[None] | None = None
        self._asked = 0
        self._seen = 0

    async def sweep(self) -> None:
        """Look at the disk. A caller that comes while a sweep runs waits for one that begins after it asked."""
        asked = self._asked = self._asked + 1
        while self._seen < asked:
            if self._sweeping is None:
                self._sweeping = asyncio.get_running_loop().create_task(self._sweep(self._asked))
            await asyncio.shield(self._sweeping)

    async def _sweep(self, asked: int) -> None:
        try:
            seen = await asyncio.to_thread(_look_again, self.root, dict(self.files), set(self._directories))
        finally:
            self._sweeping = None
        self._partial = seen.partial
        if self._swept:
            self._record(_came_and_went(self._directories, seen.directories))
            self._record(_differences(self.files, seen.files))
        self._swept = True
        self._seen = asked
        self.files = seen.files
        self._directories = seen.directories

    @property
    def limited(self) -> str | None:
        """What a sweep left out, in words; None when it saw everything."""
        if not self._partial:
            return None
        return f"the project has more than {MAX_FILES:,} files; what lies deeper in it was not looked at"

    def look(self) -> list[str]:
        """The files there are now, unsorted, without recording anything. Blocks."""
        return list(_walk(self.root).files)

    def note(self, events: Iterable[FileEvent]) -> None:
        """Somebody else (the watcher, our own write) saw these; a later sweep will not report them again."""
        fresh: list[FileEvent] = []
        for event in events:
            status = _status_of(f"{self.root}/{event.path}")
            if (status is not None and stat.S_ISDIR(status.st_mode)) or event.path in self._directories:
                continue  # Told with the first file in it, or by the next sweep.
            fresh.extend(self._new_parents(event.path))
            signature = _signature(status)
            known = self.files.get(event.path)
            if signature is None:
                if known is not None or not self._swept:
                    fresh.append(FileEvent(event.path, "deleted"))
                self.files.pop(event.path, None)
            elif signature != known:
                fresh.append(FileEvent(event.path, "created" if known is None else "changed"))
                self.files[event.path] = signature
        self._record(fresh)

    def _new_parents(self, path: str) -> list[FileEvent]:
        """Directories of a file that were not known: some servers keep a listing and must hear of them first."""
        if parent_of(path) in self._directories:
            return []
        parts = path.split("/")[:-1]
        parents = ["/".join(parts[: length + 1]) for length in range(len(parts))]
        new = [parent for parent in parents if parent not in self._directories and (self.root / parent).is_dir()]
        self._directories.update(new)
        return [FileEvent(parent, "created") for parent in new] if self._swept else []

    def _record(self, events: Iterable[FileEvent]) -> None:
        for event in events:
            self.revision += 1
            superseded = self._changed.pop(event.path, None)
            if superseded is not None:
                del self._events[superseded]
            self._events[self.revision] = event
            if event.kind == "changed":
                self._changed[event.path] = self.revision
            if len(self._events) > MAX_EVENTS_KEPT:
                self._forgotten, oldest = self._events.popitem(last=False)
                if oldest.kind == "changed":
                    del self._changed[oldest.path]

    def events_since(self, revision: int) -> list[FileEvent] | None:
        """What happened after a revision, oldest first, each file's last change only; None when too much did."""
        if revision < self._forgotten:
            return None
        fresh = list(itertools.takewhile(lambda number: number > revision, reversed(self._events)))
        return [self._events[number] for number in reversed(fresh)]

    def with_extensions(self, extensions: frozenset[str]) -> list[str]:
        """The project's files of these extensions, sorted."""
        return sorted(path for path in self.files if "*" in extensions or extension_of(path) in extensions)

    def read(self, path: str) -> str | None:
        """A file's text; None when it is absent, too large or not text. Blocks: small files only."""
        try:
            with (self.root / path).open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
            return None if len(data) > MAX_FILE_BYTES else decode(data)[0]
        except (OSError, NotTextError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a walk found; `partial` when there was more than it may look at."""

    files: dict[str, Signature]
    directories: set[str]
    partial: bool = False


def _look_again(root: Path, files: dict[str, Signature], directories: set[str]) -> _Seen:
    """A walk that never takes for gone what it only did not reach: what was known and is still there stays known."""
    seen = _walk(root)
    if seen.partial:
        for path in files.keys() - seen.files.keys():
            if (signature := signature_of(root / path)) is not None:
                seen.files[path] = signature
        seen.directories.update(path for path in directories - seen.directories if (root / path).is_dir())
    return seen


def _walk(root: Path) -> _Seen:
    """From the root down, level by level, so that a limit leaves out what lies deepest."""
    directories: set[str] = set()
    found: dict[str, Signature] = {}
    waiting = deque([""])
    while waiting:
        directory = waiting.popleft()
        try:
            entries = os.scandir(root / directory)
        except OSError:
            continue
        with entries:
            for entry in entries:
                name = entry.name
                path = f"{directory}{name}"
                try:
                    if entry.is_dir(follow_symlinks=False):
                        if not _skipped(entry):
                            directories.add(path)
                            waiting.append(f"{path}/")
                    elif entry.is_file(follow_symlinks=True):
                        if len(found) >= MAX_FILES:
                            return _Seen(found, directories, partial=True)
                        status = entry.stat(follow_symlinks=True)
                        found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
                except OSError:
                    continue
    return _Seen(found, directories)


def _skipped(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(".") or entry.name in SKIPPED_DIRECTORIES:
        return True
    return Path(entry.path, "pyvenv.cfg").exists()


def in_skipped_directory(path: str) -> bool:
    """Whether a path lies in a directory of installed or generated files, by its name."""
    return not SKIPPED_DIRECTORIES.isdisjoint(path.split("/")[:-1])


def signature_of(path: Path) -> Signature | None:
    """What tells one state of a regular file from another without reading it; None when there is none."""
    return _signature(_status_of(path))


def _status_of(path: Path | str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def _signature(status: os.stat_result | None) -> Signature | None:
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _came_and_went(old: set[str], new: set[str]) -> list[FileEvent]:
    """Directories, those that came from the root down and those that went from the leaves up."""
    came = [FileEvent(path, "created") for path in sorted(new - old)]
    return [*came, *(FileEvent(path, "deleted") for path in sorted(old - new, reverse=True))]


def _differences(old: dict[str, Signature], new: dict[str, Signature]) -> list[FileEvent]:
    gone = [FileEvent(path, "deleted") for path in old if path not in new]
    fresh = [FileEvent(path, "created") for path in new if path not in old]
    changed = [FileEvent(path, "changed") for path, signature in new.items() if old.get(path, signature) != signature]
    return [*gone, *fresh, *changed]

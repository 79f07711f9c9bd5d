"""What changed on disk while a command ran, found by looking before and after (SPEC 7.6).

A snapshot holds each file's modification and change time, size and inode, not its contents. Repository data and the
directories of dependencies and caches are not looked at. A tree too large for the bounds gives no list: the answer
is then `unknown` with the reason, never an empty one. Whatever else wrote meanwhile is in the list as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from devtools_lsp.agent.search_rules import REPOSITORY_NAMES, SKIPPED_DIRECTORIES
from devtools_lsp.core.result import Change
from devtools_lsp.core.summary import summary_lines

_NOT_ENTERED = REPOSITORY_NAMES | SKIPPED_DIRECTORIES


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """Bounds of one snapshot (files, seconds), and of the list that is made of two."""

    max_files: int = 100_000
    max_s: float = 2.0
    max_changes: int = 500


DEFAULT_LIMITS = SnapshotLimits()


class FileMark(NamedTuple):
    """What tells one state of a file from another; times in nanoseconds. A tuple, so that many compare quickly."""

    modified_ns: int
    changed_ns: int
    size: int
    inode: int
    mode: int
    links: int

    def same_content(self, other: FileMark) -> bool:
        """Whether nothing happened to the file but, at most, that another hard link to it came or went."""
        if (self.modified_ns, self.size, self.inode, self.mode) != (
            other.modified_ns,
            other.size,
            other.inode,
            other.mode,
        ):
            return False
        return self.changed_ns == other.changed_ns or self.links != other.links

    @property
    def identity(self) -> tuple[int, int, int]:
        """What a rename keeps: it sets the change time and nothing else."""
        return self.modified_ns, self.size, self.inode


@dataclass(frozen=True, slots=True)
class TreeSnapshot:
    """The state of a tree: a mark for each root-relative path; `unknown` says why there is none."""

    files: Mapping[str, FileMark]
    unknown: str | None = None


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """Differences between two snapshots; `omitted` counts those beyond the cap, `unknown` says why none are known."""

    changes: tuple[Change, ...] = ()
    omitted: int = 0
    unknown: str | None = None

    @property
    def content(self) -> str:
        """Lines for a model; empty when nothing changed."""
        if self.unknown is not None:
            return f"[which files changed is not known: {self.unknown}]\n"
        lines = summary_lines(self.changes)
        if self.omitted:
            lines.append(f"[{self.omitted:,} more files changed]")
        return "".join(f"{line}\n" for line in ("changed files:", *lines)) if lines else ""

    def to_wire(self) -> dict[str, Any]:
        """Plain data: {changes, omitted, unknown?}."""
        wire: dict[str, Any] = {"changes": msgspec.to_builtins(list(self.changes)), "omitted": self.omitted}
        if self.unknown is not None:
            wire["unknown"] = self.unknown
        return wire


async def take_snapshot(root: str, limits: SnapshotLimits = DEFAULT_LIMITS) -> TreeSnapshot:
    """Look at the tree, in a thread. Links are marked as themselves and not followed."""
    return await asyncio.to_thread(_scan, root, limits)


def changed_files(before: TreeSnapshot, after: TreeSnapshot, limits: SnapshotLimits = DEFAULT_LIMITS) -> ChangedFiles:
    """What differs, sorted by path. A file that went and an unchanged one of the same inode that came are a rename."""
    if before.unknown is not None or after.unknown is not None:
        return ChangedFiles(unknown=before.unknown or after.unknown)
    old_files, new_files = before.files, after.files
    gone = set(old_files.keys() - new_files.keys())
    by_identity = {old_files[path].identity: path for path in gone}
    found: list[Change] = []
    for path in [path for path, mark in new_files.items() if old_files.get(path) != mark]:
        old, new = old_files.get(path), new_files[path]
        if old is not None:
            if not old.same_content(new):
                found.append(Change(path=path, kind="modified"))
            continue
        source = by_identity.pop(new.identity, None)
        if source is None:
            found.append(Change(path=path, kind="added"))
        else:
            gone.remove(source)
            found.append(Change(path=path, kind="renamed", from_=source))
    found += [Change(path=path, kind="deleted") for path in gone]
    found.sort(key=lambda change: change.path)
    return ChangedFiles(tuple(found[: limits.max_changes]), max(0, len(found) - limits.max_changes))


def _scan(root: str, limits: SnapshotLimits) -> TreeSnapshot:
    files: dict[str, FileMark] = {}
    deadline = time.monotonic() + limits.max_s
    pending = [""]
    while pending:
        if time.monotonic() > deadline:
            return TreeSnapshot({}, f"looking at the tree took longer than {limits.max_s:g} s")
        if len(files) > limits.max_files:
            return TreeSnapshot({}, f"the tree has more than {limits.max_files:,} files")
        directory = pending.pop()
        try:
            with os.scandir(os.path.join(root, directory)) as entries:
                found = [entry for entry in entries if entry.name not in _NOT_ENTERED]
        except FileNotFoundError:
            continue
        except OSError as error:
            return TreeSnapshot({}, f"{directory or 'the root'} could not be read: {error.strerror}")
        for entry in found:
            path = f"{directory}/{entry.name}" if directory else entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
                continue
            # What goes while we look is rightly absent.
            with contextlib.suppress(FileNotFoundError):
                files[path] = _mark(entry.stat(follow_symlinks=False))
    return TreeSnapshot(files)


def _mark(status: os.stat_result) -> FileMark:
    return FileMark(
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_size,
        status.st_ino,
        stat.S_IMODE(status.st_mode),
        status.st_nlink,
    )

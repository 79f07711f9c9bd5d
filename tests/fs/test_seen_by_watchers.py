"""What those see who watch a directory: inotify as it is, and folded as editors' watchers fold it."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path

import pytest

from devtools_lsp.fs.staging import place_over, print_of, write_staged
from devtools_lsp.fs.syscalls import exchange

ATTRIB, MODIFY, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x4, 0x2, 0x40, 0x80, 0x100, 0x200


class Inotify:
    """The events of one directory's entries, in order, as (mask, name)."""

    def __init__(self, directory: Path) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._descriptor >= 0
        mask = ATTRIB | MODIFY | MOVED_FROM | MOVED_TO | CREATE | DELETE
        assert self._library.inotify_add_watch(self._descriptor, os.fsencode(directory), mask) >= 0

    def events(self) -> list[tuple[int, str]]:
        data = os.read(self._descriptor, 65536)
        found: list[tuple[int, str]] = []
        while data:
            _watch, mask, _cookie, length = struct.unpack_from("iIII", data)
            found.append((mask, data[16 : 16 + length].rstrip(b"\0").decode()))
            data = data[16 + length :]
        return found

    def close(self) -> None:
        os.close(self._descriptor)


def fold(events: list[tuple[int, str]], name: str) -> str | None:
    """As VS Code's watcher folds what happened to a file: what was gone and is back changed, what came and went is
    nothing, whatever else is told of it."""
    happened = created = deleted = False
    for mask, found in events:
        if found != name:
            continue
        happened = True
        if mask & (MOVED_TO | CREATE):
            created, deleted = created or not deleted, False
        elif mask & (MOVED_FROM | DELETE):
            deleted = True
    if not happened or (created and deleted):
        return None
    return "created" if created else "deleted" if deleted else "updated"


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_a_swapped_file_is_seen_by_watchers_that_fold_events(tmp_path: Path):
    root, journal = tmp_path / "root", tmp_path / "journal"
    root.mkdir()
    journal.mkdir()
    (root / "a.py").write_text("old\n")
    directory, staging = os.open(root, os.O_RDONLY), os.open(journal, os.O_RDONLY)
    watcher = Inotify(root)
    try:
        written = os.open("a.py", os.O_RDONLY, dir_fd=directory)
        before = print_of(written, os.fstat(written))
        ours = write_staged("new", staging, b"new\n", like=written)
        os.close(written)
        staged = os.stat("new", dir_fd=staging)
        if not place_over("new", staging, "a.py", directory, before, ours):
            pytest.skip("this file system cannot exchange names")
        events = watcher.events()
        assert fold(events, "a.py") == "updated", events
        now = os.stat(root / "a.py")
        assert (now.st_ino, now.st_mtime_ns) == (staged.st_ino, staged.st_mtime_ns)
        # The other order is the one that nobody would see.
        assert exchange(staging, "new", directory, "a.py")
        assert fold(watcher.events(), "a.py") is None
    finally:
        watcher.close()
        os.close(directory)
        os.close(staging)

"""A session of the journal whose process is gone: what it had under way, what it keeps, what it left in the tree.

Owns finding and locking one. What becomes of it is the business of `fs.recovery` and of the journal that adopts it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Generator
from dataclasses import dataclass

import msgspec

from devtools_lsp.errors import PolicyError
from devtools_lsp.fs.journal_names import LOCK, State, is_id, is_session, is_stray, is_unborn, state_name, state_of
from devtools_lsp.fs.names import JOURNAL_DIRECTORY, JOURNAL_IN_GIT
from devtools_lsp.fs.place import existing_private, locked, names_in
from devtools_lsp.fs.records import FORMAT, Committed, Forgotten, Ledger, Record, Strays
from devtools_lsp.fs.staging import open_regular, read_all
from devtools_lsp.fs.walk import LIST_FLAGS, RootWalk

_UNBORN_AGE_S = 3600.0


@dataclass(slots=True)
class Abandoned:
    """A session of a process that is gone, locked by us; `place` is the open directory that holds it."""

    place: int
    name: str
    descriptor: int
    lock: int

    def prepared(self) -> list[Record]:
        """What was under way, newest first: the order in which it is undone."""
        return self._sorted({**Ledger.read(self.descriptor)[0], **self._files("intent")}, newest_first=True)

    def committed(self) -> list[Record]:
        """What is kept for undo, oldest first."""
        return self._sorted({**Ledger.read(self.descriptor)[1], **self._files("done")}, newest_first=False)

    def settle(self, record: Record, kept: Record | None) -> None:
        """Turn a prepared record into a committed one, `kept`, or into none."""
        if record.light:
            ledger = Ledger(self.descriptor)
            try:
                ledger.append(Committed(record.id, kept) if kept is not None else Forgotten(record.id))
            finally:
                ledger.close()
            return
        # The committed one comes first: a crash in between leaves both, and the next start settles once more.
        if kept is not None:
            writing, done = state_name(record.id, "writing"), state_name(record.id, "done")
            self._write(writing, msgspec.json.encode(kept))
            os.rename(writing, done, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
            os.fsync(self.descriptor)
        else:
            self._remove(state_name(record.id, "done"))
        self._remove(state_name(record.id, "intent"))
        os.fsync(self.descriptor)

    @staticmethod
    def _sorted(records: dict[str, Record], *, newest_first: bool) -> list[Record]:
        usable = (record for record in records.values() if record.format == FORMAT and is_id(record.id))
        return sorted(usable, key=lambda record: record.id, reverse=newest_first)

    def _files(self, state: State) -> dict[str, Record]:
        """The records that are files of their own.

        One that does not parse was being written when the machine stopped: nothing of it had begun.
        """
        found: dict[str, Record] = {}
        for name in names_in(self.descriptor):
            known = state_of(name)
            if known is None or known.state != state:
                continue
            try:
                record = msgspec.json.decode(self._read(name), type=Record)
            except (msgspec.DecodeError, OSError):
                continue
            if record.id == known.id and not record.light:
                found[record.id] = record
        return found

    def strays(self) -> dict[str, Strays]:
        """What may stand in the tree, by the id of its transaction. Only names of our own form are returned."""
        found: dict[str, Strays] = {}
        for name in names_in(self.descriptor):
            known = state_of(name)
            if known is None or known.state != "strays":
                continue
            try:
                listed = msgspec.json.decode(self._read(name), type=Strays)
            except (msgspec.DecodeError, OSError):
                continue
            ours = tuple((where, stray) for where, stray in listed.temporaries if is_stray(stray))
            found[known.id] = msgspec.structs.replace(listed, temporaries=ours)
        return found

    def _write(self, name: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=self.descriptor)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def _read(self, name: str) -> bytes:
        descriptor, status = open_regular(name, self.descriptor)
        try:
            return read_all(descriptor, status.st_size)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Unlock it."""
        os.close(self.lock)
        os.close(self.descriptor)


def seize(place: int, name: str) -> Abandoned | None:
    """A session, locked; None when it is alive, gone, or none."""
    if not is_session(name):
        _remove_unborn(place, name)
        return None
    try:
        descriptor = os.open(name, LIST_FLAGS, dir_fd=place)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise
    try:
        lock = locked(descriptor)
        if os.fstat(lock).st_nlink:
            return Abandoned(place, name, descriptor, lock)
        # Another process adopted it between our two calls.
        os.close(lock)
        os.close(descriptor)
        return None
    except (BlockingIOError, FileNotFoundError):
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise


def _remove_unborn(place: int, name: str) -> None:
    """Remove a session that died before it was one; a younger one may still be about to become one."""
    if not is_unborn(name):
        return
    age_s = time.time() - os.stat(name, dir_fd=place, follow_symlinks=False).st_mtime
    if age_s > _UNBORN_AGE_S:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{name}/{LOCK}", dir_fd=place)
        os.rmdir(name, dir_fd=place)


def kept_records(root: RootWalk) -> Generator[tuple[str, list[Record]]]:
    """The committed records of every session of a root, with the session's root-relative path; nothing is locked."""
    for path in (JOURNAL_DIRECTORY, f".git/{JOURNAL_IN_GIT}"):
        place = None
        with contextlib.suppress(OSError, PolicyError), root.walk(f"{path}/.", follow=False) as trail:
            place = existing_private(trail.descriptor, ".") if not trail.missing else None
        if place is None:
            continue
        try:
            for session in filter(is_session, sorted(names_in(place))):
                with contextlib.suppress(FileNotFoundError):
                    # It may be adopted by another process at this very moment.
                    descriptor = os.open(session, LIST_FLAGS, dir_fd=place)
                    try:
                        records = Abandoned(place, session, descriptor, -1).committed()
                    finally:
                        os.close(descriptor)
                    yield f"{path}/{session}", records
        finally:
            os.close(place)

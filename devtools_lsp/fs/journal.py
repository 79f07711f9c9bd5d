"""The journal's place on disk: records of transactions, their before-images, and who may touch them.

Owns the layout, locking between processes, and retention. `fs.carrying` writes records, `fs.recovery` reads those
that a crash left, `fs.undo` those that are kept for undoing. Blocks; knows no policy.

Layout: `<place>/<session>/`, one session a process, locked while it lives; `fs.journal_names` says what is in it. A
session whose process died is adopted by the next one that opens the journal.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import attrgetter
from types import TracebackType

import msgspec

from devtools_lsp.errors import InvalidConfigError, StepFailedError
from devtools_lsp.fs.abandoned import Abandoned, seize
from devtools_lsp.fs.journal_names import LEDGER, LOCK, new_session, part_name, state_name, unborn
from devtools_lsp.fs.mounts import Mounts
from devtools_lsp.fs.names import JOURNAL_DIRECTORY, JOURNAL_IN_GIT
from devtools_lsp.fs.place import (
    can_exchange,
    existing_private,
    git_directory,
    locked,
    names_in,
    private_directory,
)
from devtools_lsp.fs.records import Committed, Forgotten, Ledger, Prepared, Record, Strays
from devtools_lsp.fs.staging import inode_at
from devtools_lsp.fs.walk import LIST_FLAGS, RootWalk, mount_of

_SLACK = 16
"""Plans beyond the retention that may gather before they are swept together."""
_LONG_LEDGER = 1 << 20
"""Bytes of a ledger that is worth writing anew."""
_ALONE_S = 10.0
"""How long another process may take for one commit, or for its recovery."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How much is kept for undo: the last plans, their age in seconds, the bytes of their before-images."""

    plans: int = 50
    age_s: float = 7 * 24 * 3600.0
    size: int = 256 * 1024 * 1024


class Journal:
    """One process's session in the journal of one root."""

    def __init__(self, parent: int, name: str, *, below: str = "", retention: Retention | None = None) -> None:
        """The journal is the directory `name` in an open directory, whose own path is `below`; it is made 0700 when
        absent. Raises OSError.
        """
        self.retention = retention or Retention()
        self._place = private_directory(parent, name)
        self._places = [self._place]
        """All that sessions may be in; the first is that of this one."""
        self.session = new_session()
        os.mkdir(unborn(self.session), 0o700, dir_fd=self._place)
        self.descriptor = os.open(unborn(self.session), LIST_FLAGS, dir_fd=self._place)
        self._lock = locked(self.descriptor)
        os.rename(unborn(self.session), self.session, src_dir_fd=self._place, dst_dir_fd=self._place)
        self.mounts = Mounts()
        self.mount = mount_of(self.descriptor)
        self.exchanges = can_exchange(self.descriptor)
        self._ledger = Ledger(self.descriptor)
        self._records: dict[str, Record] = {}
        self._plans: dict[str, int] = {}
        self._size = 0
        self._root: int | None = None
        self._alone = _Alone(self._place)
        self.place = f"{below}{name}/{self.session}"
        """The root-relative path of this session."""
        self._closed = False

    @classmethod
    def open(cls, root: RootWalk, *, retention: Retention | None = None) -> Journal:
        """The journal of a root: in its git directory where that is on the root's mount, else in the root.

        Raises InvalidConfigError when neither can be used.
        """
        git = git_directory(root)
        try:
            if git is not None:
                journal = cls(git, JOURNAL_IN_GIT, below=".git/", retention=retention)
                # Where it was until somebody made this a repository.
                older = existing_private(root.descriptor, JOURNAL_DIRECTORY)
                journal._places += [older] if older is not None else []
            else:
                journal = cls(root.descriptor, JOURNAL_DIRECTORY, retention=retention)
                journal._ignore_itself()
            journal._root = root.descriptor
            return journal
        except OSError as error:
            where = f".git/{JOURNAL_IN_GIT}" if git is not None else JOURNAL_DIRECTORY
            raise InvalidConfigError(
                f"root: the journal of writes, {where}, cannot be used ({error.strerror}); make the root writable, or "
                "set `[workspace] read_only = true` in devtools.toml"
            ) from error
        finally:
            if git is not None:
                os.close(git)

    def is_gone(self) -> bool:
        """Whether somebody removed the session's directory, or moved it to where no start will look for it."""
        here = os.fstat(self.descriptor)
        if here.st_nlink == 0 or self._root is None:
            return here.st_nlink == 0
        try:
            found = os.stat(self.place, dir_fd=self._root)
        except FileNotFoundError:
            return True
        return (found.st_dev, found.st_ino) != (here.st_dev, here.st_ino)

    def close(self) -> None:
        """Give the session up; what it holds is adopted by the next one. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._ledger.close()
        self.mounts.close()
        os.close(self._lock)
        os.close(self.descriptor)
        while self._places:
            os.close(self._places.pop())

    def alone(self) -> AbstractContextManager[None]:
        """Keep other processes of ours from changing the tree meanwhile; what programs of others do, the swap notices.

        Two that swap at once would take each other's way back for a newer file. Raises StepFailedError after some time.
        """
        return self._alone

    # -- records -------------------------------------------------------------------------------------------------

    def prepare(self, record: Record) -> None:
        """Put a record in place before the first byte moves. It survives a power cut, a light one a crash only."""
        if record.light:
            self._ledger.append(Prepared(record))
            return
        self._create(state_name(record.id, "writing"), msgspec.json.encode(record), durable=True)
        self._rename(state_name(record.id, "writing"), state_name(record.id, "intent"))
        os.fsync(self.descriptor)

    def commit(self, record: Record) -> None:
        """Mark a prepared record as committed."""
        if record.light:
            self._ledger.append(Committed(record.id))
            self._remember(record)
            return
        self._rename(state_name(record.id, "intent"), state_name(record.id, "done"))
        try:
            os.fsync(self.descriptor)
        except OSError:
            # Not known to be durable, so not acknowledged: back to prepared, for the caller to undo.
            self._rename(state_name(record.id, "done"), state_name(record.id, "intent"))
            raise
        self._remember(record)

    def withdraw(self, record: Record) -> None:
        """Take back a prepared record, once nothing of it is on the disk any more."""
        if record.light:
            self._ledger.append(Forgotten(record.id))
        else:
            # Also the mark of a commit that could not be synced, nor taken off again.
            self.discard(state_name(record.id, "done"))
            self.discard(state_name(record.id, "intent"))

    def is_marked(self, record: Record) -> bool:
        """Whether the next start would take a record for committed, as far as can be seen. Not for light ones."""
        return inode_at(state_name(record.id, "done"), self.descriptor) is not None

    def replace(self, record: Record) -> None:
        """Rewrite a committed record."""
        if record.light:
            self._ledger.append(Committed(record.id, record))
        else:
            self._create(state_name(record.id, "writing"), msgspec.json.encode(record))
            self._rename(state_name(record.id, "writing"), state_name(record.id, "done"))
        self._records[record.id] = record

    def note_strays(self, id_: str, strays: Strays) -> None:
        """Say what is about to be made in the tree beside the files themselves, so that a crash leaves none of it."""
        self.discard(state_name(id_, "strays"))
        self._create(state_name(id_, "strays"), msgspec.json.encode(strays))

    def parked(self) -> list[Record]:
        """What an interrupted plan left that could not be taken back, and was not undone since; oldest first."""
        landed = {record.plan for record in self._records.values()}
        return [record for record in self.records() if record.parked and record.undone_by not in landed]

    def forget(self, record: Record) -> None:
        """Remove a committed record with its before-images."""
        del self._records[record.id]
        self._size -= _counted(record)
        self._plans[record.plan] -= 1
        if not self._plans[record.plan]:
            del self._plans[record.plan]
        # The record goes first: files without one are litter that the next start sweeps, a record without its
        # before-images would promise what it cannot keep.
        if record.light:
            self._ledger.append(Forgotten(record.id))
        else:
            self.discard(state_name(record.id, "done"))
        for entry in record.entries:
            self.discard(part_name(record.id, "old", entry.n))

    def discard(self, name: str) -> None:
        """Remove one file of this session if it is there."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return

    def records(self) -> list[Record]:
        """The committed records of this session, adopted ones included, oldest first."""
        return sorted(self._records.values(), key=attrgetter("id"))

    # -- sessions that died --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def abandoned(self) -> Generator[tuple[list[Abandoned], list[str]]]:
        """The sessions whose processes are gone, locked for the length of the block; and what could not be opened."""
        found: list[Abandoned] = []
        problems: list[str] = []
        try:
            for place, name in [(where, name) for where in self._places for name in sorted(names_in(where))]:
                if name == self.session:
                    continue
                try:
                    session = seize(place, name)
                except OSError as error:
                    problems.append(f"the journal's session {name} cannot be opened: {error.strerror}")
                    continue
                if session is not None:
                    found.append(session)
            yield found, problems
        finally:
            for session in found:
                session.close()

    def adopt(self, session: Abandoned) -> None:
        """Take over the committed records of a session that has nothing prepared any more, and remove it."""
        records = {record.id: record for record in session.committed()}
        images = {part_name(record.id, "old", entry.n) for record in records.values() for entry in record.entries}
        done = {state_name(id_, "done") for id_ in records}
        # Records behind their files, so that a crash in between leaves a record that can still be adopted.
        for name in sorted(names_in(session.descriptor), key=lambda name: name in done):
            if name in images or name in done:
                os.rename(name, name, src_dir_fd=session.descriptor, dst_dir_fd=self.descriptor)
            elif name not in (LOCK, LEDGER):
                with contextlib.suppress(OSError):
                    # What is not ours to remove (a directory, say) keeps the session's directory from going, too.
                    os.unlink(name, dir_fd=session.descriptor)
        for record in records.values():
            if record.light:
                self._ledger.append(Committed(record.id, record))
            self._remember(record)
        for name in (LEDGER, LOCK):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=session.descriptor)
        with contextlib.suppress(OSError):
            os.rmdir(session.name, dir_fd=session.place)

    def crowded(self) -> bool:
        """Whether enough has gathered beyond the retention for `prune` to be worth its while; costs nothing."""
        return (
            len(self._plans) > self.retention.plans + _SLACK
            or self._size > self.retention.size
            or self._ledger.size > _LONG_LEDGER
        )

    def prune(self) -> None:
        """Forget what is beyond the retention. What is parked goes by its age alone."""
        oldest = time.time() - self.retention.age_s
        parked = {record.id for record in self.parked() if record.time >= oldest}
        records = [record for record in self.records() if record.id not in parked]
        plans = {record.plan: None for record in reversed(records)}
        kept_plans = set(list(plans)[: self.retention.plans])
        kept_size = 0
        for record in reversed(records):
            kept_size += record.size
            if record.plan not in kept_plans or record.time < oldest or kept_size > self.retention.size:
                self.forget(record)
        if self._ledger.size > _LONG_LEDGER:
            self._ledger.rewrite(record for record in self.records() if record.light)

    def _remember(self, record: Record) -> None:
        self._records[record.id] = record
        self._plans[record.plan] = self._plans.get(record.plan, 0) + 1
        self._size += _counted(record)

    # -- files ---------------------------------------------------------------------------------------------------

    def _create(self, name: str, data: bytes, *, durable: bool = False) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=self.descriptor)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def _ignore_itself(self) -> None:
        try:
            descriptor = os.open(
                ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._place
            )
        except FileExistsError:
            return
        try:
            os.write(descriptor, b"*\n")
        finally:
            os.close(descriptor)


class _Alone:
    """The lock between processes on an open directory, as a context; see `Journal.alone`."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __enter__(self) -> None:
        deadline = time.monotonic() + _ALONE_S
        while not self._taken():
            if time.monotonic() > deadline:
                raise StepFailedError(
                    f"another process of devtools-lsp has been writing in this root for {_ALONE_S:g} s; try again, or "
                    "end it",
                    retry="yes",
                )
            time.sleep(0.001)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            fcntl.flock(self._place, fcntl.LOCK_UN)
        except OSError:
            return  # See below.

    def _taken(self) -> bool:
        try:
            fcntl.flock(self._place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # This file system has no locks: the swap alone decides, as it does between us and others.
        return True


def _counted(record: Record) -> int:
    """The bytes that count against the retention: not those that wait for a person."""
    return 0 if record.parked else record.size

"""The journal's place on disk: records of transactions, their before-images, and who may touch them.

Owns the layout, locking between processes, and retention. `fs.carrying` writes records, `fs.recovery` reads those
that a crash left, `fs.undo` those that are kept for undoing. Blocks; knows no policy.

Layout: `<place>/<session>/`, one session a process, locked while it lives; in it `<id>.intent` (prepared) which
is renamed to `<id>.done` (committed), or both as lines of the `ledger`; `<id>.old.<n>` before-images; and for the
length of a commit `<id>.new.<n>`, `<id>.gone.<n>` and `<id>.strays`. A session whose process died is adopted by the
next one that opens the journal.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import msgspec

from devtools_lsp.errors import InvalidConfigError
from devtools_lsp.fs.names import JOURNAL_DIRECTORY
from devtools_lsp.fs.records import FORMAT, LEDGER, Committed, Forgotten, Ledger, Prepared, Record
from devtools_lsp.fs.staging import open_regular, read_all
from devtools_lsp.fs.syscalls import exchange
from devtools_lsp.fs.walk import LIST_FLAGS, RootWalk, mount_of

_SLACK = 16
"""Plans beyond the retention that may gather before they are swept together."""
_LONG_LEDGER = 1 << 20
"""Bytes of a ledger that is worth writing anew."""
JOURNAL_IN_GIT = "devtools-lsp"
"""The journal's directory inside a git directory."""
_LOCK = "lock"
_SESSION = re.compile(r"[0-9a-f]{16}")
_ID = re.compile(r"\d{20}-[0-9a-f]{8}")
_RECORD = re.compile(r"(\d{20}-[0-9a-f]{8})\.(intent|done|strays)")
_PARTS = re.compile(r"(\d{20}-[0-9a-f]{8})\.(?:new|old|gone|back)\.\d+|(\d{20}-[0-9a-f]{8})\.writing")
_STRAY = re.compile(r"\.devtools-lsp-\d{20}-[0-9a-f]{8}-\w+\.tmp")


@dataclass(frozen=True, slots=True)
class Retention:
    """How much is kept for undo: the last plans, their age in seconds, the bytes of their before-images."""

    plans: int = 50
    age_s: float = 7 * 24 * 3600.0
    size: int = 256 * 1024 * 1024


class Journal:
    """One process's session in the journal of one root."""

    def __init__(self, parent: int, name: str, *, retention: Retention | None = None) -> None:
        """The journal is the directory `name` in an open directory; it is made 0700 when absent. Raises OSError."""
        self.retention = retention or Retention()
        self._place = _private_directory(parent, name)
        self.session = secrets.token_hex(8)
        # It gets its final name once it is locked: a session without a holder may be adopted at any moment.
        os.mkdir(f"{self.session}.new", 0o700, dir_fd=self._place)
        self.descriptor = os.open(f"{self.session}.new", LIST_FLAGS, dir_fd=self._place)
        self._lock = _locked(self.descriptor)
        os.rename(f"{self.session}.new", self.session, src_dir_fd=self._place, dst_dir_fd=self._place)
        self.mount = mount_of(self.descriptor)
        self.exchanges = _can_exchange(self.descriptor)
        self._ledger = Ledger(self.descriptor)
        self._records: dict[str, Record] = {}
        self._plans: dict[str, int] = {}
        self._size = 0
        self._closed = False

    @classmethod
    def open(cls, root: RootWalk, *, retention: Retention | None = None) -> Journal:
        """The journal of a root: in its git directory where that is on the root's mount, else in the root.

        Raises InvalidConfigError when neither can be used.
        """
        git = _git_directory(root)
        try:
            if git is not None:
                return cls(git, JOURNAL_IN_GIT, retention=retention)
            journal = cls(root.descriptor, JOURNAL_DIRECTORY, retention=retention)
            journal._ignore_itself()
            return journal
        except OSError as error:
            where = f".git/{JOURNAL_IN_GIT}" if git is not None else JOURNAL_DIRECTORY
            raise InvalidConfigError(
                f"root: the journal {where} cannot be used ({error.strerror}); make it a directory of your own, or run "
                "read-only"
            ) from error
        finally:
            if git is not None:
                os.close(git)

    def close(self) -> None:
        """Give the session up; what it holds is adopted by the next one. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._ledger.close()
        os.close(self._lock)
        os.close(self.descriptor)
        os.close(self._place)

    # -- records -------------------------------------------------------------------------------------------------

    def new_id(self) -> str:
        """An id that sorts by time."""
        return f"{time.time_ns():020d}-{secrets.token_hex(4)}"

    def prepare(self, record: Record) -> None:
        """Put a record in place before the first byte moves. It survives a power cut, a light one a crash only."""
        if record.light:
            self._ledger.append(Prepared(record))
            return
        self._create(f"{record.id}.writing", msgspec.json.encode(record), durable=True)
        self._rename(f"{record.id}.writing", f"{record.id}.intent")
        os.fsync(self.descriptor)

    def commit(self, record: Record) -> None:
        """Mark a prepared record as committed."""
        if record.light:
            self._ledger.append(Committed(record.id))
            self._remember(record)
            return
        self._rename(f"{record.id}.intent", f"{record.id}.done")
        try:
            os.fsync(self.descriptor)
        except OSError:
            # Not known to be durable, so not acknowledged: back to prepared, for the caller to undo.
            self._rename(f"{record.id}.done", f"{record.id}.intent")
            raise
        self._remember(record)

    def withdraw(self, record: Record) -> None:
        """Take back a prepared record, once nothing of it is on the disk any more."""
        if record.light:
            self._ledger.append(Forgotten(record.id))
        else:
            self.discard(f"{record.id}.intent")

    def replace(self, record: Record) -> None:
        """Rewrite a committed record."""
        if record.light:
            self._ledger.append(Committed(record.id, record))
        else:
            self._create(f"{record.id}.writing", msgspec.json.encode(record))
            self._rename(f"{record.id}.writing", f"{record.id}.done")
        self._records[record.id] = record

    def note_strays(self, id_: str, strays: Sequence[tuple[str, str]]) -> None:
        """Say what is about to be made in the tree before the intent: temporaries (directory, name), and directories
        (directory, ""). So a crash leaves none of it.
        """
        self.discard(f"{id_}.strays")
        self._create(f"{id_}.strays", msgspec.json.encode(strays))

    def forget(self, record: Record) -> None:
        """Remove a committed record with its before-images."""
        del self._records[record.id]
        self._size -= record.size
        self._plans[record.plan] -= 1
        if not self._plans[record.plan]:
            del self._plans[record.plan]
        # The record goes first: files without one are litter that the next start sweeps, a record without its
        # before-images would promise what it cannot keep.
        if record.light:
            self._ledger.append(Forgotten(record.id))
        else:
            self.discard(f"{record.id}.done")
        for entry in record.entries:
            self.discard(f"{record.id}.old.{entry.n}")

    def discard(self, name: str) -> None:
        """Remove one file of this session if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def records(self) -> list[Record]:
        """The committed records of this session, adopted ones included, oldest first."""
        return sorted(self._records.values(), key=lambda record: record.id)

    # -- sessions that died --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def abandoned(self) -> Generator[list[Abandoned]]:
        """The sessions whose processes are gone, locked for the length of the block."""
        found: list[Abandoned] = []
        try:
            for name in sorted(_names(self._place)):
                if name == self.session or not _SESSION.fullmatch(name):
                    continue
                session = self._seize(name)
                if session is not None:
                    found.append(session)
            yield found
        finally:
            for session in found:
                session.close()

    def _seize(self, name: str) -> Abandoned | None:
        try:
            descriptor = os.open(name, LIST_FLAGS, dir_fd=self._place)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise
        try:
            lock = _locked(descriptor)
            if os.fstat(lock).st_nlink:
                return Abandoned(name, descriptor, lock)
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

    def adopt(self, session: Abandoned) -> None:
        """Take over the committed records of a session that has nothing prepared any more, and remove it."""
        records = {record.id: record for record in session.committed()}
        for name in sorted(_names(session.descriptor), key=_is_record):
            known = _PARTS.fullmatch(name) or _RECORD.fullmatch(name)
            id_ = (known.group(1) or known.group(2)) if known else None
            if id_ in records and (name.endswith(".done") or f"{id_}.old." in name):
                os.rename(name, name, src_dir_fd=session.descriptor, dst_dir_fd=self.descriptor)
            elif name not in (_LOCK, LEDGER):
                os.unlink(name, dir_fd=session.descriptor)
        for record in records.values():
            if record.light:
                self._ledger.append(Committed(record.id, record))
            self._remember(record)
        for name in (LEDGER, _LOCK):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=session.descriptor)
        os.rmdir(session.name, dir_fd=self._place)

    def crowded(self) -> bool:
        """Whether enough has gathered beyond the retention for `prune` to be worth its while; costs nothing."""
        return (
            len(self._plans) > self.retention.plans + _SLACK
            or self._size > self.retention.size
            or self._ledger.size > _LONG_LEDGER
        )

    def prune(self) -> None:
        """Forget what is beyond the retention."""
        records = self.records()
        plans = {record.plan: None for record in reversed(records)}
        oldest = time.time() - self.retention.age_s
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
        self._size += record.size

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


@dataclass(slots=True)
class Abandoned:
    """A session of a process that is gone, locked by us."""

    name: str
    descriptor: int
    lock: int

    def prepared(self) -> list[Record]:
        """What was under way, newest first: the order in which it is undone."""
        return self._sorted({**Ledger.read(self.descriptor)[0], **self._files("intent")}, newest_first=True)

    def committed(self) -> list[Record]:
        """What is kept for undo, oldest first."""
        return self._sorted({**Ledger.read(self.descriptor)[1], **self._files("done")}, newest_first=False)

    def settle(self, record: Record, *, new: bool) -> None:
        """Turn a prepared record into a committed one (`new`) or into none."""
        if record.light:
            ledger = Ledger(self.descriptor)
            try:
                ledger.append(Committed(record.id) if new else Forgotten(record.id))
            finally:
                ledger.close()
            return
        intent = f"{record.id}.intent"
        if new:
            os.rename(intent, f"{record.id}.done", src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        else:
            os.unlink(intent, dir_fd=self.descriptor)
        os.fsync(self.descriptor)

    @staticmethod
    def _sorted(records: dict[str, Record], *, newest_first: bool) -> list[Record]:
        usable = (record for record in records.values() if record.format == FORMAT and _ID.fullmatch(record.id))
        return sorted(usable, key=lambda record: record.id, reverse=newest_first)

    def _files(self, state: str) -> dict[str, Record]:
        """The records that are files of their own.

        One that does not parse was being written when the machine stopped: nothing of it had begun.
        """
        found: dict[str, Record] = {}
        for name in _names(self.descriptor):
            known = _RECORD.fullmatch(name)
            if known is None or known.group(2) != state:
                continue
            try:
                record = msgspec.json.decode(self._read(name), type=Record)
            except (msgspec.DecodeError, OSError):
                continue
            if record.id == known.group(1) and not record.light:
                found[record.id] = record
        return found

    def strays(self) -> list[tuple[str, str]]:
        """What may stand in the tree; see `Journal.note_strays`. Only names of our own form are returned."""
        found: list[tuple[str, str]] = []
        for name in _names(self.descriptor):
            known = _RECORD.fullmatch(name)
            if known is None or known.group(2) != "strays":
                continue
            try:
                listed = msgspec.json.decode(self._read(name), type=list[tuple[str, str]])
            except (msgspec.DecodeError, OSError):
                continue
            found.extend((where, stray) for where, stray in listed if not stray or _STRAY.fullmatch(stray))
        return found

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


def stray_name(id_: str, label: str) -> str:
    """The name of a temporary that has to stand in the tree itself."""
    return f".devtools-lsp-{id_}-{label}.tmp"


def _names(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def _is_record(name: str) -> bool:
    """Sorts records behind their files, so that a crash in between leaves a record that can still be adopted."""
    return name.endswith(".done")


def _can_exchange(directory: int) -> bool:
    """Whether names can be swapped on the journal's file system, which is that of almost every target."""
    names = ("exchange.a", "exchange.b")
    try:
        for name in names:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory))
        return exchange(directory, names[0], directory, names[1])
    finally:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)


def _private_directory(parent: int, name: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    descriptor = os.open(name, LIST_FLAGS, dir_fd=parent)
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "it belongs to another user", name)
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.fchmod(descriptor, 0o700)
    return descriptor


def _locked(directory: int) -> int:
    """The descriptor of a session's lock file, locked; raises BlockingIOError when its process is alive."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(_LOCK, flags, 0o600, dir_fd=directory)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _git_directory(root: RootWalk) -> int | None:
    """`<root>/.git`, opened, when it is a real directory of ours on the root's own mount.

    A `.git` file (a worktree, a submodule) points to where the root does not reach, so the journal stays inside.
    """
    try:
        descriptor = os.open(".git", LIST_FLAGS, dir_fd=root.descriptor)
    except OSError:
        return None
    status = os.fstat(descriptor)
    if (
        status.st_dev == os.fstat(root.descriptor).st_dev
        and status.st_uid == os.geteuid()
        and mount_of(descriptor) == mount_of(root.descriptor)
        and os.access(".", os.W_OK | os.X_OK, dir_fd=descriptor)
    ):
        return descriptor
    os.close(descriptor)
    return None

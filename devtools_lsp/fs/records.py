"""What the journal writes down: the records of transactions, and the ledger that holds those of single changes.

Owns the formats. A record of several files is a file of its own, durable before the first byte moves; that of a
single change is a line in the session's ledger, because one rename needs no protection and a line costs a tenth of
a file. A line that a crash or a full disk tore is skipped: nothing of it had begun, or its end is found on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from devtools_lsp.fs.journal_names import LEDGER
from devtools_lsp.fs.staging import Print, open_regular, read_all

FORMAT = 1
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One path of a transaction: what was there and what comes, None = absent. `n` numbers its files.

    `moved_from` is the path whose file this one is, for moves. `stage` is the resolved directory in which it was
    staged when the journal's own would not do (another mount, an inherited ACL); None = in the journal. `swapped`:
    it was staged under the name of its before-image, so that the swap itself puts that there.
    """

    n: int
    path: str
    before: Print | None
    after: Print | None
    moved_from: str | None = None
    stage: str | None = None
    swapped: bool = False


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """One transaction. `light`: a single atomic rename, so that a crash leaves either state and neither is undone.

    `directories` are those it made, parents first, and `made` their inodes. `undone_by` names the plan that undid it,
    `undoes` the one it undid. `parked` are paths of a plan that a crash interrupted and that could not be taken back,
    each with why: of such a plan only the entries are left that hold something to get back.
    """

    format: int
    id: str
    plan: str
    time: float
    light: bool
    entries: tuple[Entry, ...]
    directories: tuple[str, ...] = ()
    made: tuple[int, ...] = ()
    undone_by: str | None = None
    undoes: str | None = None
    parked: dict[str, str] = {}

    @property
    def size(self) -> int:
        """The bytes of its before-images."""
        size = 0
        for entry in self.entries:
            if entry.before is not None:
                size += entry.before.size
        return size


class Strays(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a transaction leaves in the tree if its process dies, written down before it does.

    `temporaries` are (directory, name) · `made` directories that go if it is not committed, innermost first ·
    `emptied` directories with their inodes that go if it is, innermost first.
    """

    temporaries: tuple[tuple[str, str], ...] = ()
    made: tuple[str, ...] = ()
    emptied: tuple[tuple[str, int], ...] = ()


class Prepared(msgspec.Struct, frozen=True, tag="prepared", tag_field="is"):
    """A line: the change is about to be made."""

    record: Record


class Committed(msgspec.Struct, frozen=True, tag="committed", tag_field="is"):
    """A line: the change was made; with `record` where the prepared one is to be replaced."""

    id: str
    record: Record | None = None


class Forgotten(msgspec.Struct, frozen=True, tag="forgotten", tag_field="is"):
    """A line: the change is of no interest any more."""

    id: str


Line = Prepared | Committed | Forgotten


class Ledger:
    """The lines of one session, appended one `write` each; never synced."""

    def __init__(self, directory: int) -> None:
        self._directory = directory
        self._descriptor = os.open(LEDGER, _FLAGS, 0o600, dir_fd=directory)
        self.size = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def append(self, line: Line) -> None:
        """Add a line; raises OSError. Every line begins with a line feed, so that a torn one spoils no other."""
        data = b"\n" + msgspec.json.encode(line)
        written = os.write(self._descriptor, data)
        self.size += written
        if written != len(data):
            os.write(self._descriptor, data[written:])  # Says why: no space, as a rule.

    def rewrite(self, records: Iterable[Record]) -> None:
        """Start anew with these committed records; raises OSError and then the old lines count."""
        name = f"{LEDGER}.writing"
        descriptor = os.open(name, _FLAGS | os.O_TRUNC, 0o600, dir_fd=self._directory)
        try:
            data = b"".join(b"\n" + msgspec.json.encode(Committed(record.id, record)) for record in records)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.rename(name, LEDGER, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(self._descriptor)
        self._descriptor = descriptor
        self.size = len(data)

    @staticmethod
    def read(directory: int) -> tuple[dict[str, Record], dict[str, Record]]:
        """The prepared and the committed records of a session's ledger, by id."""
        prepared: dict[str, Record] = {}
        committed: dict[str, Record] = {}
        try:
            descriptor, status = open_regular(LEDGER, directory)
        except FileNotFoundError:
            return prepared, committed
        try:
            data = read_all(descriptor, status.st_size)
        finally:
            os.close(descriptor)
        for text in data.split(b"\n"):
            try:
                line = msgspec.json.decode(text, type=Line)
            except msgspec.DecodeError:
                continue
            if isinstance(line, Prepared):
                prepared[line.record.id] = line.record
            elif isinstance(line, Forgotten):
                prepared.pop(line.id, None)
                committed.pop(line.id, None)
            else:
                record = line.record or prepared.get(line.id)
                prepared.pop(line.id, None)
                if record is not None:
                    committed[line.id] = record
        return prepared, committed

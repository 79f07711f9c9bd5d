"""A session of the journal whose process is gone: what it had under way, what it keeps, what it left in the tree."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass

import msgspec

from devtools_lsp.fs.place import names_in
from devtools_lsp.fs.records import FORMAT, Committed, Forgotten, Ledger, Record, Strays
from devtools_lsp.fs.staging import open_regular, read_all

_ID = re.compile(r"\d{20}-[0-9a-f]{8}")
RECORD_NAME = re.compile(r"(\d{20}-[0-9a-f]{8})\.(intent|done|strays)")
_STRAY = re.compile(r"\.devtools-lsp-\d{20}-[0-9a-f]{8}-\w+\.tmp")


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
            self._write(f"{record.id}.writing", msgspec.json.encode(kept))
            os.rename(
                f"{record.id}.writing", f"{record.id}.done", src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor
            )
            os.fsync(self.descriptor)
        else:
            self._remove(f"{record.id}.done")
        self._remove(f"{record.id}.intent")
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
        for name in names_in(self.descriptor):
            known = RECORD_NAME.fullmatch(name)
            if known is None or known.group(2) != state:
                continue
            try:
                record = msgspec.json.decode(self._read(name), type=Record)
            except (msgspec.DecodeError, OSError):
                continue
            if record.id == known.group(1) and not record.light:
                found[record.id] = record
        return found

    def strays(self) -> dict[str, Strays]:
        """What may stand in the tree, by the id of its transaction. Only names of our own form are returned."""
        found: dict[str, Strays] = {}
        for name in names_in(self.descriptor):
            known = RECORD_NAME.fullmatch(name)
            if known is None or known.group(2) != "strays":
                continue
            try:
                listed = msgspec.json.decode(self._read(name), type=Strays)
            except (msgspec.DecodeError, OSError):
                continue
            ours = tuple((where, stray) for where, stray in listed.temporaries if _STRAY.fullmatch(stray))
            found[known.group(1)] = msgspec.structs.replace(listed, temporaries=ours)
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

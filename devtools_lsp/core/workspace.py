"""The files that one plan has acquired: an immutable snapshot that every step maps to the next one.

Owns which files there are, what they were when acquired, what the disk is known to hold, and who moved where.
Paths are root-relative POSIX; texts have LF line ends. No I/O: the runtime reads and writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import msgspec

from devtools_lsp.core.linediff import line_spans
from devtools_lsp.core.result import Change
from devtools_lsp.text import UTF8_LF, Span, TextForm, TextPolicy, apply_spans, encode


def sha256(data: bytes) -> str:
    """The content hash used for every comparison in this project: hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class FileText:
    """A file in memory: its LF text and the form its bytes take. Two are equal when their bytes are."""

    text: str
    form: TextForm = UTF8_LF

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileText):
            return NotImplemented
        return self.text == other.text and self.form.same_bytes(other.form, self.text)

    def __hash__(self) -> int:
        return hash(self.text)

    def replaced(self, text: str, spans: Iterable[Span] | None = None) -> FileText:
        """The same file with another text; `spans` say which parts of the old text were replaced.

        Without spans the lines that differ count as replaced, so that shared lines keep their ending.
        """
        if self.form.mixed is None:
            return FileText(text, self.form)
        known = list(spans) if spans is not None else line_spans(self.text, text)
        return FileText(text, self.form.after_spans(self.text, known))

    def edited(self, spans: Iterable[Span]) -> FileText:
        """The file after sorted, non-overlapping spans are replaced."""
        ordered = list(spans)
        return self.replaced(apply_spans(self.text, ordered), ordered)

    def to_bytes(self, policy: TextPolicy) -> bytes:
        """What is written to disk under a text policy."""
        return encode(self.text, self.form if policy == "preserve" else UTF8_LF)


class DiskFile(msgspec.Struct, frozen=True):
    """A file as the runtime last saw it on disk: the SHA-256 of its bytes, their number, and the text they hold."""

    sha256: str
    size: int
    content: FileText


class Workspace(msgspec.Struct, frozen=True, eq=False):
    """An immutable snapshot; identity (`is`) tells a current one from a stale one.

    `files` what the plan's steps made of them · `acquired` what acquisition found, never changed · `disk` what
    is known to be on disk now (bytes hash and text) · `origins` acquired path of each file that moved, by its
    current path · `moved` disk path of each file that moved since the last write, by its current path.
    """

    files: Mapping[str, FileText] = msgspec.field(default_factory=dict[str, FileText])
    acquired: Mapping[str, FileText] = msgspec.field(default_factory=dict[str, FileText])
    disk: Mapping[str, DiskFile] = msgspec.field(default_factory=dict[str, DiskFile])
    origins: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    moved: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])

    @classmethod
    def of(cls, disk: Mapping[str, DiskFile]) -> Self:
        """The snapshot right after acquisition."""
        files = {path: entry.content for path, entry in sorted(disk.items())}
        return cls(files=files, acquired=dict(files), disk=dict(disk))

    def texts(self) -> dict[str, str]:
        """Current path to current text."""
        return {path: content.text for path, content in self.files.items()}

    def with_files(self, updates: Mapping[str, FileText]) -> Self:
        """Existing files changed or new ones added."""
        return msgspec.structs.replace(self, files={**self.files, **updates})

    def without(self, paths: Iterable[str]) -> Self:
        """Files deleted."""
        gone = set(paths)
        return msgspec.structs.replace(
            self,
            files={path: content for path, content in self.files.items() if path not in gone},
            origins={path: origin for path, origin in self.origins.items() if path not in gone},
            moved={path: origin for path, origin in self.moved.items() if path not in gone},
        )

    def renamed(self, moves: Mapping[str, str]) -> Self:
        """Files moved, all at once (`moves` may be a permutation); chains collapse, a round trip disappears."""
        return msgspec.structs.replace(
            self,
            files={moves.get(path, path): content for path, content in self.files.items()},
            origins=self._carried(moves, self.origins, self.acquired),
            moved=self._carried(moves, self.moved, self.disk),
        )

    def _carried(self, moves: Mapping[str, str], known: Mapping[str, str], held: Collection[str]) -> dict[str, str]:
        """Where the files came from after moves; `held` are the names that were there at first.

        A file under such a name is the first one unless that one moved away before.
        """
        left = set(known.values())
        carried: dict[str, str] = {}
        for path in self.files:
            source = known.get(path) or (path if path in held and path not in left else None)
            target = moves.get(path, path)
            if source is not None and source != target:
                carried[target] = source
        return carried

    def changes(self) -> list[Change]:
        """The end compared with acquisition, by identity across moves, without line counts."""
        found: list[Change] = []
        sources = set(self.origins.values())
        for path, content in self.files.items():
            origin = self.origins.get(path)
            if origin is not None:
                found.append(Change(path=path, kind="renamed", from_=origin))
            elif path not in self.acquired or path in sources:
                found.append(Change(path=path, kind="added"))
            elif self.acquired[path] != content:
                found.append(Change(path=path, kind="modified"))
        found.extend(
            Change(path=path, kind="deleted")
            for path in self.acquired
            if path not in sources and (path not in self.files or path in self.origins)
        )
        return sorted(found, key=lambda change: (change.path, change.kind))

    def before(self, change: Change) -> FileText | None:
        """The acquired content that a change compares with; None for an added file."""
        if change.kind == "added":
            return None
        return self.acquired[change.from_ or change.path]

    def unwritten(self) -> list[str]:
        """Paths whose state on disk is not the state here, both ends of moves and deletions included."""
        paths = {path for path, content in self.files.items() if self._differs(path, content)}
        paths |= {path for path in self.disk if path not in self.files}
        paths |= set(self.moved.values()) - set(self.files)
        return sorted(paths | set(self.moved))

    def _differs(self, path: str, content: FileText) -> bool:
        on_disk = self.disk.get(path)
        return on_disk is None or (on_disk.content is not content and on_disk.content != content)

"""What attached editors have open, and which of it is unsaved. Implements `ports.Buffers`.

A buffer is dirty when a person would lose something: it was changed since it last was what is on disk, and it is
not what is on disk now. One that merely waits to be reloaded after an agent's write is not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass

from devtools_lsp.daemon.disk import Disk
from devtools_lsp.daemon.documents import Document
from devtools_lsp.daemon.lsp_rim import PositionEncoding

_log = logging.getLogger(__name__)

Editor = Hashable
Changed = Callable[[str], None]


@dataclass(slots=True, eq=False)
class OpenDocument:
    """One document in one editor. `base` is the digest of the text that was known to be on disk; None: unknown."""

    document: Document
    version: int
    base: bytes | None
    touched: bool

    @property
    def text(self) -> str:
        """Its LF text."""
        return self.document.text

    def is_unsaved(self, on_disk: bytes | None) -> bool:
        """Whether a person would lose something, given the digest of what is on disk now."""
        if not self.touched:
            return False
        digest = self.document.digest
        if on_disk == digest:
            self.base = digest
        self.touched = digest != self.base
        return self.touched


@dataclass(frozen=True, slots=True)
class Change:
    """One content change: `start` and `end` are 0-based (line, character), None for the whole text."""

    text: str
    start: tuple[int, int] | None = None
    end: tuple[int, int] | None = None


class EditorBuffers:
    """All open documents of all editors. `changed` is told the path whenever a buffer opens, changes or closes."""

    def __init__(self, disk: Disk, changed: Changed = lambda _path: None) -> None:
        self._disk = disk
        self._changed = changed
        self._open: dict[str, dict[Editor, OpenDocument]] = {}

    def listen(self, changed: Changed) -> None:
        """Replace who is told."""
        self._changed = changed

    # -- what editors say ----------------------------------------------------------------------------------------

    def opened(self, editor: Editor, path: str, text: str, version: int, encoding: PositionEncoding) -> None:
        """didOpen. The text need not be what is on disk: editors restore unsaved buffers."""
        document = Document(text, encoding)
        on_disk = self._disk.text(path)
        # Some editors count a final line break that the file does not have.
        saved = on_disk is not None and document.text in (on_disk, on_disk + "\n")
        self._open.setdefault(path, {})[editor] = OpenDocument(
            document, version, document.digest if saved else None, touched=not saved
        )
        self._changed(path)

    def edited(self, editor: Editor, path: str, changes: Sequence[Change], version: int) -> None:
        """didChange."""
        found = self.find(editor, path)
        if found is None:
            _log.info("a change of %s, which is not open, is dropped", path)
            return
        for change in changes:
            if change.start is None or change.end is None:
                found.document.replace(change.text)
            else:
                found.document.edit(change.start, change.end, change.text)
        found.version = version
        found.touched = True
        self._changed(path)

    def saved(self, editor: Editor, path: str) -> None:
        """didSave: the editor has just written its text."""
        found = self.find(editor, path)
        if found is not None:
            found.base = found.document.digest
            found.touched = False

    def closed(self, editor: Editor, path: str) -> None:
        """didClose."""
        documents = self._open.get(path, {})
        if documents.pop(editor, None) is None:
            return
        if not documents:
            del self._open[path]
        self._changed(path)

    def gone(self, editor: Editor) -> None:
        """The editor left; its buffers went with it."""
        for path in [path for path, documents in self._open.items() if editor in documents]:
            self.closed(editor, path)

    # -- what others ask -----------------------------------------------------------------------------------------

    def dirty(self, paths: Sequence[str]) -> list[str]:
        """Which of the paths have unsaved changes in some editor."""
        return [path for path in paths if path in self._open and self._is_dirty(path)]

    def find(self, editor: Editor, path: str) -> OpenDocument | None:
        """One editor's document."""
        return self._open.get(path, {}).get(editor)

    def unsaved(self, path: str, on_disk: bytes | None) -> Document | None:
        """What some editor has unsaved, given the digest of what is on disk now; None when every buffer is clean."""
        return next((found.document for found in self._open_in_all(path) if found.is_unsaved(on_disk)), None)

    async def settle(self, path: str) -> None:
        """Find out in threads what large documents are, before something needs to know."""
        for found in list(self._open_in_all(path)):
            await found.document.settle()

    def is_open(self, path: str) -> bool:
        """Whether some editor has it open."""
        return path in self._open

    def open_paths(self) -> list[str]:
        """Everything that is open somewhere."""
        return sorted(self._open)

    def _open_in_all(self, path: str) -> Collection[OpenDocument]:
        return self._open.get(path, {}).values()

    def _is_dirty(self, path: str) -> bool:
        touched = [found for found in self._open_in_all(path) if found.touched]
        if not touched:
            return False
        text = self._disk.text(path)
        # Comparing two texts is quicker than the digest of another one.
        return any(found.is_unsaved(found.document.digest if text == found.text else None) for found in touched)

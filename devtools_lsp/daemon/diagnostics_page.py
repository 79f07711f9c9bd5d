"""One file's diagnostics as each editor is shown them: placed in the text it has, encoded once for all alike.

A page is made for one publication and thrown away. It decides which findings hold for an editor's text (I14); what
there is to show, and when, is the hub's business.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from devtools_lsp.daemon.buffers import EditorBuffers
from devtools_lsp.daemon.disk import Disk
from devtools_lsp.daemon.documents import digest_of
from devtools_lsp.daemon.findings import Held
from devtools_lsp.daemon.lsp_rim import SOURCE, LspDiagnostic, LspText, PositionEncoding, UriMap, to_lsp_diagnostic
from devtools_lsp.wire.messages import Notification, encode


class Sink(Protocol):
    """One editor, as it is published to. Also its key among the buffers."""

    @property
    def encoding(self) -> PositionEncoding:
        """What it negotiated."""
        ...

    @property
    def uris(self) -> UriMap:
        """Its names for files."""
        ...

    @property
    def pulls(self) -> bool:
        """Whether it asks for diagnostics itself, so that none are pushed."""
        ...

    def send(self, payload: bytes) -> None:
        """Enqueue one message; raises FrameTooLargeError."""
        ...

    def refresh(self) -> None:
        """Tell an editor that pulls that there is something new."""
        ...


@dataclass(frozen=True, slots=True)
class Mark:
    """A diagnostic of the daemon itself on whole lines (1-based) of a file that is on disk."""

    first_line: int
    lines: int
    message: str
    code: str
    data: Mapping[str, object]


class PublishParams(msgspec.Struct, frozen=True):
    """`textDocument/publishDiagnostics`."""

    uri: str
    diagnostics: Sequence[LspDiagnostic]


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A file's LF text and its digest, None where it cannot be read as text; and its lines, found beforehand."""

    text: str | None = None
    digest: bytes | None = None
    indexes: Mapping[PositionEncoding, LspText] = field(default_factory=dict[PositionEncoding, LspText])


def read_page(disk: Disk, path: str, encodings: Collection[PositionEncoding] = ()) -> OnDisk:
    """Read a file, for editors of these encodings. For a thread: it reads, and goes over the whole text."""
    text = disk.text(path)
    if text is None:
        return OnDisk()
    placed: set[PositionEncoding] = {_placed_in(text, encoding) for encoding in encodings}
    return OnDisk(text, digest_of(text), {encoding: LspText(text, encoding) for encoding in placed})


def _placed_in(text: str, encoding: PositionEncoding) -> PositionEncoding:
    """In which encoding to place a text for an editor: where all are the same, in one for all editors."""
    return "utf-32" if text.isascii() and "\r" not in text else encoding


class Page:
    """What is shown for one file, encoded once for all editors that are shown the same."""

    def __init__(
        self, path: str, on_disk: OnDisk, held: Sequence[Held], marks: Sequence[Mark], buffers: EditorBuffers
    ) -> None:
        self.path = path
        self._held = held
        self._marks = marks
        self._buffers = buffers
        self._on_disk = on_disk
        self._indexes: dict[tuple[bytes | None, PositionEncoding], LspText] = {
            (on_disk.digest, encoding): index for encoding, index in on_disk.indexes.items()
        }
        self._built: dict[tuple[object, ...], list[LspDiagnostic]] = {}
        self._encoded: dict[tuple[object, ...], bytes] = {}

    def diagnostics(self, sink: Sink) -> list[LspDiagnostic]:
        """An editor's diagnostics: findings that hold for the text it has, and all marks."""
        return self._shown(sink)[1]

    def payload(self, sink: Sink) -> tuple[bytes, bool]:
        """The whole publishDiagnostics message, and whether it shows anything."""
        view, shown = self._shown(sink)
        key = (*view, sink.uris.to_lsp_uri(self.path))
        if key not in self._encoded:
            self._encoded[key] = self._encode(sink, shown)
        return self._encoded[key], bool(shown)

    def cut(self, sink: Sink) -> bytes:
        """The message with as many diagnostics as a frame surely holds, and one that says what is missing."""
        shown = self.diagnostics(sink)
        kept = shown[: max(1, len(shown) // 8)]
        note = f"{len(shown) - len(kept)} more diagnostics of this file are too many to show at once"
        return self._encode(sink, [*kept, LspDiagnostic(kept[0].range, 2, SOURCE, note)])

    def _shown(self, sink: Sink) -> tuple[tuple[object, ...], list[LspDiagnostic]]:
        key, held, text = self._view(sink)
        if key not in self._built:
            built = [to_lsp_diagnostic(diagnostic, text) for entry in held for diagnostic in entry.diagnostics]
            built += [_to_lsp_mark(mark, text) for mark in self._marks]
            self._built[key] = built
        return key, self._built[key]

    def _encode(self, sink: Sink, shown: Sequence[LspDiagnostic]) -> bytes:
        params = PublishParams(sink.uris.to_lsp_uri(self.path), shown)
        return encode(Notification(method="textDocument/publishDiagnostics", params=params))

    def _view(self, sink: Sink) -> tuple[tuple[object, ...], list[Held], LspText | None]:
        """Which findings hold for what the editor has, and the text to place them in."""
        if not self._held and not self._marks:
            return (None, "utf-32"), [], None
        text, digest = self._on_disk.text, self._on_disk.digest
        opened = self._buffers.find(sink, self.path)
        if opened is not None:
            own = opened.document.digest
            # A clean buffer is about to be reloaded from disk; only unsaved text is the editor's own.
            if own == digest or opened.is_unsaved(digest):
                text, digest = opened.text, own
        held = [entry for entry in self._held if entry.digest is None or entry.digest == digest]
        encoding = _placed_in(text, sink.encoding) if text is not None else "utf-32"
        key = (digest, encoding)
        if text is not None and key not in self._indexes:
            self._indexes[key] = LspText(text, encoding)
        return key, held, self._indexes.get(key)


def _to_lsp_mark(mark: Mark, text: LspText | None) -> LspDiagnostic:
    place = (text or LspText("", "utf-32")).to_lsp_lines(mark.first_line, mark.lines)
    return LspDiagnostic(place, 3, SOURCE, mark.message, mark.code, dict(mark.data))

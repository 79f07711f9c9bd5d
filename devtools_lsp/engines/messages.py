"""The parts of the Language Server Protocol that engines need, as msgspec structs.

Wire shapes of LSP 3.17 and 3.18, decoded leniently: what a server adds is ignored, what it may leave out is
optional. Positions here are the server's own (0-based lines, its encoding); `positions` converts them.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Position(msgspec.Struct, frozen=True):
    """0-based line, and an offset in units of the negotiated encoding."""

    line: int
    character: int


class Range(msgspec.Struct, frozen=True):
    """Half-open."""

    start: Position
    end: Position


class LspDiagnostic(msgspec.Struct, frozen=True):
    """A diagnostic as a server words it. `message` is a string in 3.17 and may be marked-up content later."""

    range: Range
    message: str | dict[str, Any]
    severity: int | None = None
    code: int | str | None = None
    source: str | None = None

    @property
    def text(self) -> str:
        """The message as plain text."""
        return self.message if isinstance(self.message, str) else str(self.message.get("value", ""))


class PublishDiagnostics(msgspec.Struct, frozen=True):
    """Parameters of `textDocument/publishDiagnostics`."""

    uri: str
    diagnostics: list[LspDiagnostic]
    version: int | None = None


class FileStatus(msgspec.Struct, frozen=True):
    """Parameters of clangd's `textDocument/clangd.fileStatus`: `idle`, or what it still does for a file."""

    uri: str
    state: str


class DocumentReport(msgspec.Struct, frozen=True, rename="camel"):
    """A pulled report: `full` with items, or `unchanged` with the result id alone."""

    kind: str
    result_id: str | None = None
    items: list[LspDiagnostic] = []


class TextEdit(msgspec.Struct, frozen=True, rename="camel"):
    """A replacement."""

    range: Range
    new_text: str


class VersionedDocument(msgspec.Struct, frozen=True):
    """A document named by an edit."""

    uri: str
    version: int | None = None


class TextDocumentEdit(msgspec.Struct, frozen=True, rename="camel"):
    """Edits of one document; a resource operation (create, rename, delete) decodes with `kind` set and no edits."""

    text_document: VersionedDocument | None = None
    edits: list[TextEdit] = []
    kind: str | None = None


class WorkspaceEdit(msgspec.Struct, frozen=True, rename="camel"):
    """What a code action would change."""

    changes: dict[str, list[TextEdit]] | None = None
    document_changes: list[TextDocumentEdit] | None = None


class CodeAction(msgspec.Struct, frozen=True):
    """A code action; a bare command decodes with `command` a string and has no edit."""

    title: str
    kind: str | None = None
    edit: WorkspaceEdit | None = None
    disabled: dict[str, Any] | None = None
    data: Any = None
    command: Any = None


class Location(msgspec.Struct, frozen=True):
    """A place in a document."""

    uri: str
    range: Range


class DocumentSymbol(msgspec.Struct, frozen=True, rename="camel"):
    """A symbol with its children (hierarchical form)."""

    name: str
    range: Range
    selection_range: Range
    children: list[DocumentSymbol] | None = None


class Registration(msgspec.Struct, frozen=True, rename="camel"):
    """A dynamic registration, kept by id."""

    id: str
    method: str
    register_options: dict[str, Any] | None = None


class RegistrationParams(msgspec.Struct, frozen=True):
    """Parameters of `client/registerCapability`."""

    registrations: list[Registration]


class Unregistration(msgspec.Struct, frozen=True):
    """One registration to forget."""

    id: str
    method: str = ""


class UnregistrationParams(msgspec.Struct, frozen=True):
    """Parameters of `client/unregisterCapability`; the misspelling is the protocol's."""

    unregisterations: list[Unregistration] = []


class ConfigurationItem(msgspec.Struct, frozen=True):
    """One section that a server asks for."""

    section: str | None = None


class ConfigurationParams(msgspec.Struct, frozen=True):
    """Parameters of `workspace/configuration`."""

    items: list[ConfigurationItem]


class ResponseError(msgspec.Struct, frozen=True):
    """The error of a response."""

    code: int
    message: str = ""
    data: Any = None


class Incoming(msgspec.Struct, frozen=True):
    """Any message from a server, with its payload undecoded."""

    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: ResponseError | None = None


class ServerInfo(msgspec.Struct, frozen=True):
    """Who answers."""

    name: str = ""
    version: str | None = None


class InitializeResult(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to `initialize`; capabilities stay plain data because most of them may be a flag or an object."""

    capabilities: dict[str, Any]
    server_info: ServerInfo | None = None

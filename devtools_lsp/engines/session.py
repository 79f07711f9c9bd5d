"""One generation of a language server: from `initialize` to its end, with the documents it was given.

Owns what this one process was told and what it said: capabilities, open documents with their versions, pulled and
pushed reports, formatting and fixes. A report is `Judged` or `Unjudged`; "no answer" is never an empty report. It
knows nothing of plans, baselines, restarts and other engines.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote, urlsplit

import msgspec

from devtools_lsp.core.diagnostics import Finding, Severity
from devtools_lsp.engines.client import (
    CONTENT_MODIFIED,
    REQUEST_CANCELLED,
    SERVER_CANCELLED,
    Connection,
    ServerGoneError,
    ServerRefusedError,
    ServerTimeoutError,
)
from devtools_lsp.engines.guard import Guard
from devtools_lsp.engines.messages import (
    CodeAction,
    DocumentReport,
    DocumentSymbol,
    InitializeResult,
    Location,
    LspDiagnostic,
    Position,
    TextEdit,
    WorkspaceEdit,
)
from devtools_lsp.engines.positions import PositionEncoding, TextPositions
from devtools_lsp.engines.process import ServerProcess, engine_environment
from devtools_lsp.engines.residue import Residue
from devtools_lsp.engines.spec import EngineSpec
from devtools_lsp.engines.tree import FileEvent
from devtools_lsp.paths import extension_of
from devtools_lsp.text import apply_spans, to_lf

RETRY_FIRST_S = 0.01
RETRY_LAST_S = 0.25
MAX_FIX_ROUNDS = 10
SYNTAX_WAIT_S = 2.0

_ANYTHING: msgspec.json.Decoder[msgspec.Raw] = msgspec.json.Decoder(msgspec.Raw)
_INITIALIZED: msgspec.json.Decoder[InitializeResult] = msgspec.json.Decoder(InitializeResult)
_REPORT: msgspec.json.Decoder[DocumentReport] = msgspec.json.Decoder(DocumentReport)
_EDITS: msgspec.json.Decoder[list[TextEdit] | None] = msgspec.json.Decoder(list[TextEdit] | None)
_ACTION: msgspec.json.Decoder[CodeAction] = msgspec.json.Decoder(CodeAction)
_ACTIONS: msgspec.json.Decoder[list[CodeAction] | None] = msgspec.json.Decoder(list[CodeAction] | None)
_SYMBOLS: msgspec.json.Decoder[list[DocumentSymbol] | None] = msgspec.json.Decoder(list[DocumentSymbol] | None)
_LOCATIONS: msgspec.json.Decoder[list[Location] | None] = msgspec.json.Decoder(list[Location] | None)

_SEVERITIES: dict[int, Severity] = {1: "error", 2: "warning", 3: "info"}
_HINT = 4


class NotOfferedError(Exception):
    """The server does not have the ability that was asked for; the message names it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What the server says about one file. `result_ids` maps provider identifiers to ids for the next pull."""

    findings: tuple[Finding, ...]
    result_ids: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Unjudged:
    """The server did not judge the file, and why. `seen` are findings that it does not vouch for as a whole answer."""

    reason: str
    seen: tuple[Finding, ...] = ()


@dataclass(slots=True)
class OpenDocument:
    """A document as the server has it."""

    version: int
    text: str


_EVENT_TYPES = {"created": 1, "changed": 2, "deleted": 3}


class Session:
    """One running server. All methods may raise ServerGoneError; those that ask raise ServerTimeoutError too."""

    def __init__(self, spec: EngineSpec, root: Path, generation: int) -> None:
        self.spec = spec
        self.root = root
        self.generation = generation
        self.disk_revision = 0
        """The revision of the project tree that this process has seen: set before it starts, raised as it is told."""
        self.encoding: PositionEncoding = "utf-16"
        self.capabilities: dict[str, Any] = {}
        self.server_version: str | None = None
        self.documents: dict[str, OpenDocument] = {}
        self.started_at = time.monotonic()
        self.residue = Residue()
        self.owed: dict[str, str | None] = {}
        """Texts of the disk that documents are to hold again, once nothing is being computed any more."""
        self._root_uri = file_uri(root)
        self._process: ServerProcess | None = None
        self._versions: dict[str, int] = {}
        self._provider_seen = False
        self.connection = Connection(
            self._send,
            settings=spec.settings,
            workspace_folders=[{"uri": self._root_uri, "name": root.name or "root"}],
            pause=lambda: self._process.pause_output() if self._process else None,
            resume=lambda: self._process.resume_output() if self._process else None,
            broken=self._broke,
            cancels=spec.cancels,
        )
        self._killing: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, spec: EngineSpec, command: Sequence[str], root: Path, *, generation: int, guard: Guard, timeout_s: float
    ) -> Session:
        """Start the process and initialize it.

        Raises LaunchError, or ServerGoneError and ServerTimeoutError from `initialize`; the process is then
        gone.
        """
        session = cls(spec, root, generation)
        session._process = await ServerProcess.start(
            command,
            cwd=root,
            environment=engine_environment(spec.environment),
            guard=guard,
            mark=f"{spec.id}.{generation}",
            on_output=session.connection.receive,
            on_exit=session._exited,
        )
        try:
            await session._initialize(timeout_s)
        except BaseException:
            await session.kill()
            raise
        return session

    async def _initialize(self, timeout_s: float) -> None:
        result = await self.connection.request(
            "initialize",
            {
                "processId": os.getpid(),
                "clientInfo": {"name": "devtools-lsp"},
                "rootPath": str(self.root),
                "rootUri": self._root_uri,
                "workspaceFolders": [{"uri": self._root_uri, "name": self.root.name or "root"}],
                "initializationOptions": self.spec.initialization,
                "capabilities": CLIENT_CAPABILITIES,
            },
            _INITIALIZED,
            timeout_s=timeout_s,
        )
        self.capabilities = result.capabilities
        self.server_version = result.server_info.version if result.server_info else None
        encoding = result.capabilities.get("positionEncoding", "utf-16")
        if encoding not in ("utf-8", "utf-16", "utf-32"):
            raise ServerGoneError(f"it chose the position encoding {encoding!r}, which was not offered")
        self.encoding = encoding
        self.connection.notify("initialized", {})
        self.connection.notify("workspace/didChangeConfiguration", {"settings": self.spec.settings})

    # -- process

    def _send(self, data: bytes) -> None:
        if self._process is not None:
            self._process.write(data)

    def _exited(self) -> None:
        process = self._process
        code = process.returncode if process is not None else None
        tail = process.stderr_tail.splitlines()[-1:] if process is not None else []
        said = f"; its last words: {tail[0][:300]}" if tail else ""
        self.connection.end(f"the server ended with exit code {code}{said}")

    def _broke(self) -> None:
        self._killing = asyncio.get_running_loop().create_task(self.kill())

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid if self._process is not None else 0

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self.connection.gone is None

    async def shutdown(self) -> None:
        """`shutdown`, `exit`, wait, then kill the group; returns when the process is reaped."""
        grace_s = self.spec.stop_grace_s
        if self.alive:
            with suppress(ServerGoneError, ServerTimeoutError, ServerRefusedError):
                await self.connection.request("shutdown", None, _ANYTHING, timeout_s=grace_s)
            self.connection.notify("exit", None)
        self.connection.end("it was stopped")
        if self._process is not None:
            await self._process.stop(grace_s)

    async def kill(self) -> None:
        """Kill the group; returns when the process is reaped."""
        self.connection.end("it was killed")
        if self._process is not None:
            await self._process.kill()

    # -- documents

    def uri(self, path: str) -> str:
        """The URI of a root-relative path."""
        return f"{self._root_uri}/{quote(path)}"

    def path(self, uri: str) -> str | None:
        """The root-relative path of a URI, None for what lies elsewhere."""
        parts = urlsplit(uri)
        if parts.scheme != "file":
            return None
        host = unquote(parts.path)
        prefix = f"{self.root}/"
        return host[len(prefix) :] if host.startswith(prefix) else None

    def language_id(self, path: str) -> str:
        """The language id to announce a file with."""
        extension = extension_of(path)
        return self.spec.language_ids.get(extension) or LANGUAGE_IDS.get(extension, extension or "plaintext")

    def sync(self, path: str, text: str) -> bool:
        """Make the server's document hold `text`, opening it where needed; whether anything was sent."""
        document = self.documents.get(path)
        if document is None:
            version = self._versions.get(path, 0) + 1
            self._versions[path] = version
            self.documents[path] = OpenDocument(version, text)
            self.residue.changed()
            item = {"uri": self.uri(path), "languageId": self.language_id(path), "version": version, "text": text}
            self.connection.notify("textDocument/didOpen", {"textDocument": item})
            return True
        # The order of use: what was used last is closed last.
        self.documents[path] = self.documents.pop(path)
        if document.text == text:
            return False
        document.version += 1
        document.text = text
        self._versions[path] = document.version
        self.residue.changed()
        self.residue.emptied(path)
        self.connection.notify(
            "textDocument/didChange",
            {
                "textDocument": {"uri": self.uri(path), "version": document.version},
                "contentChanges": [{"text": text}],
            },
        )
        return True

    def renew(self, path: str, text: str) -> None:
        """Make the server read a file anew: it gets another text and then its own again."""
        was_open = path in self.documents
        for version in (text, f"{text}\n", text):
            self.sync(path, version)
        if not was_open:
            self.close(path)

    def close(self, path: str) -> None:
        """Give the file back to the disk."""
        if self.documents.pop(path, None) is not None:
            self.residue.changed()
            self.connection.notify("textDocument/didClose", {"textDocument": {"uri": self.uri(path)}})
            self.connection.pushed.pop(self.uri(path), None)

    def watched(self, events: Iterable[FileEvent]) -> None:
        """Tell the server what happened on disk: we are the watcher."""
        changes = [{"uri": self.uri(event.path), "type": _EVENT_TYPES[event.kind]} for event in events]
        if changes:
            self.residue.changed()
            self.connection.notify("workspace/didChangeWatchedFiles", {"changes": changes})

    # -- diagnostics

    async def judge(
        self, path: str, text: Callable[[], str | None], *, deadline: float, known: Judged | None = None
    ) -> Judged | Unjudged:
        """What the server says about one file until a monotonic time; `text` gives its text when there are findings.

        `known` is an earlier answer of this session: its result ids are offered, and an `unchanged` answer means
        its findings.
        """
        self.residue.asked()
        try:
            if self.spec.diagnostics == "push":
                return await self._judge_by_push(path, text, deadline)
            answer = await self._judge_by_pull(path, text, deadline, known)
            if isinstance(answer, Judged):
                self.residue.emptied(path)
            return answer
        except ServerTimeoutError:
            return Unjudged("the engine did not answer before the deadline")
        except ServerRefusedError as error:
            return Unjudged(f"the engine refused: {error}")

    def _providers(self, path: str) -> dict[str, str | None]:
        """Diagnostic providers for a file: a key for each, with its identifier."""
        found: dict[str, str | None] = {}
        static = self.capabilities.get("diagnosticProvider")
        if isinstance(static, dict):
            identifier = cast("dict[str, Any]", static).get("identifier")
            found[identifier or ""] = identifier
        for registration in self.connection.registrations.values():
            if registration.method != "textDocument/diagnostic":
                continue
            options = cast("dict[str, Any]", registration.register_options or {})
            if self._selected(options.get("documentSelector"), path):
                identifier = options.get("identifier")
                found[identifier or ""] = identifier
        return found

    def _selected(self, selector: Any, path: str) -> bool:
        """Whether a document selector takes a file; patterns in it are not evaluated, such a filter takes all."""
        if not isinstance(selector, list):
            return True
        language = self.language_id(path)
        for entry in cast("list[Any]", selector):
            if isinstance(entry, str):
                if entry in (language, "*"):
                    return True
                continue
            filters = cast("dict[str, Any]", entry)
            if filters.get("scheme", "file") == "file" and filters.get("language", language) in (language, "*"):
                return True
        return False

    async def _wait_for_providers(self, path: str, deadline: float) -> dict[str, str | None]:
        while not (providers := self._providers(path)):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return {}
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self.connection.changed()
        return providers

    async def _judge_by_pull(
        self, path: str, text: Callable[[], str | None], deadline: float, known: Judged | None
    ) -> Judged | Unjudged:
        providers = await self._wait_for_providers(path, deadline)
        if not providers:
            return Unjudged("the engine has not offered diagnostics yet")
        findings: list[Finding] = []
        ids: dict[str, str] = {}
        for key, identifier in providers.items():
            previous = known.result_ids.get(key) if known is not None and len(providers) == 1 else None
            report = await self._pull(path, identifier, previous, deadline)
            if isinstance(report, Unjudged):
                return report
            if report.kind == "unchanged":
                assert known is not None
                return known
            if report.result_id is not None:
                ids[key] = report.result_id
            findings.extend(self._findings(path, report.items, text))
        return Judged(tuple(dict.fromkeys(findings)), ids)

    async def _pull(
        self, path: str, identifier: str | None, previous: str | None, deadline: float
    ) -> DocumentReport | Unjudged:
        params: dict[str, Any] = {"textDocument": {"uri": self.uri(path)}}
        if identifier is not None:
            params["identifier"] = identifier
        if previous is not None:
            params["previousResultId"] = previous
        pause = RETRY_FIRST_S
        reason = "the engine did not answer before the deadline"
        while (remaining := deadline - time.monotonic()) > 0:
            try:
                report = await self.connection.request("textDocument/diagnostic", params, _REPORT, timeout_s=remaining)
            except ServerRefusedError as error:
                if error.code not in (SERVER_CANCELLED, CONTENT_MODIFIED, REQUEST_CANCELLED):
                    raise
                reason = "the engine was busy with changes until the deadline"
            else:
                if report.kind == "unchanged" and previous is not None:
                    return report
                if report.kind == "full" and (report.result_id is not None or not self.spec.needs_result_id):
                    return report
                reason = "the engine has not analysed this file (it may still be indexing)"
            await asyncio.sleep(min(pause, max(deadline - time.monotonic(), 0)))
            pause = min(pause * 2, RETRY_LAST_S)
        return Unjudged(reason)

    async def _judge_by_push(self, path: str, text: Callable[[], str | None], deadline: float) -> Judged | Unjudged:
        document = self.documents.get(path)
        if document is None:
            return Unjudged("the engine judges open documents only")
        uri = self.uri(path)
        while True:
            pushed = self.connection.pushed.get(uri)
            if pushed is not None and pushed.version == document.version:
                return Judged(tuple(self._findings(path, pushed.diagnostics, text)))
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self.connection.changed()
        if pushed is not None and pushed.version is None:
            seen = tuple(self._findings(path, pushed.diagnostics, text))
            return Unjudged("the engine does not say which text its diagnostics describe", seen)
        return Unjudged("the engine published nothing for this text before the deadline")

    async def syntax_problems(self, path: str, text: str, *, deadline: float) -> list[Finding]:
        """Why the server may have left a text alone: findings of the rules that the preset lists as syntax errors."""
        rules = self.spec.syntax_rules
        if not rules:
            return []
        answer = await self.judge(path, lambda: text, deadline=min(deadline, time.monotonic() + SYNTAX_WAIT_S))
        found = answer.findings if isinstance(answer, Judged) else answer.seen
        return [finding for finding in found if finding.rule in rules]

    def _findings(self, path: str, items: Sequence[LspDiagnostic], text: Callable[[], str | None]) -> list[Finding]:
        """Findings of one file. Hints are left out: they are decoration for an editor ("unused", greyed out)."""
        sources = self.spec.sources
        wanted = [item for item in items if item.severity != _HINT and (not sources or item.source in sources)]
        if not wanted:
            return []
        positions = TextPositions(text() or "", self.encoding)
        return [from_lsp_diagnostic(path, item, positions) for item in wanted]

    # -- changing text

    def _offers(self, method: str, capability: str) -> bool:
        static = self.capabilities.get(capability)
        if static is not None and static is not False:
            return True
        return any(registration.method == method for registration in self.connection.registrations.values())

    async def _wait_for_offer(self, method: str, capability: str, deadline: float) -> None:
        while not self._offers(method, capability):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise NotOfferedError(f"the server does not offer {method}")
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self.connection.changed()

    async def format(self, path: str, *, deadline: float) -> str | None:
        """The formatted text of an open document, None when the server gives no edits: well formed, or refused.

        Raises NotOfferedError, ServerRefusedError, ValueError.
        """
        await self._wait_for_offer("textDocument/formatting", "documentFormattingProvider", deadline)
        document = self.documents[path]
        edits = await self.connection.request(
            "textDocument/formatting",
            {"textDocument": {"uri": self.uri(path)}, "options": {"tabSize": 4, "insertSpaces": True}},
            _EDITS,
            timeout_s=max(deadline - time.monotonic(), 0.001),
        )
        return self._edited(document.text, edits) if edits is not None else None

    def _edited(self, text: str, edits: list[TextEdit]) -> str:
        return to_lf(apply_spans(text, TextPositions(text, self.encoding).from_lsp_edits(edits)))

    async def fix_all(self, path: str, *, deadline: float) -> str:
        """The text after the configured fix-all actions, in order; the document is left holding that text.

        Only the kinds in `fix_kinds` are taken. Raises NotOfferedError, ServerRefusedError, ValueError.
        """
        await self._wait_for_offer("textDocument/codeAction", "codeActionProvider", deadline)
        for kind in self.spec.fix_kinds:
            for _ in range(MAX_FIX_ROUNDS):
                if not await self._fix_once(path, kind, deadline):
                    break
        return self.documents[path].text

    async def _fix_once(self, path: str, kind: str, deadline: float) -> bool:
        document = self.documents[path]
        whole = TextPositions(document.text, self.encoding).whole()
        actions = await self.connection.request(
            "textDocument/codeAction",
            {
                "textDocument": {"uri": self.uri(path)},
                "range": msgspec.to_builtins(whole),
                "context": {"diagnostics": [], "only": [kind], "triggerKind": 1},
            },
            _ACTIONS,
            timeout_s=max(deadline - time.monotonic(), 0.001),
        )
        changed = False
        for action in actions or []:
            if action.disabled is not None or not _is_kind(action.kind, kind):
                continue
            edit = action.edit or await self._resolve(action, deadline)
            text = self._text_after(path, document.text, edit)
            if text is not None and text != document.text:
                self.sync(path, text)
                changed = True
                break  # Further actions describe the text before this one.
        return changed

    async def _resolve(self, action: CodeAction, deadline: float) -> WorkspaceEdit | None:
        if action.data is None and action.command is not None:
            return None
        resolved = await self.connection.request(
            "codeAction/resolve",
            {key: value for key, value in msgspec.to_builtins(action).items() if value is not None},
            _ACTION,
            timeout_s=max(deadline - time.monotonic(), 0.001),
        )
        return resolved.edit

    def _text_after(self, path: str, text: str, edit: WorkspaceEdit | None) -> str | None:
        """What an edit makes of this one document; None when it does not name it. Other documents are not touched."""
        if edit is None:
            return None
        uri = self.uri(path)
        edits = [
            change
            for document in edit.document_changes or []
            if document.text_document is not None and self._same(document.text_document.uri, uri)
            for change in document.edits
        ]
        for name, changes in (edit.changes or {}).items():
            if self._same(name, uri):
                edits.extend(changes)
        return self._edited(text, edits) if edits else None

    def _same(self, one: str, other: str) -> bool:
        return one == other or (self.path(one) is not None and self.path(one) == self.path(other))

    # -- who depends on what

    async def symbols(self, path: str, *, deadline: float) -> list[DocumentSymbol]:
        """The document's symbols as a tree; empty when the server does not offer them."""
        if not self._offers("textDocument/documentSymbol", "documentSymbolProvider"):
            return []
        with suppress(ServerRefusedError):
            return (
                await self.connection.request(
                    "textDocument/documentSymbol",
                    {"textDocument": {"uri": self.uri(path)}},
                    _SYMBOLS,
                    timeout_s=max(deadline - time.monotonic(), 0.001),
                )
                or []
            )
        return []

    async def references(self, path: str, position: Position, *, deadline: float) -> list[str]:
        """The root-relative paths of the files that refer to a symbol, without its own."""
        self.residue.asked()
        if not self._offers("textDocument/references", "referencesProvider"):
            return []
        locations: list[Location] = []
        with suppress(ServerRefusedError):
            locations = (
                await self.connection.request(
                    "textDocument/references",
                    {
                        "textDocument": {"uri": self.uri(path)},
                        "position": msgspec.to_builtins(position),
                        "context": {"includeDeclaration": False},
                    },
                    _LOCATIONS,
                    timeout_s=max(deadline - time.monotonic(), 0.001),
                )
                or []
            )
        paths = dict.fromkeys(self.path(location.uri) for location in locations)
        return [found for found in paths if found is not None and found != path]


def from_lsp_diagnostic(path: str, item: LspDiagnostic, positions: TextPositions) -> Finding:
    """A finding in our coordinates."""
    line, column, end_line, end_column = positions.from_lsp_range(item.range)
    return Finding(
        path=path,
        severity=_SEVERITIES.get(item.severity or 1, "error"),
        message=item.text.replace("\u00a0", " "),
        rule=str(item.code) if item.code is not None else None,
        line=line,
        column=column,
        end_line=end_line,
        end_column=end_column,
    )


def _is_kind(kind: str | None, wanted: str) -> bool:
    return kind is not None and (kind == wanted or kind.startswith(f"{wanted}."))


def file_uri(path: Path) -> str:
    """The `file:` URI of an absolute path."""
    return f"file://{quote(str(path))}"


_EXTENSIONS_OF_LANGUAGES = {
    "python": "py pyi",
    "javascript": "js mjs cjs",
    "javascriptreact": "jsx",
    "typescript": "ts mts cts",
    "typescriptreact": "tsx",
    "markdown": "md",
    "yaml": "yml yaml",
    "rust": "rs",
    "cpp": "cc cpp cxx hpp hh",
    "c": "c h",
    "shellscript": "sh bash",
}
LANGUAGE_IDS: dict[str, str] = {
    extension: language for language, extensions in _EXTENSIONS_OF_LANGUAGES.items() for extension in extensions.split()
}
"""Language ids of the protocol where they differ from the extension and a preset does not spell them out."""

CLIENT_CAPABILITIES: dict[str, Any] = {
    "general": {"positionEncodings": ["utf-8", "utf-16", "utf-32"], "markdown": {"parser": "none"}},
    "textDocument": {
        "synchronization": {"dynamicRegistration": True, "willSave": False, "didSave": False},
        "diagnostic": {"dynamicRegistration": True, "relatedDocumentSupport": False},
        "publishDiagnostics": {"versionSupport": True, "tagSupport": {"valueSet": [1, 2]}},
        "formatting": {"dynamicRegistration": True},
        "references": {"dynamicRegistration": True},
        "documentSymbol": {"dynamicRegistration": True, "hierarchicalDocumentSymbolSupport": True},
        "codeAction": {
            "dynamicRegistration": True,
            "isPreferredSupport": True,
            "disabledSupport": True,
            "dataSupport": True,
            "resolveSupport": {"properties": ["edit"]},
            "codeActionLiteralSupport": {
                "codeActionKind": {"valueSet": ["", "quickfix", "source", "source.fixAll", "source.organizeImports"]}
            },
        },
    },
    "workspace": {
        "applyEdit": False,
        "workspaceEdit": {"documentChanges": True},
        "configuration": True,
        "workspaceFolders": True,
        "didChangeConfiguration": {"dynamicRegistration": True},
        "didChangeWatchedFiles": {"dynamicRegistration": True, "relativePatternSupport": False},
        "diagnostics": {"refreshSupport": True},
    },
    "window": {"workDoneProgress": True, "showMessage": {}, "showDocument": {"support": False}},
}

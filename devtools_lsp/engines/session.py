"""One generation of a language server: from `initialize` to its end, with the documents it was given.

Owns what this one process was told: its capabilities, the open documents with their versions, changes on disk. What is
asked of it lives in `reports`, `rewriting` and `navigation`. It knows nothing of plans, baselines, restarts and other
engines.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from devtools_lsp.engines.announced import CLIENT_CAPABILITIES, LANGUAGE_IDS
from devtools_lsp.engines.client import (
    Connection,
    ServerGoneError,
    ServerRefusedError,
    ServerTimeoutError,
)
from devtools_lsp.engines.guard import Guard
from devtools_lsp.engines.messages import (
    InitializeResult,
)
from devtools_lsp.engines.positions import PositionEncoding
from devtools_lsp.engines.process import ServerProcess, engine_environment
from devtools_lsp.engines.residue import Residue
from devtools_lsp.engines.selectors import Document, selects
from devtools_lsp.engines.spec import EngineSpec
from devtools_lsp.engines.tree import FileEvent
from devtools_lsp.paths import extension_of

_ANYTHING: msgspec.json.Decoder[msgspec.Raw] = msgspec.json.Decoder(msgspec.Raw)
_INITIALIZED: msgspec.json.Decoder[InitializeResult] = msgspec.json.Decoder(InitializeResult)


class NotOfferedError(Exception):
    """The server does not have the ability that was asked for; the message names it."""


@dataclass(slots=True)
class OpenDocument:
    """A document as the server has it."""

    version: int
    text: str
    told: int = 0
    """How much the server had been told when the document was opened."""


_DIRECTIVE = re.compile(r"^[ \t]*#[^\n]*", re.MULTILINE)

MORE_REGISTRATIONS_S = 1.0

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
        self._told = 0
        self._told_of: dict[str, int] = {}
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
            name=f"{spec.id}.{generation}",
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

    def _exited(self, process: ServerProcess) -> None:
        tail = process.stderr_tail.splitlines()[-1:]
        said = f"; its last words: {tail[0][:300]}" if tail else ""
        self.connection.end(f"the server ended with exit code {process.returncode}{said}")

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
            self.documents[path] = OpenDocument(version, text, self._note(path))
            item = {"uri": self.uri(path), "languageId": self.language_id(path), "version": version, "text": text}
            self.connection.notify("textDocument/didOpen", {"textDocument": item})
            return True
        # The order of use: what was used last is closed last.
        self.documents[path] = self.documents.pop(path)
        if document.text == text:
            return False
        if self.spec.preambles and _preamble(document.text) != _preamble(text):
            document.text = text
            self.reopen(path)
            return True
        document.version += 1
        document.text = text
        self._versions[path] = document.version
        self._note(path)
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
            self._note(path)
            self.connection.notify("textDocument/didClose", {"textDocument": {"uri": self.uri(path)}})
            self.connection.pushed.pop(self.uri(path), None)
            self.connection.idle.discard(self.uri(path))

    def _note(self, path: str) -> int:
        """The server is told something of a file."""
        self.residue.changed()
        self._told += 1
        self._told_of[path] = self._told
        return self._told

    def behind(self, path: str) -> bool:
        """Whether the server was told something of another file since this one was opened."""
        told = self.documents[path].told
        return any(number > told for other, number in self._told_of.items() if other != path)

    def reopen(self, path: str) -> None:
        """Close and open a document, so that the server judges its text anew."""
        document = self.documents[path]
        self.close(path)
        self.sync(path, document.text)

    def watched(self, events: Sequence[FileEvent]) -> None:
        """Tell the server what happened on disk: we are the watcher."""
        changes = [{"uri": self.uri(event.path), "type": _EVENT_TYPES[event.kind]} for event in events]
        if changes:
            for event in events:
                self._note(event.path)
            self.connection.notify("workspace/didChangeWatchedFiles", {"changes": changes})

    # -- abilities

    def registered(self, method: str, path: str) -> list[dict[str, Any]]:
        """The options of the registrations of a method whose selector takes a file."""
        document = Document(f"{self.root}/{path}", path, self.language_id(path))
        found: list[dict[str, Any]] = []
        for registration in self.connection.registrations.values():
            if registration.method != method:
                continue
            options = registration.register_options or {}
            if selects(options.get("documentSelector"), document):
                found.append(options)
        return found

    def offers(self, method: str, capability: str, path: str) -> bool:
        """Whether the server has an ability for a file, from the start or by registration."""
        static = self.capabilities.get(capability)
        return (static is not None and static is not False) or bool(self.registered(method, path))

    async def wait_for_offer(self, method: str, capability: str, path: str, deadline: float) -> None:
        """Wait for a late registration until a monotonic time; raises NotOfferedError then."""
        if not await self.wait_until(lambda: self.offers(method, capability, path), method, deadline):
            raise NotOfferedError(f"the server does not offer {method} for it")

    async def wait_until(self, offered: Callable[[], bool], method: str, deadline: float) -> bool:
        """Wait for a registration of a method, until a monotonic time; whether it came.

        A server that registered the method, but for other files only, is not expected to register it once more.
        """
        started = time.monotonic()
        while not offered():
            elsewhere = any(known.method == method for known in self.connection.registrations.values())
            until = min(deadline, started + MORE_REGISTRATIONS_S) if elsewhere else deadline
            remaining = until - time.monotonic()
            if remaining <= 0:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self.connection.changed()
        return True


def _preamble(text: str) -> str:
    """Everything up to the last line that may be a directive of a preprocessor."""
    ends = [found.end() for found in _DIRECTIVE.finditer(text)]
    return text[: ends[-1]] if ends else ""


def file_uri(path: Path) -> str:
    """The `file:` URI of an absolute path."""
    return f"file://{quote(str(path))}"

"""A headless LSP client: attaches to the daemon, sees what an editor sees, and answers approvals by code action.

Uses nothing of the daemon but its socket and plain LSP; it knows an approval only by its diagnostic.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from devtools_lsp import discovery
from devtools_lsp.wire.framing import Fault, FrameDecoder, encode_frame

ANSWER_BOUND_S = 20.0
_CHUNK_BYTES = 64 * 1024

Handler = Callable[[str, Any], Awaitable[None] | None]


class HeadlessEditor:
    """One LSP session over the socket. `told` is called with (method, params) of every notification."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, told: Callable[[str, Any], None]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._told = told
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.diagnostics: dict[str, list[dict[str, Any]]] = {}
        self.answered: list[str] = []
        self.failures: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._judged: dict[str, asyncio.Event] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def attach(cls, root: Path, told: Callable[[str, Any], None]) -> HeadlessEditor:
        """Connect to the root's daemon and go through LSP's `initialize`."""
        connection = await asyncio.to_thread(discovery.connect_or_start, root)
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        editor = cls(reader, writer, told)
        await editor.request(
            "initialize",
            {
                "processId": None,
                "clientInfo": {"name": "headless editor"},
                "rootUri": root.as_uri(),
                "workspaceFolders": [{"uri": root.as_uri(), "name": root.name}],
                "capabilities": {
                    "general": {"positionEncodings": ["utf-16"]},
                    "textDocument": {
                        "publishDiagnostics": {"dataSupport": True},
                        "codeAction": {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["quickfix"]}}},
                    },
                    "workspace": {"executeCommand": {}},
                },
            },
        )
        editor.notify("initialized", {})
        return editor

    def open(self, path: Path) -> None:
        """Tell the daemon that a file is open, as it is on disk."""
        self.notify(
            "textDocument/didOpen",
            {
                "textDocument": {
                    "uri": path.as_uri(),
                    "languageId": "python",
                    "version": 1,
                    "text": path.read_text(encoding="utf-8"),
                }
            },
        )

    async def request(self, method: str, params: Any) -> Any:
        """One request and its result; raises RuntimeError with the error's message."""
        request_id = next(self._ids)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        self._send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        async with asyncio.timeout(ANSWER_BOUND_S):
            return await answer

    def notify(self, method: str, params: Any) -> None:
        """One notification."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def close(self) -> None:
        """Leave as an editor does: shutdown, exit."""
        await self.request("shutdown", None)
        self.notify("exit", None)
        await asyncio.wait({self._reading}, timeout=ANSWER_BOUND_S)
        self._writer.close()

    def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(encode_frame(msgspec.json.encode(message)))

    async def _read(self) -> None:
        decoder = FrameDecoder()
        while data := await self._reader.read(_CHUNK_BYTES):
            decoder.feed(data)
            while (item := decoder.next()) is not None:
                if isinstance(item, Fault):
                    self.failures.append(item.message)
                    return
                self._receive(msgspec.json.decode(item))

    def _receive(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            answer = self._waiting.pop(message["id"])
            if "error" in message:
                answer.set_exception(RuntimeError(str(message["error"]["message"])))
            else:
                answer.set_result(message["result"])
            return
        if "id" in message:
            # Nothing that the demo does needs a request from the server; an honest client says what it cannot do.
            fault = {"code": -32601, "message": "not supported"}
            self._send({"jsonrpc": "2.0", "id": message["id"], "error": fault})
            return
        if message["method"] == "textDocument/publishDiagnostics":
            self._published(message["params"])
        if message["method"] == "devtools/approvalUpdated":
            self._consequences_of(str(message["params"]["id"])).set()
        self._told(message["method"], message.get("params"))

    def _published(self, params: dict[str, Any]) -> None:
        uri = params["uri"]
        known = {item["data"]["approvalId"] for item in self.diagnostics.get(uri, []) if item.get("code") == "approval"}
        self.diagnostics[uri] = params["diagnostics"]
        for item in params["diagnostics"]:
            if item.get("code") == "approval" and item["data"]["approvalId"] not in known:
                task = asyncio.create_task(self._approve(uri, item))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _consequences_of(self, approval: str) -> asyncio.Event:
        return self._judged.setdefault(approval, asyncio.Event())

    async def _approve(self, uri: str, item: dict[str, Any]) -> None:
        """What a person does: see what it would break, open the quick fixes on the diagnostic, choose Approve."""
        try:
            async with asyncio.timeout(ANSWER_BOUND_S):
                await self._consequences_of(str(item["data"]["approvalId"])).wait()
            actions = await self.request(
                "textDocument/codeAction",
                {"textDocument": {"uri": uri}, "range": item["range"], "context": {"diagnostics": [item]}},
            )
            chosen = next(action for action in actions if action["title"].startswith("Approve"))
            command = chosen["command"]
            await self.request(
                "workspace/executeCommand", {"command": command["command"], "arguments": command["arguments"]}
            )
        except (RuntimeError, TimeoutError, StopIteration) as error:
            self.failures.append(f"the approval could not be answered: {error!r}")
            return
        self.answered.append(str(item["data"]["approvalId"]))

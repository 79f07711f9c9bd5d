"""The bench for the people's side of the daemon: a clock that tests turn, a gate with proposals, views that record."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.core.changeset import FileChange, Preview
from devtools_lsp.core.diagnostics import Diagnostic, Pending
from devtools_lsp.core.hunks import hunks_between, render_unified
from devtools_lsp.core.workspace import sha256
from devtools_lsp.daemon.approval_choice import DiffParams, diff_document
from devtools_lsp.daemon.approval_marks import ApprovalMarks
from devtools_lsp.daemon.approval_payload import Approval, Resolution, list_to_wire
from devtools_lsp.daemon.approvals import Answer, Approvals, GateSettings
from devtools_lsp.daemon.buffers import EditorBuffers
from devtools_lsp.daemon.connection import Connection
from devtools_lsp.daemon.diagnostics_hub import DiagnosticsHub
from devtools_lsp.daemon.disk import Disk
from devtools_lsp.daemon.doors import CallScope, Doors, Peer
from devtools_lsp.daemon.editors import EditorRooms, Editors
from devtools_lsp.daemon.intake import Arrival
from devtools_lsp.pipeline.rule_tables import read_rules
from devtools_lsp.ports import Cancellation, Decision, Edited, GateCall, GateContext
from devtools_lsp.wire.messages import DecideParams, MethodNotFoundError, decode_params


async def until(condition: Callable[[], object], what: str = "the condition", timeout_s: float = 10.0) -> None:
    """Poll; fail with words when it does not come true in time."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.002)


class ManualClock:
    """Time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), future))
        await future

    @property
    def sleeping(self) -> int:
        return sum(not future.done() for _, _, future in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Let time pass, and give what it woke a turn."""
        self.now += seconds
        while self._sleepers and self._sleepers[0][0] <= self.now:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)


class RecordingView:
    """Keeps what it was told, as (event, approval id, detail)."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, Any]] = []

    def requested(self, approval: Approval) -> None:
        self.told.append(("requested", approval.id, [pending.reason for pending in approval.shown.pending]))

    def updated(self, approval: Approval) -> None:
        self.told.append(("updated", approval.id, [pending.reason for pending in approval.shown.pending]))

    def resolved(self, approval: Approval, resolution: Resolution) -> None:
        self.told.append(("resolved", approval.id, (resolution.status, resolution.by)))

    def events(self, approval_id: str) -> list[str]:
        return [event for event, known, _ in self.told if known == approval_id]


@dataclass
class Asked:
    """One gate call under way."""

    task: asyncio.Task[Decision]
    signal: Cancellation
    diffs: list[int] = field(default_factory=list)
    previews: list[int] = field(default_factory=list)


@dataclass
class GateBench:
    """Approvals over a real directory, asked as the pipeline asks them."""

    root: Path
    clock: ManualClock
    approvals: Approvals
    started: list[Asked] = field(default_factory=list)

    def put(self, files: Mapping[str, str | bytes]) -> None:
        for path, content in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())

    def change(self, path: str, after: str | None, *, source: str | None = None) -> FileChange:
        """The proposal of one file against what is on disk."""
        host = self.root / (source or path)
        before = host.read_bytes() if host.exists() else None
        old = before.decode().replace("\r\n", "\n") if before is not None else ""
        kind = "renamed" if source else "added" if before is None else "deleted" if after is None else "modified"
        return FileChange(
            path=path,
            kind=kind,
            base_hash=sha256(before) if before is not None else None,
            hunks=hunks_between(old, after or "", path=path),
            from_=source,
        )

    def ask(
        self,
        step: str = "edit",
        changes: Sequence[FileChange] = (),
        *,
        args: Mapping[str, Any] | None = None,
        targets: Sequence[str] | None = None,
        agent: str = "claude",
        session: str = "s1",
        in_place: bool = False,
        introduced: Sequence[Diagnostic] = (),
        pending: Sequence[Pending] = (),
        consequences: Awaitable[None] | None = None,
        fails: Exception | None = None,
    ) -> Asked:
        """Ask the gate in a task; `consequences` is awaited before the preview is complete."""
        shown = Preview(render_unified(changes), list(changes), [], [], [], [])
        asked = Asked(asyncio.Future(), Cancellation())  # type: ignore[arg-type]

        async def diff() -> Preview:
            asked.diffs.append(1)
            return shown

        async def preview() -> Preview:
            asked.previews.append(1)
            if consequences is not None:
                await consequences
            if fails is not None:
                raise fails
            return Preview(shown.diff, shown.files, [], list(introduced), [], list(pending))

        paths = [change.from_ or change.path for change in changes if change.kind != "added"]
        created = [change.path for change in changes if change.kind == "added"]
        call = GateCall(
            step,
            {"persists": True} if args is None else dict(args),
            tuple(paths if targets is None else targets),
            tuple(created),
        )
        context = GateContext(
            plan=f"p{len(self.started) + 1}",
            step_index=1,
            agent=agent,
            signal=asked.signal,
            diff=diff,
            preview=preview,
            session=session,
            in_place=in_place,
        )
        asked.task = asyncio.get_running_loop().create_task(self.approvals(context, call))
        self.started.append(asked)
        return asked

    def edit(self, path: str, after: str, **more: Any) -> Asked:
        return self.ask("edit", [self.change(path, after)], **more)

    async def waiting(self, count: int = 1) -> Approval:
        """The newest of `count` waiting approvals, once there are that many."""
        await until(lambda: len(self.approvals.items()) == count, f"{count} waiting approvals")
        return self.approvals.items()[-1]

    async def decide(self, approval_id: str, approve: bool = True, role: Any = "editor", **more: Any) -> Any:
        edited = tuple(Edited(**entry) for entry in more.pop("edited", ()))
        return await self.approvals.decide(approval_id, Answer(approve, edited=edited, **more), role)

    def configure(self, *rules: Mapping[str, Any], **settings: Any) -> None:
        self.approvals.configure(GateSettings(rules=read_rules(rules), **settings))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def bench(tmp_path: Path, clock: ManualClock):
    root = tmp_path / "project"
    root.mkdir()
    approvals = Approvals(
        clock, Disk(root), GateSettings(), always_asks=lambda path: path.rpartition("/")[2] == "package.json"
    )
    bench = GateBench(root, clock, approvals)
    yield bench
    await approvals.close()
    for asked in bench.started:
        asked.task.cancel()
    await asyncio.gather(*(asked.task for asked in bench.started), return_exceptions=True)


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """Poll a condition with a bound."""
    return until


@pytest.fixture
def view(bench: GateBench) -> RecordingView:
    """A view that decides, attached."""
    found = RecordingView()
    bench.approvals.attach(found, decides=True)
    return found


@pytest.fixture
def new_view() -> Callable[[], RecordingView]:
    return RecordingView


# -- editors over a real socket ----------------------------------------------------------------------------------


class RawEditor:
    """An LSP client of few lines: it keeps what it is told and answers what it is asked by a table."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, root: Path) -> None:
        self._reader = reader
        self._writer = writer
        self.root = root
        self.notifications: list[tuple[str, Any]] = []
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[str, Callable[[Any], Any]] = {}
        self.shown: dict[str, list[dict[str, Any]]] = {}
        self.capabilities: dict[str, Any] = {}
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.get_running_loop().create_task(self._read())
        self.ended = False

    def uri(self, path: str) -> str:
        return (self.root / path).as_uri()

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def notify(self, method: str, params: Any = None) -> None:
        self.send({"method": method, "params": params})

    def start(self, method: str, params: Any = None) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        request_id = next(self._ids)
        future = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        self.send({"id": request_id, "method": method, "params": params})
        return request_id, future

    async def request(self, method: str, params: Any = None) -> Any:
        """The result; fails the test on an error."""
        answer = await self.answer(method, params)
        assert "error" not in answer, answer
        return answer["result"]

    async def answer(self, method: str, params: Any = None) -> dict[str, Any]:
        async with asyncio.timeout(20):
            return await self.start(method, params)[1]

    async def error(self, method: str, params: Any = None) -> dict[str, Any]:
        answer = await self.answer(method, params)
        assert "error" in answer, answer
        return answer["error"]

    async def initialize(self, encodings: Sequence[str] | None = None, **more: Any) -> dict[str, Any]:
        capabilities = more.pop("capabilities", {})
        if encodings is not None:
            capabilities = {**capabilities, "general": {"positionEncodings": list(encodings)}}
        result = await self.request(
            "initialize",
            {"processId": None, "rootUri": self.root.as_uri(), "capabilities": capabilities, **more},
        )
        self.capabilities = result["capabilities"]
        self.notify("initialized", {})
        return result

    def open(self, path: str, text: str | None = None) -> None:
        content = text if text is not None else (self.root / path).read_bytes().decode()
        document = {"uri": self.uri(path), "languageId": "x", "version": 1, "text": content}
        self.notify("textDocument/didOpen", {"textDocument": document})

    def told(self, method: str) -> list[Any]:
        return [params for known, params in self.notifications if known == method]

    def marks(self, path: str) -> list[dict[str, Any]]:
        return [entry for entry in self.shown.get(path, []) if entry.get("code") == "approval"]

    async def actions(self, path: str, diagnostic: dict[str, Any], **context: Any) -> list[dict[str, Any]]:
        return await self.request(
            "textDocument/codeAction",
            {
                "textDocument": {"uri": self.uri(path)},
                "range": diagnostic["range"],
                "context": {"diagnostics": [diagnostic], **context},
            },
        )

    async def run(self, command: dict[str, Any]) -> Any:
        return await self.request(
            "workspace/executeCommand", {"command": command["command"], "arguments": command["arguments"]}
        )

    async def close(self) -> None:
        self._reading.cancel()
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            while True:
                header = await self._reader.readuntil(b"\r\n\r\n")
                length = int(header.split(b":")[1])
                self._take(json.loads(await self._reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended = True
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ConnectionError("the daemon closed the connection"))

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            future = self._waiting.pop(message["id"])
            if not future.done():
                future.set_result(message)
        elif "id" in message:
            params = message.get("params")
            self.asked.append((message["method"], params))
            answer = self.answers.get(message["method"])
            if answer is not None:
                self.send({"id": message["id"], "result": answer(params)})
        else:
            self.notifications.append((message["method"], message["params"]))
            if message["method"] == "textDocument/publishDiagnostics":
                path = message["params"]["uri"].removeprefix(self.root.as_uri() + "/")
                self.shown[path] = message["params"]["diagnostics"]


class StubDesk:
    """The part of the agents' door that editors use."""

    def __init__(self, approvals: Approvals, disk: Disk) -> None:
        self.approvals = approvals
        self.disk = disk

    async def attach(self, peer: Peer) -> object:
        return {}

    async def call(self, peer: Peer, method: str, params: Any, call: CallScope) -> object:
        if method == "devtools/approvals":
            return {"items": list_to_wire(self.approvals.items())}
        if method == "devtools/diff":
            wanted = decode_params(params, DiffParams)
            return diff_document(self.approvals.find(wanted.id), self.disk, wanted.path)
        if method == "devtools/decide":
            given = decode_params(params, DecideParams)
            edited = tuple(
                Edited(entry.content if entry.content is not None else entry.text or "", entry.path, entry.hunk_id)
                for entry in given.edited
            )
            answer = Answer(given.approve, given.note, given.remember, edited, tuple(given.drop))
            return await self.approvals.decide(given.id, answer, peer.role)
        raise MethodNotFoundError(method)

    def detached(self, peer: Peer) -> None:
        pass


@dataclass
class EditorBench:
    """A daemon's people side on a real Unix socket, with real connections."""

    gate: GateBench
    hub: DiagnosticsHub
    buffers: EditorBuffers
    editors: Editors
    socket: Path
    scratch: Path
    clients: list[RawEditor] = field(default_factory=list)
    connections: dict[Connection, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.gate.root

    async def connect(self, buffered_bytes: int = 2**26) -> RawEditor:
        reader, writer = await asyncio.open_unix_connection(str(self.socket), limit=buffered_bytes)
        client = RawEditor(reader, writer, self.root)
        self.clients.append(client)
        return client

    async def editor(self, encodings: Sequence[str] | None = None, **more: Any) -> RawEditor:
        """An editor that is initialized and counts as somebody."""
        before = len(self.editors.attached)
        client = await self.connect(more.pop("buffered_bytes", 2**26))
        await client.initialize(encodings, **more)
        await until(lambda: len(self.editors.attached) == before + 1, "the editor to be attached")
        return client


@pytest.fixture
async def daemon(bench: GateBench, tmp_path: Path):
    disk = Disk(bench.root)
    buffers = EditorBuffers(disk)
    hub = DiagnosticsHub(disk, buffers, bench.clock)
    buffers.listen(hub.buffer_changed)
    scratch = tmp_path / "diffs"
    editors = Editors(EditorRooms(bench.root, bench.approvals, hub, buffers, scratch))
    bench.approvals.attach(ApprovalMarks(hub), decides=False)
    doors = Doors(StubDesk(bench.approvals, disk), editors)
    socket = tmp_path / "s"
    found = EditorBench(bench, hub, buffers, editors, socket, scratch)
    count = itertools.count(1)

    async def run(connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            found.connections.pop(connection)

    def accept(transport: asyncio.Transport) -> None:
        connection = Connection(transport, doors, f"c{next(count)}", lambda _reason: None)
        found.connections[connection] = asyncio.create_task(run(connection))

    server = await asyncio.get_running_loop().create_unix_server(lambda: Arrival(accept), str(socket))
    yield found
    for client in found.clients:
        await client.close()
    await until(lambda: not found.connections, "every connection to end")
    server.close()
    await server.wait_closed()
    await hub.close()
    assert len(editors.attached) == 0

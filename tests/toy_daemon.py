"""A real daemon with toy doors, and a raw client: test doubles for everything that is about the socket itself.

The lifecycle, the connections, the locks and the socket are the product's own; only what stands behind the doors
is made up. `RawClient` speaks to it with framing of its own, so that a fault of ours cannot hide in both ends.
Runnable as a program: `python -P tests/toy_daemon.py ROOT [IDLE_S] [BUILD_S]`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec

from devtools_lsp import discovery
from devtools_lsp.daemon.doors import CallScope, Channel, Doors, Host, Peer
from devtools_lsp.daemon.lifecycle import LifeBounds, serve
from devtools_lsp.errors import BadArgumentError, CallCancelledError
from devtools_lsp.wire.messages import (
    CallParams,
    MethodNotFoundError,
    NoParams,
    Output,
    Report,
    decode_params,
)

WAIT_S = 10.0
"""The bound of every wait in these tests: long enough for a busy machine, reached only by a failure."""


class ToyAgents:
    """An agents' door whose one method `devtools/call` has tools that behave well and badly on purpose."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.attached: list[Peer] = []
        self.detached_peers: list[Peer] = []
        self.started = 0
        self.endings: list[str] = []
        self.changed = asyncio.Event()
        self.admits = asyncio.Event()
        self.admits.set()

    async def attach(self, peer: Peer) -> object:
        await self.admits.wait()
        if peer.name == "unwanted":
            raise BadArgumentError("this name is refused")
        self.attached.append(peer)
        return {"server": {"name": "toy"}, "version": "0.0.0-toy", "root": self.root, "surface": peer.surface}

    def detached(self, peer: Peer) -> None:
        self.detached_peers.append(peer)
        self.changed.set()

    async def call(self, peer: Peer, method: str, params: msgspec.Raw, call: CallScope) -> object:
        if method == "devtools/status":
            decode_params(params, NoParams)
            return {"role": peer.role, "name": peer.name, "session": peer.session}
        if method != "devtools/call":
            raise MethodNotFoundError(method)
        asked = decode_params(params, CallParams)
        tool = getattr(self, f"tool_{asked.name}", None)
        if tool is None:
            raise BadArgumentError(f"no toy tool {asked.name!r}")
        if not isinstance(asked.arguments, dict):
            raise BadArgumentError("the arguments must be an object")
        self.started += 1
        self.changed.set()
        try:
            return await tool(call, **asked.arguments)
        finally:
            self.endings.append(asked.name)
            self.changed.set()

    async def tool_echo(self, call: CallScope, **arguments: Any) -> object:
        return arguments

    async def tool_wait(self, call: CallScope) -> object:
        await call.signal.wait()
        raise CallCancelledError(call.signal.reason, written=[{"path": "a.py", "kind": "modified"}])

    async def tool_deaf(self, call: CallScope) -> object:
        """Does not look at its switch."""
        await asyncio.sleep(3600)
        return None

    async def tool_stone(self, call: CallScope, seconds: float) -> object:
        """Ignores its task's cancellation as well."""
        release = asyncio.get_running_loop().time() + seconds
        while (left_s := release - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left_s)
            except asyncio.CancelledError:
                continue
        return "late"

    async def tool_boom(self, call: CallScope) -> object:
        raise KeyError("a secret detail")

    async def tool_exit(self, call: CallScope) -> object:
        sys.exit(3)

    async def tool_unencodable(self, call: CallScope) -> object:
        return object()

    async def tool_big(self, call: CallScope, size: int) -> object:
        return "x" * size

    async def tool_progress(self, call: CallScope, count: int, size: int = 1) -> object:
        for _ in range(count):
            await call.progress(Output(stream="stdout", text="p" * size))
        return count

    async def tool_report_and_wait(self, call: CallScope) -> object:
        await call.progress(Report(message="waiting for a person", approval="a1"))
        await call.signal.wait()
        raise CallCancelledError("stopped")


class ToySession:
    """An editor's session that answers every request with what it got."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.received: list[dict[str, Any]] = []
        self.was_closed = 0

    async def receive(self, message: dict[str, Any]) -> None:
        self.received.append(message)
        if message.get("method") == "toy/boom":
            raise RuntimeError("a fault of the session")
        if message.get("method") == "toy/flood":
            for _ in range(message["params"]["count"]):
                self.channel.notify("toy/noise", {"text": "n" * 100_000})
        if message.get("method") == "exit":
            self.channel.close()
        if "id" in message and "method" in message:
            self.channel.send({"jsonrpc": "2.0", "id": message["id"], "result": message["method"]})

    def leaving(self) -> None:
        assert self.was_closed == 0

    async def closed(self) -> None:
        self.was_closed += 1


class ToyEditors:
    """An editors' door that remembers its sessions."""

    def __init__(self) -> None:
        self.sessions: list[ToySession] = []

    async def open(self, peer: Peer) -> ToySession:
        self.sessions.append(ToySession(peer.channel))
        return self.sessions[-1]


class RawClient:
    """A client with framing of its own: what the tests send is exactly what they say."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send(self, message: object) -> None:
        await self.send_bytes(framed(json.dumps(message).encode()))

    async def request(self, request_id: object, method: str, params: object = None) -> None:
        await self.send(
            {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {} if params is None else params}
        )

    async def call(self, request_id: object, name: str, **arguments: object) -> None:
        await self.request(request_id, "devtools/call", {"name": name, "arguments": arguments})

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            header = await self.reader.readuntil(b"\r\n\r\n")
            length = int(header.decode().split(":")[1])
            return json.loads(await self.reader.readexactly(length))

    async def ended(self) -> bool:
        """Whether the daemon ends the connection, without another message."""
        async with asyncio.timeout(WAIT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def introduce(self, **params: object) -> dict[str, Any]:
        await self.request("intro", "devtools/initialize", {"client": {"name": "raw", "version": "1"}, **params})
        return await self.receive()

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


@contextmanager
def processes() -> Iterator[list[subprocess.Popen[Any]]]:
    """A list of processes to append to; whatever still runs in the end is killed, and every pipe closed."""
    started: list[subprocess.Popen[Any]] = []
    try:
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()


def end_started_daemons() -> None:
    """Kill and reap what `discovery.spawn_daemon` started here, losers of a race that are still waking up included."""
    for starting in discovery.started():
        while starting.exit_code is None:
            with suppress(ProcessLookupError):
                os.kill(starting.pid, signal.SIGKILL)
            time.sleep(0.01)


def framed(body: bytes) -> bytes:
    """A body with a plain header."""
    return b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body


class Toy:
    """A running toy daemon and its doors."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.agents = ToyAgents(str(root))
        self.editors = ToyEditors()
        self.host: Host | None = None
        self.closed_doors = 0
        self.ready = asyncio.Event()
        self.task: asyncio.Task[str] | None = None
        self.clients: list[RawClient] = []

    @property
    def socket_path(self) -> Path:
        return discovery.socket_path(self.root)

    async def build(self, host: Host) -> Doors:
        self.host = host
        return Doors(self.agents, self.editors, self.close_doors)

    async def close_doors(self) -> None:
        self.closed_doors += 1

    async def connect(self) -> RawClient:
        client = RawClient(*await asyncio.open_unix_connection(str(self.socket_path)))
        self.clients.append(client)
        return client

    async def agent(self, **params: object) -> RawClient:
        client = await self.connect()
        answer = await client.introduce(**params)
        assert "result" in answer, answer
        return client

    async def until(self, condition: Any) -> None:
        """Wait until the doors have come to a state; fails when they do not."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self.agents.changed.clear()
                try:
                    async with asyncio.timeout(0.02):
                        await self.agents.changed.wait()
                except TimeoutError:
                    continue


@contextmanager
def private_places() -> Iterator[Path]:
    """Short private directories for sockets, locks and state; yields a root that looks like a project."""
    base = Path(os.path.realpath(tempfile.mkdtemp(prefix="toy-")))
    kept = {name: os.environ.get(name) for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", discovery.SOCKET_VARIABLE)}
    os.environ["XDG_RUNTIME_DIR"] = str(base / "run")
    os.environ["XDG_STATE_HOME"] = str(base / "state")
    os.environ.pop(discovery.SOCKET_VARIABLE, None)
    for name in ("run", "state", "root"):
        (base / name).mkdir(mode=0o700)
    (base / "root" / "devtools.toml").touch()
    try:
        yield base / "root"
    finally:
        for name, value in kept.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(base)


@asynccontextmanager
async def toy_daemon(
    bounds: LifeBounds | None = None, idle_s: float | None = None, root: Path | None = None
) -> AsyncIterator[Toy]:
    """A toy daemon in this very loop, in places of its own unless the caller made some for `root`.

    On leaving it ends gracefully, its end is checked, and nothing is left.
    """
    with private_places() if root is None else nullcontext(root) as made:
        toy = Toy(made)
        toy.task = asyncio.create_task(
            serve(toy.root, toy.build, idle_s=idle_s, ready=lambda _path: toy.ready.set(), bounds=bounds)
        )
        ready = asyncio.create_task(toy.ready.wait())
        await asyncio.wait([toy.task, ready], return_when=asyncio.FIRST_COMPLETED, timeout=WAIT_S)
        ready.cancel()
        path = toy.socket_path
        try:
            assert toy.ready.is_set(), "the toy daemon did not come up"
            yield toy
        finally:
            if toy.host is not None:
                toy.host.stop("the test is over")
            async with asyncio.timeout(2 * WAIT_S):
                await toy.task
            for client in toy.clients:
                await client.close()
        assert toy.closed_doors == 1
        assert not path.exists()


def main() -> None:
    """Run as a program, for tests that need a process of its own."""
    root = sys.argv[1]
    idle_s = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    build_s = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0

    async def run() -> None:
        async def build(host: Host) -> Doors:
            await asyncio.sleep(build_s)
            return Doors(ToyAgents(str(host.root)), ToyEditors())

        await serve(root, build, idle_s=idle_s, ready=lambda path: print(f"READY {path}", flush=True))

    asyncio.run(run())


if __name__ == "__main__":
    main()

"""MCP clients in the daemon: the SDK that is loaded for them, and an end that meets their introduction."""

from __future__ import annotations

import asyncio
import builtins
import sys
import threading
from typing import Any

import msgspec
import pytest

from devtools_lsp import mcp_bridge
from devtools_lsp.client import ConnectionLostError, ProtocolError
from devtools_lsp.daemon import mcp
from devtools_lsp.daemon.calls import CallBounds
from devtools_lsp.daemon.doors import Peer
from devtools_lsp.daemon.inner import MAX_ANSWER_BYTES, InnerClients
from devtools_lsp.daemon.mcp import McpClient
from devtools_lsp.errors import CallCancelledError, ConflictError, InvalidConfigError, WorkspaceBoundsError
from devtools_lsp.wire.messages import McpParams


class Door:
    """Agents' door whose `attach` can be held."""

    def __init__(self) -> None:
        self.attaching = asyncio.Event()
        self.go_on = asyncio.Event()
        self.here: list[Peer] = []
        self.result: Any = {}

    async def attach(self, peer: Peer) -> Any:
        self.attaching.set()
        await self.go_on.wait()
        self.here.append(peer)
        return {"server": "devtools-lsp", "version": "0", "root": "/x", "surface": "granular", "tools": [], "gate": {}}

    def detached(self, peer: Peer) -> None:
        self.here.remove(peer)

    async def call(self, *_: Any) -> Any:
        return self.result


async def test_an_end_during_an_introduction_leaves_nobody():
    door = Door()
    clients = InnerClients(door, "c1", CallBounds(), "/elsewhere")
    introduced = asyncio.create_task(clients.connect(name="agent", version="", surface=None, session=None))
    await door.attaching.wait()
    ended = asyncio.create_task(clients.end("the client disconnected"))
    await asyncio.sleep(0)
    door.go_on.set()
    await ended
    with pytest.raises(ConflictError):
        await introduced
    with pytest.raises(CallCancelledError):
        await clients.connect(name="late", version="", surface=None, session=None)
    assert (door.here, clients.peers()) == ([], [])


async def test_an_introduction_that_never_ends_holds_up_no_end():
    door = Door()
    clients = InnerClients(door, "c1", CallBounds(cancel_grace_s=0.01))
    introduced = asyncio.create_task(clients.connect(name="agent", version="", surface=None, session=None))
    await door.attaching.wait()
    await asyncio.wait_for(clients.end("the daemon stops"), 5)
    with pytest.raises(ConnectionLostError):
        await asyncio.wait_for(introduced, 5)
    assert (door.here, clients.peers()) == ([], [])


async def test_a_fault_in_an_introduction_is_told_at_once(monkeypatch: pytest.MonkeyPatch):
    door = Door()

    async def fail(_peer: Peer) -> Any:
        raise RuntimeError("a secret")

    monkeypatch.setattr(door, "attach", fail)
    clients = InnerClients(door, "c1", CallBounds())
    with pytest.raises(ProtocolError, match="RuntimeError") as told:
        await asyncio.wait_for(clients.connect(name="agent", version="", surface=None, session=None), 5)
    assert "secret" not in str(told.value)


async def test_a_result_is_what_a_client_of_the_socket_would_read():
    door = Door()
    door.go_on.set()
    clients = InnerClients(door, "c1", CallBounds())
    client = await clients.connect(name="agent", version="", surface=None, session=None)
    for result in ({"pair": (1, 2.5)}, msgspec.Raw(b'{"pair":[1,2.5]}'), {"pair": msgspec.Raw(b"[1, 2.5]")}):
        door.result = result
        assert await client.call("x", timeout_s=None) == {"pair": [1, 2.5]}
    door.result = {"text": "x" * MAX_ANSWER_BYTES, "written": [{"path": "a.txt", "kind": "modified"}]}
    with pytest.raises(WorkspaceBoundsError, match="1 file") as refused:
        await client.call("x", timeout_s=None)
    assert refused.value.written == [{"path": "a.txt", "kind": "modified"}]
    door.result = object()
    with pytest.raises(ProtocolError, match="cannot be encoded"):
        await client.call("x", timeout_s=None)
    await clients.end("over")


class Channel:
    """Takes everything."""

    closed = False
    pending_bytes = 0

    def send(self, payload: object) -> None:
        """Drop it."""

    def notify(self, method: str, params: object) -> None:
        """Drop it."""

    async def drain(self) -> None:
        """Return at once."""


def opened() -> Any:
    return McpClient.open(Door(), Channel(), "c1", McpParams(), bounds=CallBounds(), close_s=5.0)


async def test_an_sdk_that_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mcp, "_SERVING", "devtools_lsp.mcp_bridge.no_such_module")
    mcp._load.cache_clear()
    with pytest.raises(InvalidConfigError, match="does not fit"):
        await opened()
    monkeypatch.undo()
    client = await opened()
    await client.end("over")


async def test_the_loop_goes_on_while_the_sdk_is_imported(monkeypatch: pytest.MonkeyPatch):
    """Two clients come at once: the second one meets an import that has begun, and does not hold the loop for it."""
    began, go_on = threading.Event(), threading.Event()
    original = builtins.__import__
    await (await opened()).end("over")
    monkeypatch.delitem(sys.modules, mcp._SERVING)
    monkeypatch.delattr(mcp_bridge, "serving")

    def slow(name: str, *given: Any, **more: Any) -> Any:
        if name == "mcp.server.context" and threading.current_thread() is not threading.main_thread():
            began.set()
            assert go_on.wait(20)
        return original(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", slow)
    mcp._load.cache_clear()
    first = asyncio.create_task(opened())
    assert await asyncio.to_thread(began.wait, 20)
    second = asyncio.create_task(opened())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    go_on.set()
    for client in await asyncio.gather(first, second):
        await client.end("over")
    mcp._load.cache_clear()

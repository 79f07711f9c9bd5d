"""The real `devtools-lsp mcp` over its stdin and stdout, driven by the MCP SDK's own client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import Implementation

from tests.e2e.conftest import new_place
from tests.e2e.place import PROGRAM, Place
from tests.e2e.wire import WAIT_S

__all__ = ["new_place"]

Speak = Callable[..., contextlib.AbstractAsyncContextManager[Client]]


@pytest.fixture
def speak(tmp_path: Path) -> Speak:
    """An MCP client of a place: `async with speak(place, "--surface", "workspace", era="legacy") as client`."""
    count = 0

    @contextlib.asynccontextmanager
    async def connect(
        place: Place,
        *arguments: str,
        era: str = "legacy",
        name: str = "test-client",
        told: list[Any] | None = None,
    ) -> AsyncIterator[Client]:
        nonlocal count
        count += 1

        async def hear(message: Any) -> None:
            if told is not None:
                told.append(message)

        command = StdioServerParameters(
            command=str(PROGRAM), args=["mcp", "--root", str(place.root), *arguments], env=dict(place.env)
        )
        with (tmp_path / f"stderr-{count}").open("w+") as said:
            client = Client(
                stdio_client(command, errlog=said),
                mode=era,
                client_info=Implementation(name=name, version="9.9"),
                message_handler=hear,
                read_timeout_seconds=WAIT_S,
                cache=None,
            )
            async with client:
                yield client
            said.seek(0)
            faults = said.read()
        assert "Traceback" not in faults, faults

    return connect


class RawBridge:
    """The bridge as bytes: for what no SDK would send, and for what it prints."""

    def __init__(self, place: Place, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [PROGRAM, "mcp", "--root", place.root, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=place.env,
        )

    def send(self, *messages: Any) -> None:
        assert self.process.stdin is not None
        for message in messages:
            self.process.stdin.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def request(self, number: int, method: str, **params: Any) -> Any:
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        answer = self.receive()
        assert answer["id"] == number
        return answer

    def introduce(self, version: str = "2025-11-25", name: str = "raw") -> Any:
        answer = self.request(
            0, "initialize", protocolVersion=version, capabilities={}, clientInfo={"name": name, "version": "1"}
        )
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def end(self) -> tuple[int, bytes, bytes]:
        """Close stdin; the exit code, and what else was printed."""
        said, faults = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, said, faults


@pytest.fixture
def raw() -> Iterator[Callable[..., RawBridge]]:
    """Start the bridge and speak bytes with it."""
    made: list[RawBridge] = []

    def start(place: Place, *arguments: str) -> RawBridge:
        made.append(RawBridge(place, *arguments))
        return made[-1]

    yield start
    for bridge in made:
        if bridge.process.poll() is None:
            bridge.process.kill()
        for pipe in (bridge.process.stdin, bridge.process.stdout, bridge.process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        bridge.process.wait(WAIT_S)


async def eventually(holds: Callable[[], Any], what: str, within_s: float = WAIT_S) -> Any:
    """Poll until it holds, and return what it gave; bounded."""
    async with asyncio.timeout(within_s):
        while not (found := holds()):
            await asyncio.sleep(0.01)
    assert found, what
    return found


@pytest.fixture
def soon() -> Callable[..., Any]:
    """`await soon(lambda: condition, "what")`."""
    return eventually

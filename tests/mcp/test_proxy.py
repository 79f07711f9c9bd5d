"""The process at an MCP client's pipes: patience with its reader, bounds, and getting over the death of a daemon."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp import discovery
from devtools_lsp.discovery import SOCKET_VARIABLE
from devtools_lsp.mcp_bridge import proxy
from devtools_lsp.mcp_bridge.proxy import Proxy
from tests.e2e.place import ALLOW, PROGRAM, RUFF, Place

MANY = 3000
LONG = "x" * 1000


@pytest.fixture(scope="module")
def place(new_place: Callable[..., Place]) -> Place:
    return new_place(ALLOW, {"a.txt": "one\n"})


@pytest.fixture
def mortal(new_place: Callable[..., Place]) -> Iterator[Place]:
    """A place whose daemon is killed by the test; whichever comes after it is stopped."""
    place = new_place(ALLOW, {"a.txt": "one\n"}, start=False)
    yield place
    assert place.cli("stop").returncode == 0


def ping(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": f"{number} {LONG}", "method": "ping"}


async def test_a_client_that_reads_late_gets_everything(place: Place, raw: Any):
    bridge = raw(place)
    bridge.introduce()
    # More than pipes, sockets and what we keep take together, so that somewhere it has to wait for the reader.
    sending = threading.Thread(target=lambda: bridge.send(*map(ping, range(MANY))))
    sending.start()
    sending.join(0.5)
    answers = [await asyncio.to_thread(bridge.receive) for _ in range(MANY)]
    sending.join()
    assert sorted(answer["id"] for answer in answers) == sorted(ping(number)["id"] for number in range(MANY))
    code, rest, faults = await asyncio.to_thread(bridge.end)
    assert (code, rest, faults) == (0, b"", b"")


def test_the_end_does_not_wait_for_who_never_reads(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(proxy, "LAST_WORDS_S", 0.2)
    monkeypatch.setenv(SOCKET_VARIABLE, place.socket)
    stdin, to_stdin = os.pipe()
    unread, stdout = os.pipe()
    served = Proxy(place.root, "granular", None, incoming=stdin, outgoing=stdout)
    running = threading.Thread(target=served.run, daemon=True)
    running.start()
    for message in map(ping, range(100)):
        os.write(to_stdin, json.dumps(message).encode() + b"\n")
    os.close(to_stdin)
    running.join(20)
    assert not running.is_alive()
    for descriptor in (stdin, unread, stdout):
        os.close(descriptor)


async def test_a_client_that_closes_its_reading_end_ends_it(place: Place, raw: Any, soon: Any):
    bridge = raw(place)
    bridge.introduce()
    bridge.process.stdout.close()
    bridge.send(ping(1))
    await soon(lambda: bridge.process.poll() is not None, "its end")
    assert bridge.process.returncode == 0


def test_a_file_can_be_stdin(place: Place, tmp_path: Path):
    script = tmp_path / "requests"
    script.write_text("".join(json.dumps(ping(number)) + "\n" for number in range(3)))
    with script.open("rb") as file:
        done = subprocess.run(
            [PROGRAM, "mcp", "--root", place.root],
            stdin=file,
            capture_output=True,
            env=place.env,
            check=True,
            timeout=60,
        )
    assert [json.loads(line)["id"][0] for line in done.stdout.splitlines()] == ["0", "1", "2"]


def test_a_request_that_is_too_large_has_its_answer(place: Place, raw: Any):
    bridge = raw(place)
    bridge.introduce()
    arguments = {"path": "a.txt", "edits": [{"find": "one", "replace": "x" * (9 * 1024 * 1024)}]}
    answer = bridge.request(1, "tools/call", name="edit", arguments=arguments)
    assert answer["result"]["isError"]
    assert answer["result"]["structuredContent"]["code"] == "E_DEV_WORKSPACE_BOUNDS"
    assert "8,388,608" in answer["result"]["content"][0]["text"]
    answer = bridge.request(2, "ping", text="x" * (9 * 1024 * 1024))
    assert answer["error"]["data"]["code"] == "E_DEV_WORKSPACE_BOUNDS"
    bridge.send(b'{"' + b"x" * (33 * 1024 * 1024) + b'"}\n')
    answer = bridge.receive()
    assert (answer["id"], answer["error"]["code"]) == (None, -32700)
    assert bridge.request(3, "ping")["result"] == {}


def agents(place: Place) -> list[str]:
    status = json.loads(place.cli("status", "--json").stdout)
    return [agent["name"] for agent in status["agents"]]


async def kill(place: Place) -> None:
    """The daemon is gone afterwards with all its threads, so that its connections are closed."""
    status = json.loads((await asyncio.to_thread(place.cli, "status", "--json")).stdout)
    descriptor = os.pidfd_open(status["pid"])
    os.kill(status["pid"], signal.SIGKILL)
    ended, _, _ = await asyncio.to_thread(select.select, [descriptor], [], [], 20)
    os.close(descriptor)
    assert ended


def call(bridge: Any, number: int) -> Any:
    bridge.send(
        {
            "jsonrpc": "2.0",
            "id": number,
            "method": "tools/call",
            "params": {"name": "read_lines", "arguments": {"path": "a.txt", "start": 1}},
        }
    )


async def test_the_next_daemon_knows_the_client_and_tells_what_it_offers(mortal: Place, raw: Any):
    bridge = raw(mortal)
    bridge.introduce(name="Faithful")
    before = bridge.request(1, "tools/list")["result"]["tools"]
    await kill(mortal)
    call(bridge, 2)
    answer = await asyncio.to_thread(bridge.receive)
    assert answer["id"] == 2
    assert "one" in answer["result"]["content"][0]["text"]
    assert agents(mortal) == ["Faithful"], "as the client introduced itself to the daemon that is gone"
    await kill(mortal)
    mortal.put({"devtools.toml": ALLOW + RUFF})
    call(bridge, 3)
    told = [await asyncio.to_thread(bridge.receive) for _ in range(2)]
    assert [message.get("id") for message in told if "id" in message] == [3]
    assert [message["method"] for message in told if "method" in message] == ["notifications/tools/list_changed"]
    after = bridge.request(4, "tools/list")["result"]["tools"]
    assert len(after) > len(before)
    code, rest, _ = await asyncio.to_thread(bridge.end)
    assert (code, rest) == (0, b""), "nothing was said that was not for the client"


async def test_every_open_request_is_answered_when_the_daemon_dies(mortal: Place, raw: Any, soon: Any):
    bridge = raw(mortal, "--surface", "workspace")
    bridge.introduce()
    command = {"name": "bash", "arguments": {"command": "sleep 63.03"}}
    for number in (1, 2, 3):
        bridge.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": command})
    bridge.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
    await soon(lambda: b"63.03" in subprocess.run(["ps", "axww"], capture_output=True, check=True).stdout, "a command")
    await kill(mortal)
    answers = [await asyncio.to_thread(bridge.receive) for _ in range(2)]
    assert sorted(answer["id"] for answer in answers) == [1, 3], "what was cancelled is never answered"
    for answer in answers:
        assert answer["result"]["structuredContent"]["code"] == "E_DEV_STEP_FAILED"
        assert "look at the files before trying again" in answer["result"]["content"][0]["text"]


def test_a_daemon_of_another_root_serves_nobody(place: Place, new_place: Callable[..., Place], raw: Any):
    other = new_place(ALLOW, start=False)
    other.env[SOCKET_VARIABLE] = place.socket
    bridge = raw(other)
    answer = bridge.introduce()
    assert answer["error"]["data"]["code"] == "E_DEV_CONFLICT"
    assert str(place.root) in answer["error"]["message"]
    del other.env[SOCKET_VARIABLE]


def test_what_an_older_daemon_does_not_know_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A daemon that knows nothing of `devtools/mcp` answers as for any unknown method."""
    body = b'{"jsonrpc":"2.0","id":"devtools-lsp:","error":{"code":-32601,"message":"no such method"}}'

    def connect(_root: Path) -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        older.append(theirs)
        return ours

    older: list[socket.socket] = []
    monkeypatch.setattr(discovery, "connect_or_start", connect)
    stdin, to_stdin = os.pipe()
    said, stdout = os.pipe()
    os.write(to_stdin, json.dumps(ping(1)).encode() + b"\n")
    os.close(to_stdin)
    monkeypatch.setattr(proxy, "LAST_WORDS_S", 0.2)
    Proxy(tmp_path, "granular", None, incoming=stdin, outgoing=stdout).run()
    answer = json.loads(os.read(said, 65536))
    assert "`devtools-lsp stop` ends it" in answer["error"]["message"]
    for descriptor in (stdin, said, stdout):
        os.close(descriptor)
    for daemon in older:
        daemon.close()


def test_ids_of_ours_never_meet_those_of_the_client(place: Place, raw: Any):
    bridge = raw(place)
    bridge.introduce()
    for number, text in itertools.product((1, "1"), ("a", "b")):
        bridge.send({"jsonrpc": "2.0", "id": number, "method": "ping", "params": {"text": text}})
        assert bridge.receive() == {"jsonrpc": "2.0", "id": number, "result": {}}

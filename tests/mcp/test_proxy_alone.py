"""The process at an MCP client's pipes against a daemon that a test plays: who is answered, by whom, and how often."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp import __version__, discovery
from devtools_lsp.errors import WaitTimeoutError
from devtools_lsp.mcp_bridge import downstream, proxy
from devtools_lsp.mcp_bridge.proxy import Proxy
from devtools_lsp.wire.framing import FrameDecoder, encode_frame
from tests.e2e.place import PROGRAM

WAIT_S = 20.0


class PlayedDaemon:
    """The other end of one connection that the proxy made."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(WAIT_S)
        self._decoder = FrameDecoder()

    def receive(self) -> Any:
        while (body := self._decoder.next()) is None:
            data = self.socket.recv(65536)
            assert data, "the proxy hung up"
            self._decoder.feed(data)
        assert isinstance(body, bytes)
        return json.loads(body)

    def send(self, *messages: Any) -> None:
        self.socket.sendall(b"".join(encode_frame(json.dumps(message).encode()) for message in messages))

    def agree(self) -> None:
        asked = self.receive()
        assert asked["method"] == "devtools/mcp"
        self.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"server": "played", "version": __version__}})


class Rig:
    """A proxy in a thread, with pipes as its client and daemons that are played."""

    def __init__(self, root: Path) -> None:
        self.refusal: Exception | None = None
        self.connects = 0
        self._daemons: list[socket.socket] = []
        self._played = 0
        self._connected = threading.Semaphore(0)
        stdin, self.to_stdin = os.pipe()
        self.unread, stdout = os.pipe()
        self._descriptors = [stdin, stdout, self.unread]
        self._said = os.fdopen(os.dup(self.unread), "rb")
        self._proxy = Proxy(root, "granular", None, incoming=stdin, outgoing=stdout)
        self._thread = threading.Thread(target=self._proxy.run, daemon=True)

    def connect(self, _root: Path) -> socket.socket:
        self.connects += 1
        if self.refusal is not None:
            raise self.refusal
        ours, theirs = socket.socketpair()
        self._daemons.append(theirs)
        self._connected.release()
        return ours

    def start(self) -> None:
        self._thread.start()

    def daemon(self) -> PlayedDaemon:
        """The next connection of the proxy."""
        assert self._connected.acquire(timeout=WAIT_S)
        self._played += 1
        return PlayedDaemon(self._daemons[self._played - 1])

    def agreed(self) -> PlayedDaemon:
        daemon = self.daemon()
        daemon.agree()
        return daemon

    def send(self, *messages: Any) -> None:
        lines = [message if isinstance(message, bytes) else json.dumps(message).encode() for message in messages]
        os.write(self.to_stdin, b"".join(line + b"\n" for line in lines))

    def receive(self, count: int = 1) -> list[Any]:
        return [json.loads(self._said.readline()) for _ in range(count)]

    def hang_up(self) -> None:
        """The client closes what it writes to."""
        os.close(self.to_stdin)
        self.to_stdin = -1

    def ends(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def close(self) -> None:
        if self.to_stdin >= 0:
            self.hang_up()
        for daemon in self._daemons:
            daemon.close()
        self.ends()
        self._said.close()
        for descriptor in self._descriptors:
            os.close(descriptor)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(proxy, "LAST_WORDS_S", 0.2)
    rig = Rig(tmp_path)
    monkeypatch.setattr(discovery, "connect_or_start", rig.connect)
    rig.start()
    yield rig
    rig.close()


def request(number: Any, method: str = "ping", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def result(number: Any, **value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": value}


def test_ids_that_look_like_ours_are_answered(rig: Rig):
    daemon = rig.agreed()
    for number in ("devtools-lsp:", "devtools-lsp:tools/list", "devtools-lsp:initialize"):
        rig.send(request(number))
        daemon.send(result(daemon.receive()["id"], mine=True))
        assert rig.receive() == [result(number, mine=True)]


def test_a_number_and_its_text_are_two_requests_and_so_are_two_with_one_id(rig: Rig):
    daemon = rig.agreed()
    rig.send(request(1), request("1"), request(2), request(2), request(3), request("3"), request(4))
    for number in ("3", "4"):
        rig.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    for _ in range(9):
        daemon.receive()
    daemon.socket.close()
    answers = [answer["id"] for answer in rig.receive(5)]
    assert sorted(map(repr, answers)) == ["'1'", "1", "2", "2", "3"], '"3" and, named by its text, 4 were cancelled'
    rig.hang_up()
    rig.ends()
    os.set_blocking(rig.unread, False)
    with pytest.raises(BlockingIOError):
        os.read(rig.unread, 1)


def test_half_a_character_does_not_cost_a_request_its_answer(rig: Rig):
    daemon = rig.agreed()
    rig.send(b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"text":"\\ud800"}}', request(6))
    while daemon.socket.recv(65536).find(b'"id": 6') < 0:
        pass
    daemon.socket.close()
    assert sorted(answer["id"] for answer in rig.receive(2)) == [5, 6]


def test_what_the_daemon_said_before_its_end_counts(rig: Rig):
    daemon = rig.agreed()
    rig.send(request(1))
    daemon.receive()
    # The proxy learns of the end by its own writing: what it has not read yet is there all the same.
    rig.send(b'{"jsonrpc":"2.0","method":"notifications/x","params":{"text":"' + b"x" * 60_000 + b'"}}')
    daemon.send(result(1, landed=True))
    daemon.socket.shutdown(socket.SHUT_RD)
    rig.send(request(2))
    first, second = rig.receive(2)
    assert first == result(1, landed=True)
    assert second["id"] == 2


def test_an_introduction_that_had_no_good_answer_is_not_repeated(rig: Rig):
    daemon = rig.agreed()
    rig.send(request(0, "initialize", count=1))
    daemon.receive()
    daemon.socket.close()
    assert rig.receive()[0]["error"]["data"]["code"] == "E_DEV_STEP_FAILED"
    rig.send(request(1))
    daemon = rig.agreed()
    assert daemon.receive()["method"] == "ping"
    daemon.send(result(1))
    rig.receive()
    rig.send(request(2, "initialize", count=2))
    daemon.send(result(daemon.receive()["id"]))
    rig.receive()
    rig.send(request(3, "initialize", count=3))
    daemon.send({"jsonrpc": "2.0", "id": daemon.receive()["id"], "error": {"code": -32600, "message": "again?"}})
    rig.receive()
    daemon.socket.close()
    rig.send(request(4))
    daemon = rig.agreed()
    repeated = daemon.receive()
    assert (repeated["method"], repeated["params"]) == ("initialize", {"count": 2})
    assert daemon.receive()["id"] == 4
    daemon.send(result(repeated["id"]), result(4))
    assert rig.receive() == [result(4)], "the answer to what was repeated is not the client's"


def test_an_introduction_is_repeated_whatever_stands_beside_it(rig: Rig):
    daemon = rig.agreed()
    rig.send(b'{"jsonrpc":"2.0","\xff":1,"id":0,"method":"initialize","params":{"n":' + b"9" * 400 + b"}}")
    daemon.socket.recv(65536)
    daemon.send(result(0))
    rig.receive()
    daemon.socket.close()
    rig.send(request(1))
    daemon = rig.agreed()
    assert daemon.receive()["params"] == {"n": int("9" * 400)}
    assert daemon.receive()["id"] == 1
    daemon.socket.close()
    rig.receive()


def test_requests_that_arrived_together_do_not_wait_one_after_the_other(rig: Rig):
    daemon = rig.agreed()
    rig.send(request(0))
    daemon.receive()
    daemon.socket.close()
    rig.receive()
    for number, refusal in enumerate((WaitTimeoutError("not ready"), OSError("gone")), 2):
        rig.refusal = refusal
        rig.send(b"no message", *(request(number) for number in range(20)))
        told = rig.receive(21)
        assert [answer["id"] for answer in told] == [None, *range(20)]
        assert all("error" in answer for answer in told)
        assert rig.connects == number, "asked once"
    rig.refusal = None
    rig.send(request(1))
    daemon = rig.agreed()
    assert daemon.receive()["id"] == 1
    daemon.send(result(1))
    assert rig.receive() == [result(1)]


@pytest.mark.parametrize("reads", ["daemon", "nobody"])
def test_the_end_is_noticed_while_nothing_can_be_taken(rig: Rig, reads: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(proxy, "HIGH_WATER_BYTES", 1)
    daemon = rig.agreed()
    if reads == "daemon":
        daemon.send(*(result("x" * 1000, count=count) for count in range(100)))
    os.set_blocking(rig.to_stdin, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            rig.send(request("more", text="x" * 3000))
    rig.hang_up()
    rig.ends()


# -- what a daemon may answer ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (b"[]", "E_DEV_STEP_FAILED"),
        (b"{", "E_DEV_STEP_FAILED"),
        (b'{"id":"devtools-lsp:","error":{}}', "E_DEV_STEP_FAILED"),
        (b'{"id":"devtools-lsp:","result":1}', "E_DEV_STEP_FAILED"),
        (b'{"id":"devtools-lsp:","error":{"code":-32602,"message":"malformed"}}', "E_DEV_BAD_ARG"),
        (b'{"id":"devtools-lsp:","error":{"code":-32603,"message":"inside"}}', "E_DEV_CONFLICT"),
    ],
)
def test_an_answer_that_is_none_is_told(rig: Rig, told: bytes, code: str):
    rig.daemon().socket.sendall(encode_frame(told))
    rig.send(request(1))
    rig.daemon().socket.sendall(encode_frame(told))
    assert rig.receive()[0]["error"]["data"]["code"] == code


def test_what_comes_before_the_answer_is_passed_over(rig: Rig):
    daemon = rig.daemon()
    daemon.send({"jsonrpc": "2.0", "method": "devtools/toolsChanged"}, result("else"))
    daemon.agree()
    rig.send(request(1))
    assert daemon.receive()["id"] == 1
    daemon.send(result(1))
    assert rig.receive() == [result(1)]


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downstream, "GREETING_S", 0.1)


@pytest.mark.usefixtures("_impatient")
def test_a_daemon_that_never_agrees_is_not_waited_for(rig: Rig):
    rig.daemon()
    rig.send(request(1))
    rig.daemon()
    assert rig.receive()[0]["error"]["data"]["code"] == "E_DEV_TIMEOUT"


# -- descriptors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_a_closed_descriptor_is_never_taken_for_the_client(tmp_path: Path, closed: str):
    (tmp_path / "devtools.toml").touch()
    done = subprocess.run(
        f"exec {PROGRAM} mcp --root {tmp_path} {closed}",
        shell=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"one of them is closed" in done.stderr


def test_what_is_told_to_a_person_never_reaches_the_client(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.stderr", None)
    downstream.say("to nobody")
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stderr", full)
        downstream.say("to nobody")
        # What could not be written waits in its buffer.
        monkeypatch.undo()
        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), full.fileno())
    assert capsys.readouterr().out == ""

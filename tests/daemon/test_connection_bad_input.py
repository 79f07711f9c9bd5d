"""Whatever a client sends: one clear error or a clean close, and nobody else notices (I13)."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from devtools_lsp.daemon.calls import CallBounds
from devtools_lsp.daemon.connection import ConnectionBounds
from devtools_lsp.daemon.lifecycle import LifeBounds
from tests.toy_daemon import RawClient, framed, toy_daemon

ID_NULL = None
QUICK = LifeBounds(connection=ConnectionBounds(frame_stall_s=0.3, id_stall_s=0.1, calls=CallBounds(cancel_grace_s=0.1)))


@dataclass(frozen=True)
class Bad:
    """What is sent, the (code, id) of each answer, and whether the connection is closed afterwards."""

    sent: bytes
    answers: list[tuple[int, object]]
    closes: bool = False
    half_close: bool = False


def request(request_id: object, method: str, params: object = None) -> bytes:
    return framed(json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode())


CASES = {
    "malformed JSON": Bad(framed(b'{"jsonrpc": '), [(-32700, ID_NULL)]),
    "empty body": Bad(framed(b""), [(-32700, ID_NULL)]),
    "not UTF-8": Bad(framed(b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}'), [(-32700, ID_NULL)]),
    "nested too deeply": Bad(framed(b"[" * 100_000), [(-32700, ID_NULL)]),
    "params nested too deeply": Bad(
        framed(b'{"jsonrpc":"2.0","id":1,"method":"devtools/call","params":' + b'{"a":' * 100_000), [(-32700, ID_NULL)]
    ),
    "batch": Bad(framed(b'[{"jsonrpc":"2.0","id":1,"method":"devtools/status"}]'), [(-32600, ID_NULL)]),
    "a number": Bad(framed(b"5"), [(-32600, ID_NULL)]),
    "no jsonrpc": Bad(framed(b'{"id":9,"method":"devtools/status"}'), [(-32600, 9)]),
    "neither method nor result": Bad(framed(b'{"jsonrpc":"2.0","id":9}'), [(-32600, 9)]),
    "method is a number": Bad(framed(b'{"jsonrpc":"2.0","id":"s","method":5}'), [(-32600, "s")]),
    "id null": Bad(request(None, "devtools/status"), [(-32600, ID_NULL)]),
    "id fractional": Bad(request(1.5, "devtools/status"), [(-32600, ID_NULL)]),
    "unknown devtools method": Bad(request(1, "devtools/nothing", {}), [(-32601, 1)]),
    "unknown LSP method": Bad(request(1, "textDocument/hover", {}), [(-32601, 1)]),
    "params are a string": Bad(request(1, "devtools/call", "edit"), [(-32602, 1)]),
    "params are a list": Bad(request(1, "devtools/call", ["edit"]), [(-32602, 1)]),
    "name missing": Bad(request(1, "devtools/call", {}), [(-32602, 1)]),
    "name is a number": Bad(request(1, "devtools/call", {"name": 1}), [(-32602, 1)]),
    "unknown field": Bad(request(1, "devtools/call", {"name": "echo", "extra": 1}), [(-32602, 1)]),
    "params not UTF-8": Bad(
        framed(b'{"jsonrpc":"2.0","id":1,"method":"devtools/call","params":{"name":"\xff"}}'), [(-32700, 1)]
    ),
    "introduced twice": Bad(request(1, "devtools/initialize", {"client": {"name": "again"}}), [(-32600, 1)]),
    "two roles": Bad(request(1, "initialize", {"capabilities": {}}), [(-32600, 1)]),
    "a notification of a method": Bad(
        framed(b'{"jsonrpc":"2.0","method":"devtools/call","params":{"name":"boom"}}')
        + framed(b'{"jsonrpc":"2.0","method":"nobody/knows"}')
        + framed(b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":[]}}')
        + framed(b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"never sent"}}'),
        [],
    ),
    "answers to nothing": Bad(
        framed(b'{"jsonrpc":"2.0","id":1,"result":null}')
        + framed(b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}'),
        [],
    ),
    "headers in lower case and more of them": Bad(
        b"content-length: 2\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n[]", [(-32600, ID_NULL)]
    ),
    "too large, with an id": Bad(
        framed(b'{"jsonrpc":"2.0","id":77,"method":"devtools/call","params":"' + b"x" * (9 * 1024 * 1024) + b'"}'),
        [(-32600, 77)],
    ),
    "too large, never sent": Bad(
        b"Content-Length: 9000000\r\n\r\n{}", [(-32600, ID_NULL), (-32700, ID_NULL)], closes=True
    ),
    "Content-Length absurd": Bad(b"Content-Length: 99999999999\r\n\r\n{}", [(-32600, ID_NULL)], closes=True),
    "Content-Length negative": Bad(b"Content-Length: -1\r\n\r\n{}", [(-32700, ID_NULL)], closes=True),
    "Content-Length no number": Bad(b"Content-Length: two\r\n\r\n{}", [(-32700, ID_NULL)], closes=True),
    "Content-Length missing": Bad(b"Content-Type: json\r\n\r\n{}", [(-32700, ID_NULL)], closes=True),
    "Content-Length too small": Bad(
        b"Content-Length: 3\r\n\r\n" + b'{"jsonrpc":"2.0"}', [(-32700, ID_NULL), (-32700, ID_NULL)], closes=True
    ),
    "Content-Length too large": Bad(
        b"Content-Length: 40\r\n\r\n" + b'{"jsonrpc":"2.0","id":1}' + request(2, "devtools/status"),
        [(-32700, ID_NULL), (-32700, ID_NULL)],
        closes=True,
    ),
    "Content-Length too large, nothing follows": Bad(
        b"Content-Length: 40\r\n\r\n" + b'{"jsonrpc":"2.0","id":1}', [(-32700, ID_NULL)], closes=True
    ),
    "ends inside a frame": Bad(b"Content-Length: 40\r\n\r\n{", [(-32700, ID_NULL)], closes=True, half_close=True),
    "ends inside a header": Bad(b"Content-Len", [(-32700, ID_NULL)], closes=True, half_close=True),
    "no header": Bad(b'{"jsonrpc":"2.0","id":1,"method":"devtools/status"}\n', [(-32700, ID_NULL)], closes=True),
    "HTTP": Bad(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", [(-32700, ID_NULL)], closes=True),
    "header of 70 KB": Bad(b"X: " + b"y" * 70_000, [(-32700, ID_NULL)], closes=True),
    "header without end": Bad(b"X: y\r\n" * 10_000, [(-32700, ID_NULL)], closes=True),
}


async def works(client: RawClient, request_id: object) -> None:
    await client.call(request_id, "echo", text="hello")
    assert await client.receive() == {"jsonrpc": "2.0", "id": request_id, "result": {"text": "hello"}}


@pytest.mark.parametrize("name", CASES)
async def test_bad_input_is_answered_and_stays_with_its_sender(name: str):
    """I13 over the wire, for every way to be wrong."""
    case = CASES[name]
    async with toy_daemon(QUICK) as toy:
        witness = await toy.agent()
        client = await toy.agent()
        await client.send_bytes(case.sent)
        if case.half_close:
            client.writer.write_eof()
        for code, request_id in case.answers:
            answer = await client.receive()
            assert set(answer) == {"jsonrpc", "id", "error"}
            assert (answer["error"]["code"], answer["id"]) == (code, request_id)
            assert answer["error"]["message"]
        if case.closes:
            assert await client.ended()
        else:
            await works(client, "after")
        await works(witness, "witness")


async def test_faults_before_any_introduction_are_told_as_well():
    async with toy_daemon(QUICK) as toy:
        client = await toy.connect()
        await client.send_bytes(framed(b"{"))
        assert (await client.receive())["error"]["code"] == -32700
        await client.request(1, "textDocument/hover")
        assert (await client.receive())["error"]["code"] == -32002
        await client.request(2, "devtools/initialize", {"client": {"name": "x", "age": 3}})
        refused = await client.receive()
        assert refused["error"]["code"] == -32602
        # A client of another version learns why it is not understood.
        assert "`age`" in refused["error"]["message"]
        assert "devtools-lsp 0" in refused["error"]["message"]
        await client.request(3, "devtools/initialize", {"client": {"name": "unwanted"}})
        assert (await client.receive())["error"]["data"]["code"] == "E_DEV_BAD_ARG"
        # Refused introductions fix no role.
        await client.request(4, "devtools/initialize", {"client": {"name": "wanted"}, "role": "terminal"})
        assert (await client.receive())["id"] == 4
        assert [peer.role for peer in toy.host.peers()] == ["terminal"]  # type: ignore[union-attr]


async def test_exit_before_any_introduction_closes():
    async with toy_daemon() as toy:
        client = await toy.connect()
        await client.send({"jsonrpc": "2.0", "method": "exit"})
        assert await client.ended()


async def test_bytes_may_come_one_at_a_time():
    async with toy_daemon() as toy:
        client = await toy.connect()
        for byte in request(1, "devtools/initialize", {"client": {"name": "slow"}}):
            await client.send_bytes(bytes([byte]))
        assert (await client.receive())["id"] == 1


async def test_a_frame_of_exactly_the_cap_is_read():
    async with toy_daemon() as toy:
        client = await toy.agent()
        empty = request(1, "devtools/call", {"name": "echo", "arguments": {"text": ""}})
        body = empty.split(b"\r\n\r\n", 1)[1]
        filler = b"x" * (8 * 1024 * 1024 - len(body))
        await client.send_bytes(framed(body.replace(b'"text": ""', b'"text": "' + filler + b'"')))
        answer = await client.receive()
        assert answer["result"]["text"] == filler.decode()

"""An editor's connection: its session gets well-formed messages in order, and its end."""

from __future__ import annotations

from devtools_lsp.daemon.calls import CallBounds
from devtools_lsp.daemon.connection import ConnectionBounds
from devtools_lsp.daemon.lifecycle import LifeBounds
from tests.toy_daemon import RawClient, Toy, framed, toy_daemon

QUICK = LifeBounds(connection=ConnectionBounds(calls=CallBounds(cancel_grace_s=0.1)))


async def editor(toy: Toy, **params: object) -> RawClient:
    client = await toy.connect()
    await client.request(0, "initialize", {"capabilities": {}, **params})
    assert await client.receive() == {"jsonrpc": "2.0", "id": 0, "result": "initialize"}
    return client


async def test_the_session_gets_every_message_in_order_and_is_told_of_the_end():
    async with toy_daemon() as toy:
        client = await editor(toy)
        await client.send({"jsonrpc": "2.0", "method": "initialized", "params": {}})
        await client.send({"jsonrpc": "2.0", "method": "$/setTrace", "params": {"value": "off"}})
        await client.send({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 99}})
        await client.request("a", "textDocument/hover", {"type_name": 1, "a-b": 2, "class": 3})
        await client.send({"jsonrpc": "2.0", "id": "server-1", "result": None})
        await client.send({"jsonrpc": "2.0", "id": 5, "method": "shutdown"})
        assert (await client.receive())["id"] == "a"
        assert (await client.receive())["id"] == 5
        (session,) = toy.editors.sessions
        assert [message.get("method", message.get("id", None)) for message in session.received] == [
            "initialize",
            "initialized",
            "$/setTrace",
            "$/cancelRequest",
            "textDocument/hover",
            "server-1",
            "shutdown",
        ]
        assert session.received[4]["params"] == {"type_name": 1, "a-b": 2, "class": 3}
        await client.send({"jsonrpc": "2.0", "method": "exit"})
        assert await client.ended()
        await toy.until(lambda: session.was_closed == 1)


async def test_each_editor_has_its_own_session_and_end():
    async with toy_daemon() as toy:
        one, other = await editor(toy), await editor(toy)
        first, second = toy.editors.sessions
        one.writer.transport.abort()
        await toy.until(lambda: first.was_closed == 1)
        await other.request(1, "textDocument/hover")
        assert (await other.receive())["id"] == 1
        assert second.was_closed == 0
        assert len(second.received) == 2


async def test_faults_of_an_editor_are_answered_and_the_session_never_sees_them():
    async with toy_daemon() as toy:
        client = await editor(toy)
        for body, code, request_id in (
            (b"{", -32700, None),
            (b"[]", -32600, None),
            (b'{"jsonrpc":"2.0","id":3,"method":"textDocument/hover","params":"x"}', -32602, 3),
            (b'{"jsonrpc":"2.0","id":3,"method":"textDocument/hover","params":{"x":"\xff"}}', -32700, 3),
            (b'{"jsonrpc":"2.0","id":3,"method":"initialize","params":{}}', -32600, 3),
            (b'{"jsonrpc":"2.0","id":3,"method":"devtools/initialize","params":{"client":{"name":"x"}}}', -32600, 3),
        ):
            await client.send_bytes(framed(body))
            answer = await client.receive()
            assert (answer["error"]["code"], answer["id"]) == (code, request_id)
        await client.send_bytes(framed(b'{"jsonrpc":"2.0","method":"textDocument/didSave","params":7}'))
        await client.request(4, "textDocument/hover")
        assert (await client.receive())["id"] == 4
        assert len(toy.editors.sessions[0].received) == 2


async def test_a_session_that_raises_is_answered_for_and_goes_on():
    async with toy_daemon() as toy:
        client = await editor(toy)
        await client.request(1, "toy/boom")
        assert (await client.receive())["error"] == {
            "code": -32603,
            "message": "toy/boom failed inside the daemon (RuntimeError); the daemon's log has the details",
        }
        await client.send({"jsonrpc": "2.0", "method": "toy/boom"})
        await client.request(2, "textDocument/hover")
        assert (await client.receive())["id"] == 2


async def test_an_editor_may_use_devtools_methods_and_decides():
    async with toy_daemon(QUICK) as toy:
        client = await editor(toy, clientInfo={"name": "Neovim", "version": "0.11"})
        await client.request(1, "devtools/status")
        status = (await client.receive())["result"]
        assert (status["role"], status["name"]) == ("editor", "Neovim")
        (peer,) = toy.agents.attached
        assert peer.decides
        await client.call(2, "wait")
        await toy.until(lambda: toy.agents.started == 1)
        await client.send({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 2}})
        assert (await client.receive())["error"]["data"]["code"] == "E_DEV_CANCELLED"
        # A cancellation that is ours is not the session's business.
        assert [message["method"] for message in toy.editors.sessions[0].received] == ["initialize"]
        await client.call(3, "wait")
        await toy.until(lambda: toy.agents.started == 2)
        client.writer.transport.abort()
        await toy.until(lambda: toy.agents.detached_peers == [peer])
        assert toy.agents.endings == ["wait", "wait"]


async def test_a_name_that_cannot_be_shown_becomes_editor():
    async with toy_daemon() as toy:
        client = await editor(toy, clientInfo={"name": "a\x1b[2J", "version": 3})
        await client.request(1, "devtools/status")
        assert (await client.receive())["result"]["name"] == "editor"
        client = await editor(toy, clientInfo="nonsense")
        await client.request(1, "devtools/status")
        assert (await client.receive())["result"]["name"] == "editor"

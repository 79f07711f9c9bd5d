"""A client that does not read costs a bounded amount of memory and nobody's time but its own."""

from __future__ import annotations

import asyncio
import json

from devtools_lsp.daemon.calls import CallBounds
from devtools_lsp.daemon.connection import ConnectionBounds
from devtools_lsp.daemon.lifecycle import LifeBounds
from tests.toy_daemon import WAIT_S, framed, toy_daemon

MIB = 1024 * 1024
SMALL = LifeBounds(
    connection=ConnectionBounds(
        high_water_bytes=MIB, abort_bytes=4 * MIB, write_stall_s=0.5, calls=CallBounds(cancel_grace_s=0.1)
    )
)


def call(request_id: int, name: str, **arguments: object) -> bytes:
    params = {"name": name, "arguments": arguments}
    return framed(
        json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "devtools/call", "params": params}).encode()
    )


async def test_above_the_high_water_mark_a_client_is_not_read_and_then_aborted():
    async with toy_daemon(SMALL) as toy:
        deaf, witness = await toy.agent(), await toy.agent()
        deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]
        channel = toy.agents.attached[0].channel
        deaf.writer.write(b"".join(call(number, "big", size=50_000) for number in range(20)))
        highest = 0
        for number in range(20, 4000):
            if deaf.writer.transport.is_closing():
                break
            deaf.writer.write(call(number, "big", size=50_000))
            await witness.call(number, "echo")
            assert (await witness.receive())["id"] == number
            highest = max(highest, channel.pending_bytes)
            if len(toy.agents.detached_peers) == 1:
                break
        await toy.until(lambda: len(toy.agents.detached_peers) == 1)
        assert MIB < highest <= 4 * MIB
        # Its own requests stopped being read: most were never started.
        assert toy.agents.endings.count("big") < 200
        assert toy.agents.endings.count("echo") > toy.agents.endings.count("big")
        await witness.call("end", "echo")
        assert (await witness.receive())["id"] == "end"


async def test_notifications_to_an_editor_that_does_not_read_end_at_the_hard_limit():
    async with toy_daemon(SMALL) as toy:
        client, witness = await toy.connect(), await toy.agent()
        await client.request(0, "initialize", {"capabilities": {}})
        await client.receive()
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await client.send({"jsonrpc": "2.0", "method": "toy/flood", "params": {"count": 500}})
        (session,) = toy.editors.sessions
        await toy.until(lambda: session.was_closed == 1)
        assert session.channel.closed
        session.channel.notify("toy/late", {})
        assert session.channel.pending_bytes == 0
        await witness.call(1, "echo")
        assert (await witness.receive())["id"] == 1


async def test_a_call_that_streams_waits_for_its_reader_and_ends_with_it():
    async with toy_daemon(SMALL) as toy:
        client = await toy.agent()
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        params = {"name": "progress", "arguments": {"count": 1000, "size": 100_000}, "progressToken": 1}
        await client.request(1, "devtools/call", params)
        channel = toy.agents.attached[0].channel
        await toy.until(lambda: channel.pending_bytes > MIB)
        assert channel.pending_bytes < 2 * MIB
        await toy.until(lambda: len(toy.agents.detached_peers) == 1)
        assert toy.agents.endings == ["progress"]


async def test_a_slow_reader_that_does_read_gets_everything():
    async with toy_daemon(SMALL) as toy:
        client = await toy.agent()
        await client.send_bytes(b"".join(call(number, "big", size=200_000) for number in range(10)))
        seen = []
        async with asyncio.timeout(WAIT_S):
            for _ in range(10):
                await asyncio.sleep(0.02)
                seen.append((await client.receive())["id"])
        assert sorted(seen) == list(range(10))


async def test_a_large_message_waits_in_pieces_and_what_follows_it_stays_behind_it():
    async with toy_daemon() as toy:
        client, witness = await toy.agent(), await toy.agent()
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        channel = toy.agents.attached[0].channel
        await client.send_bytes(call(1, "big", size=7 * MIB) + call(2, "echo") + call(3, "big", size=MIB))
        await toy.until(lambda: channel.pending_bytes > 7 * MIB and toy.agents.endings.count("big") == 2)
        assert channel._transport.get_write_buffer_size() < 2 * MIB, "the transport copies what it is given"
        await witness.call(1, "echo")
        assert (await witness.receive())["id"] == 1
        client.reader._transport.resume_reading()  # type: ignore[attr-defined]
        answers = [await client.receive() for _ in range(3)]
        assert [answer["id"] for answer in answers] == [1, 2, 3]
        assert [len(answers[0]["result"]), len(answers[2]["result"])] == [7 * MIB, MIB]
        await toy.until(lambda: channel.pending_bytes == 0)


async def test_the_end_waits_for_a_large_message_that_is_being_read():
    async with toy_daemon() as toy:
        client = await toy.agent()
        channel = toy.agents.attached[0].channel
        channel.notify("toy/large", {"text": "x" * 7 * MIB})
        channel.close()
        channel.notify("toy/late", {})
        assert len((await client.receive())["params"]["text"]) == 7 * MIB
        assert await client.ended()


async def test_a_client_that_leaves_a_large_message_unread_leaves_nothing_behind():
    async with toy_daemon() as toy:
        client = await toy.agent()
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        channel = toy.agents.attached[0].channel
        channel.notify("toy/large", {"text": "x" * 7 * MIB})
        assert channel.pending_bytes > 6 * MIB
        await client.close()
        await toy.until(lambda: len(toy.agents.detached_peers) == 1)
        assert channel.pending_bytes == 0

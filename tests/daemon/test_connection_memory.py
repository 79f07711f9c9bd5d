"""Nothing is kept of calls and connections that are over."""

from __future__ import annotations

import json

import psutil
import pytest

from tests.toy_daemon import framed, toy_daemon


@pytest.mark.full
async def test_memory_is_flat_over_a_hundred_thousand_calls_and_a_thousand_connections():
    process = psutil.Process()
    async with toy_daemon() as toy:
        client = await toy.agent()

        async def calls(rounds: int) -> None:
            batch = b"".join(
                framed(
                    json.dumps(
                        {
                            "jsonrpc": "2.0",
                            "id": number,
                            "method": "devtools/call",
                            "params": {"name": "progress", "arguments": {"count": 1}, "progressToken": number},
                        }
                    ).encode()
                )
                for number in range(100)
            )
            for _ in range(rounds):
                await client.send_bytes(batch)
                for _ in range(200):
                    await client.receive()
                toy.agents.endings.clear()

        async def connections(count: int) -> None:
            for _ in range(count):
                other = await toy.agent()
                await other.close()
                toy.clients.remove(other)
            await toy.until(lambda: len(toy.agents.detached_peers) == len(toy.agents.attached) - 1)
            del toy.agents.attached[1:], toy.agents.detached_peers[:]

        await calls(100)
        await connections(200)
        before = process.memory_info().rss
        await calls(1000)
        await connections(1000)
        grown = process.memory_info().rss - before
        assert grown < 4 * 1024 * 1024, f"{grown} bytes more than before"

"""Transports of asyncio do read in the pieces that are asked for: the attribute that says so is not documented."""

from __future__ import annotations

import asyncio
import socket

from devtools_lsp.wire.reading import CHUNK_BYTES, read_in_chunks


async def test_a_transport_reads_no_more_than_a_chunk_at_once():
    sizes: list[int] = []

    class Reader(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            read_in_chunks(transport)

        def data_received(self, data: bytes) -> None:
            sizes.append(len(data))

    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1024 * 1024)
    theirs.setblocking(False)
    sent = theirs.send(bytes(3 * CHUNK_BYTES))
    transport, _ = await asyncio.get_running_loop().create_unix_connection(Reader, sock=ours)
    async with asyncio.timeout(20):
        while sum(sizes) < sent:
            await asyncio.sleep(0)
    transport.close()
    theirs.close()
    assert sent > CHUNK_BYTES
    assert max(sizes) == CHUNK_BYTES


def test_what_has_no_such_size_is_left_alone():
    read_in_chunks(object())

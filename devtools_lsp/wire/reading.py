"""How much is read from a stream at once."""

from __future__ import annotations

CHUNK_BYTES = 64 * 1024
"""For a buffer of more than 128 KiB the allocator maps memory anew, which costs ten times as much as a read of the few
hundred bytes that there mostly are."""


def read_in_chunks(transport: object) -> None:
    """Have an asyncio transport read at most `CHUNK_BYTES` at once: left alone it asks for 256 KiB every time."""
    if hasattr(transport, "max_size"):
        transport.max_size = CHUNK_BYTES  # pyright: ignore[reportAttributeAccessIssue] -- of asyncio's own transports

"""Channels that stand for a client, as test doubles of `doors.Channel`."""

from __future__ import annotations

from devtools_lsp.wire.messages import encode


class Sent:
    """A channel that keeps what it was given."""

    closed = False
    pending_bytes = 0

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, payload: object) -> None:
        self.sent.append(payload if isinstance(payload, bytes) else encode(payload))

    def notify(self, method: str, params: object) -> None:
        raise AssertionError(method)

    async def drain(self) -> None:
        return

    def close(self) -> None:
        return

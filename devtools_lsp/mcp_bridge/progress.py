"""Progress of one call on its way to the MCP client: in order, before the answer, and bounded.

The daemon's progress arrives in a callback that cannot wait; the client may read slowly. What waits is joined into
one message, and what exceeds `MAX_WAITING` characters is counted instead of kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self

from devtools_lsp.mcp_bridge.words import progress_text

MAX_WAITING = 256 * 1024

Send = Callable[[float, str], Awaitable[None]]
"""Told (a number that grows, text)."""


class ProgressRelay:
    """Use as a context around the call: on a normal end everything has been sent, else what waits is dropped.

    Most calls have nothing to tell: the task that sends is made when there is something.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: list[str] = []
        self._size = 0
        self._dropped = 0
        self._count = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = self._task
        if task is None:
            return
        if isinstance(error, asyncio.CancelledError):
            task.cancel()
            await asyncio.wait([task])
            return
        try:
            await task
        finally:
            task.cancel()

    def put(self, value: Mapping[str, Any]) -> None:
        """One piece of the daemon's progress."""
        text = progress_text(value)
        if self._size + len(text) > MAX_WAITING:
            self._dropped += len(text)
        else:
            self._waiting.append(text)
            self._size += len(text)
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name="mcp progress")

    async def _work(self) -> None:
        while self._waiting or self._dropped:
            self._count += 1
            await self._send(float(self._count), self._take())
        self._task = None

    def _take(self) -> str:
        if self._dropped:
            self._waiting.append(f"[{self._dropped:,} characters of output are not shown here]")
        text = "\n".join(self._waiting)
        self._waiting.clear()
        self._size = self._dropped = 0
        return text

"""A computation that runs at most once, whoever asks for it first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Once(Generic[Value]):
    """Calls `compute` on the first `get` and gives every caller the same value or the same error.

    One caller's cancellation does not take the value from the others; `close` ends a computation nobody awaits.
    """

    def __init__(self, compute: Callable[[], Awaitable[Value]]) -> None:
        self._compute = compute
        self._task: asyncio.Task[Value] | None = None

    async def get(self) -> Value:
        """The value."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await asyncio.shield(self._task)

    async def _run(self) -> Value:
        return await self._compute()

    async def close(self) -> None:
        """End a computation that is still running, and wait until it has ended."""
        if self._task is None:
            return
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        if not self._task.cancelled():
            # Reading the exception marks it as seen: whoever asked has been told already.
            self._task.exception()

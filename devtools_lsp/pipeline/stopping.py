"""A block of a coroutine that ends when a switch is turned, as `asyncio.timeout` ends one when time is up.

It needs no task of its own beside the block's, which is most of what a short call would otherwise cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from devtools_lsp.ports import Cancellation


class StoppedError(Exception):
    """The switch was turned, and the block was cancelled for it."""


class Stopping:
    """`async with Stopping(signal)`: turning the signal cancels the block, which then raises StoppedError.

    A block that finishes all the same has its way. When somebody else cancels the task as well, it is that
    cancellation which goes on.
    """

    def __init__(self, signal: Cancellation) -> None:
        self._signal = signal
        self._task: asyncio.Task[object] | None = None
        self._before = 0
        self._turning: asyncio.Handle | None = None
        self._turned = False
        self._unsubscribe: Callable[[], None] | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        assert self._task is not None, "a coroutine that awaits runs in a task"
        self._before = self._task.cancelling()
        self._unsubscribe = self._signal.subscribe(self._turn)

    def _turn(self) -> None:
        # Not at once: the switch may be turned by the block itself, and a task that is running cannot be told so
        # that the cancellation certainly arrives inside the block.
        self._turning = asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        assert self._task is not None
        self._turned = True
        self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        assert self._unsubscribe is not None
        self._unsubscribe()
        if self._turning is not None:
            self._turning.cancel()
        if not self._turned:
            return
        others = self._task.uncancel() > self._before
        if isinstance(error, asyncio.CancelledError) and not others:
            raise StoppedError from error

"""The one switch that stops a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Cancellation:
    """A one-way switch that a caller turns; everything that waits on its behalf looks at it."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], object]] = []
        self.reason = ""
        self.cancelled = False
        """Whether it was turned."""

    def cancel(self, reason: str = "cancelled by the caller") -> None:
        """Turn it; later calls change nothing."""
        if not self.cancelled:
            self.reason = reason
            self.cancelled = True
            for callback in list(self._callbacks):
                callback()

    async def wait(self) -> None:
        """Return when it is turned."""
        if self.cancelled:
            return
        turned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Whoever waits may have been cancelled in the moment in which it is turned.
        unsubscribe = self.subscribe(lambda: turned.done() or turned.set_result(None))
        try:
            await turned
        finally:
            unsubscribe()

    async def wait_or_done(self, work: asyncio.Future[Any], timeout_s: float | None = None) -> None:
        """Return when `work` is done, it is turned, or `timeout_s` is over; the work is neither ended nor read."""
        turned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        unsubscribe = self.subscribe(lambda: turned.set_result(None))
        try:
            await asyncio.wait({work, turned}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            unsubscribe()

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have `callback` called once when it is turned, now if it has been; returns what ends the subscription."""
        if self.cancelled:
            callback()
            return lambda: None
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

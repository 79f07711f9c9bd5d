"""Waiting for an engine: a call that is cancelled ends, and leaves nothing behind that complains later."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from devtools_lsp.engines.calls import until_cancelled
from devtools_lsp.errors import CallCancelledError
from devtools_lsp.ports import Cancellation, EngineCall


def call(signal: Cancellation) -> EngineCall:
    return EngineCall("e", "lint", ("a.py",), {}, {}, {}, signal)


async def test_work_that_fails_while_its_caller_is_stopped_is_not_heard_of_again():
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    begun = asyncio.Event()

    async def failing() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("the server is gone")

    for stop in ("task", "signal"):
        signal = Cancellation()
        begun.clear()
        waiting = asyncio.ensure_future(until_cancelled(call(signal), "e", failing()))
        await begun.wait()
        if stop == "task":
            waiting.cancel()
        else:
            signal.cancel("enough")
        with pytest.raises(asyncio.CancelledError if stop == "task" else CallCancelledError):
            await waiting
    gc.collect()
    assert complaints == []

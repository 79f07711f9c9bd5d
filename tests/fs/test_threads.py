"""Work in the threads of a file system: it has its end, whatever becomes of whoever waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from devtools_lsp.fs.threads import Workers


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(1, "test")
    yield made
    made.close()


async def test_the_value_or_the_fault_comes_back(workers: Workers):
    assert await workers.finish(lambda: 7) == (7, None)

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await workers.finish(fail)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancellation_waits_for_the_end(workers: Workers, times: int, fails: bool):
    begun, go_on = threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        assert go_on.wait(20)
        if fails:
            raise ValueError("no")
        return "done"

    waiting = asyncio.create_task(workers.finish(work))
    await asyncio.to_thread(begun.wait, 20)
    for _ in range(times):
        waiting.cancel()
        await asyncio.sleep(0)
        assert not waiting.done()
    go_on.set()
    if fails:
        with pytest.raises(ValueError, match="no"):
            await asyncio.wait_for(waiting, 20)
        return
    value, cancelled = await asyncio.wait_for(waiting, 20)
    assert value == "done"
    assert isinstance(cancelled, asyncio.CancelledError)


async def test_nothing_begins_after_the_end(workers: Workers):
    workers.close()
    with pytest.raises(RuntimeError, match="closed"):
        await workers.finish(lambda: 7)

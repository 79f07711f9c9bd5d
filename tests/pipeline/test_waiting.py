"""`noticing`: what answers at once costs no timer; a wait is noticed once, and is cancelled as any other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from devtools_lsp.pipeline.waiting import noticing


async def answered() -> int:
    return 7


async def test_an_answer_at_once_is_the_value_and_nobody_is_told():
    told: list[int] = []
    assert await noticing(answered(), 0, lambda: told.append(1)) == 7
    await asyncio.sleep(0.01)
    assert not told


async def test_a_wait_is_noticed_once_and_its_value_comes_all_the_same():
    noticed = asyncio.Event()
    told: list[int] = []

    async def work() -> str:
        assert asyncio.current_task() is task
        await noticed.wait()
        await asyncio.sleep(0)
        return "late"

    def notice() -> None:
        told.append(1)
        noticed.set()

    async def caller() -> str:
        return await noticing(work(), 0.001, notice)

    task = asyncio.create_task(caller())
    assert await task == "late"
    assert told == [1]


async def test_a_future_is_awaited_as_well():
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, 3)
    assert await noticing(future, 10, lambda: None) == 3


class Plain:
    """An awaitable of an embedder's gate whose iterator has neither `send` nor `throw` nor `close`."""

    def __init__(self, turns: int) -> None:
        self._turns = turns

    def __await__(self) -> Iterator[Any]:
        return iter([None] * self._turns)


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_whatever_can_be_awaited_can_be_noticed(turns: int):
    assert await noticing(Plain(turns), 10, lambda: None) is None


async def test_a_plain_iterator_is_cancelled_as_any_other():
    async def caller() -> None:
        await noticing(Plain(1_000_000), 10, lambda: None)

    task = asyncio.create_task(caller())
    await asyncio.sleep(0)
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await task


@pytest.mark.parametrize("waits", [False, True])
async def test_a_failure_is_the_callers(waits: bool):
    async def work() -> None:
        if waits:
            await asyncio.sleep(0)
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await noticing(work(), 10, lambda: None)


async def test_a_cancellation_arrives_inside_and_may_be_outlived_there():
    inside = asyncio.Event()
    told: list[str] = []

    async def work() -> str:
        try:
            inside.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            await asyncio.sleep(0)
            raise
        return "never"

    async def caller() -> str:
        return await noticing(work(), 10, lambda: told.append("noticed"))

    task = asyncio.create_task(caller())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["cancelled"]


async def test_what_is_closed_while_it_waits_is_closed_inside():
    told: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append("left")

    async def caller() -> None:
        await noticing(work(), 10, lambda: None)

    running = caller()
    running.send(None)
    running.close()
    assert told == ["left"]

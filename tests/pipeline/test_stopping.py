"""A block that a switch ends: exactly then, and with nothing of it left over."""

from __future__ import annotations

import asyncio

import pytest

from devtools_lsp.pipeline.stopping import StoppedError, Stopping
from devtools_lsp.ports import Cancellation


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_turning_the_switch_ends_the_block():
    signal = Cancellation()
    asyncio.get_running_loop().call_soon(signal.cancel)
    with pytest.raises(StoppedError):
        async with Stopping(signal):
            await forever()
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    await asyncio.sleep(0)


async def test_a_switch_that_was_turned_before_ends_the_first_wait():
    signal = Cancellation()
    signal.cancel()
    with pytest.raises(StoppedError):
        async with Stopping(signal):
            await forever()


async def test_a_block_that_turns_it_itself_and_never_waits_has_its_way():
    signal = Cancellation()
    async with Stopping(signal):
        signal.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_a_block_that_turns_it_itself_is_ended_where_it_waits_next():
    signal = Cancellation()

    async def work() -> None:
        signal.cancel()
        await forever()

    with pytest.raises(StoppedError):
        async with Stopping(signal):
            await work()


async def test_a_block_that_finishes_all_the_same_has_its_way():
    signal = Cancellation()
    asyncio.get_running_loop().call_soon(signal.cancel)
    ended = "no"
    async with Stopping(signal):
        try:
            await forever()
        except asyncio.CancelledError:
            ended = "its own way"
    assert ended == "its own way"
    await asyncio.sleep(0)


async def test_what_the_block_raises_for_it_is_raised():
    signal = Cancellation()
    asyncio.get_running_loop().call_soon(signal.cancel)

    async def work() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            raise ValueError("told") from None

    with pytest.raises(ValueError, match="told"):
        async with Stopping(signal):
            await work()


async def test_a_cancellation_of_the_task_goes_on_as_one():
    signal = Cancellation()
    inside = asyncio.Event()

    async def work() -> None:
        async with Stopping(signal):
            inside.set()
            await forever()

    for turned in (False, True):
        inside.clear()
        task = asyncio.create_task(work())
        await inside.wait()
        if turned:
            signal.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_switch_turned_afterwards_does_nothing():
    signal = Cancellation()
    async with Stopping(signal):
        pass
    signal.cancel()
    await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

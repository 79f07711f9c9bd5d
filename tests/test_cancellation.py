"""The one switch that stops a call, and waiting for work beside it."""

from __future__ import annotations

import asyncio

import pytest

from devtools_lsp.ports import Cancellation


def work_to_come() -> asyncio.Future[int]:
    return asyncio.get_running_loop().create_future()


async def test_waiting_ends_with_the_work():
    signal, work = Cancellation(), work_to_come()
    asyncio.get_running_loop().call_soon(work.set_result, 1)
    await signal.wait_or_done(work)
    assert work.result() == 1
    assert not signal.cancelled


async def test_waiting_ends_with_the_switch_and_leaves_the_work_alone():
    signal, work = Cancellation(), work_to_come()
    asyncio.get_running_loop().call_soon(signal.cancel, "enough")
    await signal.wait_or_done(work)
    assert signal.reason == "enough"
    assert not work.done()


async def test_waiting_ends_at_once_when_the_switch_was_turned_before():
    signal, work = Cancellation(), work_to_come()
    signal.cancel()
    await signal.wait_or_done(work)
    assert not work.done()


async def test_waiting_ends_with_the_time():
    signal, work = Cancellation(), work_to_come()
    await signal.wait_or_done(work, 0.0)
    assert not work.done()
    assert not signal.cancelled


async def test_what_the_work_raises_is_left_to_whoever_reads_it():
    signal, work = Cancellation(), work_to_come()
    asyncio.get_running_loop().call_soon(work.set_exception, ValueError("told"))
    await signal.wait_or_done(work)
    with pytest.raises(ValueError, match="told"):
        work.result()


async def test_a_cancellation_of_who_waits_goes_on_and_leaves_the_work_alone():
    signal, work = Cancellation(), work_to_come()
    waiting = asyncio.create_task(signal.wait_or_done(work))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not work.done()


@pytest.mark.parametrize("end", ["work", "switch", "time", "cancelled"])
async def test_waiting_leaves_nothing_behind(end: str):
    """A switch may serve a session for hours: neither a task nor a subscription of each wait may stay."""
    signal, work = Cancellation(), work_to_come()
    before = asyncio.all_tasks()
    waiting = asyncio.create_task(signal.wait_or_done(work, 0.0 if end == "time" else None))
    await asyncio.sleep(0)
    assert asyncio.all_tasks() - before <= {waiting}
    if end == "work":
        work.set_result(1)
    elif end == "switch":
        signal.cancel()
    elif end == "cancelled":
        waiting.cancel()
    await asyncio.wait({waiting})
    assert asyncio.all_tasks() == before
    assert signal._callbacks == []


async def test_everybody_who_waits_for_the_switch_alone_is_told():
    signal = Cancellation()
    waiting = [asyncio.create_task(signal.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    signal.cancel("enough")
    signal.cancel("more than that")
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, type(None), type(None)]
    assert signal.reason == "enough"
    await signal.wait()

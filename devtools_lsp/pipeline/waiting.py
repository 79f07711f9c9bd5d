"""Awaiting what mostly answers at once, and noticing when it does not."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

Value = TypeVar("Value")


@types.coroutine
def noticing(work: Awaitable[Value], after_s: float, notice: Callable[[], object]) -> Generator[Any, Any, Value]:
    """The value of `work`, which runs in the caller's task; `notice` is called once it has waited for `after_s`.

    What never waits costs no timer, which is more than the answer of a rule costs.
    """
    steps = _awaiting(work)
    try:
        awaited = steps.send(None)
    except StopIteration as answered:
        return answered.value
    timer = asyncio.get_running_loop().call_later(after_s, notice)
    try:
        while True:
            try:
                sent = yield awaited
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                awaited = steps.throw(error)
            else:
                awaited = steps.send(sent)
    except StopIteration as answered:
        return answered.value
    finally:
        timer.cancel()


async def _awaiting(work: Awaitable[Value]) -> Value:
    """As a coroutine, which can be driven: what an awaitable gives may be any iterator."""
    return await work

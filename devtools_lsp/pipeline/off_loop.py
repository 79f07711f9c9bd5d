"""Pure work that may take long goes to a thread, so that no callback holds the loop for more than a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Value = TypeVar("Value")
Args = ParamSpec("Args")

SMALL = 64 * 1024
"""Characters up to which every algorithm of the core takes less than a thread hop is worth caring about."""

ENTRY = 200
"""What a path, a file or a finding weighs beside its text, in characters."""


async def off_loop(weight: int, work: Callable[Args, Value], /, *args: Args.args, **kwargs: Args.kwargs) -> Value:
    """The work's value; `weight` is how many characters it goes over. The work must be pure: nobody waits for it
    when its caller is cancelled.
    """
    if weight <= SMALL:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)

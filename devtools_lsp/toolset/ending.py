"""How one call of a toolset ends: of itself, by a switch, or with the task that awaits it; every wait has a bound.

Knows nothing of tools.
"""

from __future__ import annotations

import asyncio
from typing import Any

from devtools_lsp.agent.shell_launch import END_BOUND_S
from devtools_lsp.errors import CallCancelledError
from devtools_lsp.ports import Cancellation

CANCEL_GRACE_S = END_BOUND_S + 1.0
"""How long a cancelled call may take to end by itself; a command and all that it started end within that."""

Work = asyncio.Task[dict[str, Any]]


async def done_or_stopped(work: Work, switch: Cancellation) -> None:
    """Return when the work is done, or a bounded time after its switch was turned."""
    await switch.wait_or_done(work)
    await ended(work)


async def ended(work: Work) -> None:
    """Wait for work whose switch was turned; what does not look at it is stopped. Twice the grace at most."""
    try:
        await asyncio.wait({work}, timeout=CANCEL_GRACE_S)
    finally:
        work.cancel()
    await asyncio.wait({work}, timeout=CANCEL_GRACE_S)


def fault(work: Work) -> BaseException | None:
    """What the work raised, None while it runs."""
    return work.exception() if work.done() and not work.cancelled() else None


def outcome(work: Work, name: str, switch: Cancellation) -> dict[str, Any]:
    """What the work returned; raises what it raised, CallCancelledError when it had to be stopped."""
    if not work.done():
        raise CallCancelledError(f"{name} was cancelled but does not end; look at the files before trying again")
    if work.cancelled():
        raise CallCancelledError(f"{name} was stopped: {switch.reason}; look at the files before trying again")
    return work.result()

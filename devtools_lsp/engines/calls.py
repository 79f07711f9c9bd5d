"""What every adapter does with a call: end it when its caller cancels, and tell which findings a fix did away with.

Owns nothing of any engine.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from devtools_lsp.core.diagnostics import Finding
from devtools_lsp.errors import CallCancelledError
from devtools_lsp.ports import EngineCall

T = TypeVar("T")


async def until_cancelled(call: EngineCall, engine_id: str, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled and awaited when the call is; raises CallCancelledError then."""
    working = asyncio.ensure_future(work)
    try:
        await call.signal.wait_or_done(working)
        if working.done():
            return working.result()
        raise CallCancelledError(f"{engine_id}: {call.signal.reason}", step=call.step)
    finally:
        if not working.done():
            working.cancel()
            await asyncio.wait({working})
        if not working.cancelled():
            # It may have failed at the moment at which its caller was stopped; nobody awaits that any more.
            working.exception()


def gone(before: Iterable[Finding], after: Iterable[Finding]) -> list[Finding]:
    """The findings that are there no more, as they stood; one that only moved is not gone."""
    left = Counter((finding.path, finding.rule, finding.message) for finding in after)
    found: list[Finding] = []
    for finding in before:
        key = (finding.path, finding.rule, finding.message)
        if left[key] > 0:
            left[key] -= 1
        else:
            found.append(finding)
    return found

"""What every adapter does with a call: end it when its caller cancels, and report what fixes removed.

Owns nothing of any engine.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from typing import TypeVar

from devtools_lsp.core.diagnostics import Finding
from devtools_lsp.errors import CallCancelledError
from devtools_lsp.ports import EngineCall

T = TypeVar("T")


async def until_cancelled(call: EngineCall, engine_id: str, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled and awaited when the call is; raises CallCancelledError then."""
    cancelled = asyncio.ensure_future(call.signal.wait())
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait({cancelled, working}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise CallCancelledError(f"{engine_id}: {call.signal.reason}", step=call.step)
    finally:
        cancelled.cancel()
        if not working.done():
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working


def fixed_notes(before: Iterable[Finding], after: Iterable[Finding]) -> list[Finding]:
    """One note for each finding that is gone, because a fix may remove code; old positions are told in words only."""
    left = Counter((finding.path, finding.rule, finding.message) for finding in after)
    notes: list[Finding] = []
    for finding in before:
        key = (finding.path, finding.rule, finding.message)
        if left[key] > 0:
            left[key] -= 1
            continue
        message = f"fixed (was line {finding.line}): {finding.message}"
        notes.append(Finding(path=finding.path, severity="info", message=message, rule=finding.rule))
    return notes

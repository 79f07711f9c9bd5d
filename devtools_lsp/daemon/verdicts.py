"""The rules' verdict on one gate call, asking for as much of a preview as they need, within a deadline.

Owns the waiting that `pipeline/rules.py` leaves to its caller. Nobody is asked and nothing is shown here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import TypeVar

from devtools_lsp.core.changeset import Preview
from devtools_lsp.errors import CallCancelledError
from devtools_lsp.pipeline.rules import NeedsPreview, Question, RuleBook, Verdict, facts_of
from devtools_lsp.ports import Cancellation, GateContext

T = TypeVar("T")

PATIENCE_S = 0.5

_NOTHING = Preview(diff="", files=[], normalized=[], introduced=[], resolved=[], pending=[])


async def judge(
    rules: RuleBook, question: Question, context: GateContext, *, deadline_s: float, timeout_s: float
) -> tuple[Verdict, Preview | None]:
    """The rules' verdict; with it the complete preview, when a rule needed that."""
    verdict = rules.judge(question)
    if isinstance(verdict, NeedsPreview) and verdict.needs == "diff":
        diff = await while_wanted(context.signal, context.diff(), timeout_s) or _NOTHING
        verdict = rules.judge(question, facts_of(diff, question, complete=False))
    if isinstance(verdict, Verdict):
        return verdict, None
    # The preview bounds itself by the same deadline, and what it knows by then is worth a little patience.
    preview = await while_wanted(context.signal, context.preview(), deadline_s + PATIENCE_S)
    if preview is None:
        # The checkers are too slow. The diff is known all the same, so that a limit on its size still holds.
        diff = await while_wanted(context.signal, context.diff(), timeout_s) or _NOTHING
        facts = replace(facts_of(diff, question, complete=True), judged=False)
    else:
        facts = facts_of(preview, question, complete=True)
    final = rules.judge(question, facts)
    if isinstance(final, NeedsPreview):
        raise TypeError("a complete preview settles every rule")
    return final, preview


def cancelled_error(signal: Cancellation) -> CallCancelledError:
    """What the gate raises when nobody wants its answer any more."""
    return CallCancelledError(f"{signal.reason or 'cancelled'} while it waited for an answer; nothing was changed")


async def while_wanted(signal: Cancellation, work: Awaitable[T], timeout_s: float) -> T | None:
    """The result, or None after `timeout_s`. Raises CallCancelledError as soon as the agent does not want it."""
    running = asyncio.ensure_future(work)
    try:
        await signal.wait_or_done(running, timeout_s)
        if signal.cancelled:
            raise cancelled_error(signal)
        return running.result() if running.done() else None
    finally:
        abandon(running)


def abandon(work: asyncio.Future[T]) -> None:
    """Stop waiting for it. The preview itself is shared, and whoever owns it ends it."""
    if not work.cancel() and not work.cancelled():
        # Reading the exception marks it as seen.
        work.exception()

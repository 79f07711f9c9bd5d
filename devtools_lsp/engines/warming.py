"""Learning in quiet moments what the checker says about the files on disk, so that a call finds its baseline known.

Owns when that happens: never while somebody asks. A call ends it at once, and it goes on a moment after the last
one. What is learnt is kept by `judging`.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from devtools_lsp.engines.client import ServerGoneError
from devtools_lsp.engines.judging import ON_DISK, PULLS_AT_ONCE, Judge
from devtools_lsp.engines.server import EngineBusyError, EngineUnavailableError, LanguageServer
from devtools_lsp.engines.session import Session

QUIET_S = 0.5
FILE_LIMIT_S = 30.0


class Warmer:
    """One for each server whose judgement crosses files."""

    def __init__(self, server: LanguageServer, judge: Judge) -> None:
        self._server = server
        self._judge = judge
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def nudge(self) -> None:
        """Go on when it has been quiet for a moment."""
        if self._judge.finds_dependents and not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def pause(self) -> None:
        """Let a call through: whatever is being asked is cancelled, and its answer will not be read."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})

    async def close(self) -> None:
        """Stop for good."""
        self._closed = True
        await self.pause()

    async def _run(self) -> None:
        await asyncio.sleep(QUIET_S)
        # What goes wrong here is nobody's call; the next one meets it, and says so.
        with suppress(EngineBusyError, EngineUnavailableError, ServerGoneError):
            deadline = time.monotonic() + FILE_LIMIT_S
            async with self._server.lease(deadline) as session:
                await self._judge.catch_up(session, (), deadline)
                await self._learn(session)

    async def _learn(self, session: Session) -> None:
        at_once = 1 if self._server.spec.dependents == "references" else PULLS_AT_ONCE
        unknown = self._judge.unknown(session)
        for start in range(0, len(unknown), at_once):
            deadline = time.monotonic() + FILE_LIMIT_S
            some = unknown[start : start + at_once]
            answers = await self._judge.judge(session, ON_DISK, some, deadline, at_once=at_once)
            if not answers.judged:
                return  # It does not answer now; asking on would only keep it busy.

"""A warm language server as an engine: format, fix, lint, check and compare over the texts of a plan.

Owns what the pipeline's question means to a server and what the server's word is worth: a file that it did not
judge is `pending` with a reason, never clean (SPEC 6.5). The server's life belongs to `server`, its protocol to
`session`, states and baselines to `judging`, before and after to `comparing`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from devtools_lsp.core.delta import Comparison, Delta
from devtools_lsp.core.diagnostics import Finding, Pending
from devtools_lsp.engines.calls import gone, until_cancelled
from devtools_lsp.engines.client import ServerGoneError, ServerRefusedError, ServerTimeoutError
from devtools_lsp.engines.comparing import Comparer, Question
from devtools_lsp.engines.judging import Answers, Judge
from devtools_lsp.engines.locate import nearest
from devtools_lsp.engines.reports import syntax_problems
from devtools_lsp.engines.rewriting import fix_all, format_document
from devtools_lsp.engines.server import (
    EngineBusyError,
    EngineClosedError,
    EngineRestsError,
    EngineUnavailableError,
    LanguageServer,
)
from devtools_lsp.engines.session import NotOfferedError, Session
from devtools_lsp.engines.shadow_server import ShadowServer
from devtools_lsp.engines.warming import Warmer
from devtools_lsp.errors import StepFailedError, WaitTimeoutError
from devtools_lsp.ports import EngineCall

T = TypeVar("T")

ATTEMPTS = 2
"""A call whose server dies gets one more, on a new server (SPEC 8.0.12)."""


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """What became of one text: `found` about it, `fixed` is gone from it, `refused` says why it stayed as it was."""

    text: str
    found: tuple[Finding, ...] = ()
    fixed: tuple[Finding, ...] = ()
    refused: str = ""


class LanguageServerEngine:
    """The capability functions of one engine; each keeps its call's deadline and cancellation."""

    def __init__(self, server: LanguageServer, judge: Judge) -> None:
        self._server = server
        self._judge = judge
        self._comparer = Comparer(judge)
        self._shadow: ShadowServer | None = None
        self._warmer = Warmer(server, judge)
        self._id = server.spec.id
        self.config: Path | None = None

    async def close(self) -> None:
        """Stop the servers; returns when they are reaped."""
        await self._warmer.close()
        await self._server.close()
        if self._shadow is not None:
            await self._shadow.close()

    def warm(self) -> None:
        """Begin to start the server, and to learn what it says about the project as it is."""
        self._server.warm()
        self._warmer.nudge()

    def disk_changed(self) -> None:
        """Learn anew what the change made unknown, in the next quiet moment, if the server runs at all."""
        if self._server.current is not None:
            self._warmer.nudge()

    # -- capabilities

    async def judge(self, call: EngineCall) -> Delta:
        """Findings in `call.paths` as `call.texts` has them. Raises StepFailedError when the engine breaks down."""
        deadline = self._deadline(call)
        work = self._judge_in_shadow if self._needs_shadow(call.texts, call) else self._judge_paths
        try:
            return await self._attempted(call, lambda: work(call, deadline))
        except EngineBusyError as error:
            return Delta(pending=self._not_judged(call.paths, str(error)))

    async def lint(self, call: EngineCall) -> Delta:
        """Like `judge`; with `call.fix` the configured fixes first, and what they did away with."""
        return await (self._changing(call, self._fix) if call.fix else self.judge(call))

    async def format(self, call: EngineCall) -> Delta:
        """The files of `call.paths`, formatted."""
        return await self._changing(call, self._format)

    async def compare(self, call: EngineCall) -> Comparison:
        """Findings before (`call.acquired`) and after (`call.texts`), over the files and their dependents."""
        deadline = self._deadline(call)
        shadowed = self._needs_shadow(call.acquired, call) or self._needs_shadow(call.texts, call)
        work = self._compare_in_shadow if shadowed else self._compare
        question = Question(call.acquired, call.texts, call.disk, call.paths)
        try:
            return await self._attempted(call, lambda: work(call, question, deadline))
        except EngineBusyError as error:
            return Comparison(pending=self._not_judged(call.paths, str(error)))

    # -- the work of each

    def _needs_shadow(self, texts: Mapping[str, str], call: EngineCall) -> bool:
        return self._judge.needs_shadow(self._judge.state(texts, call.disk))

    async def _in_shadow(self) -> ShadowServer:
        if self._shadow is None:
            self._shadow = await ShadowServer.create(self._judge, self._server.over)
        return self._shadow

    async def _judge_in_shadow(self, call: EngineCall, deadline: float) -> Delta:
        targets = [path for path in call.paths if path in call.texts and self._judge.handles(path)]
        answers = await (await self._in_shadow()).judge(call.texts, call.disk, targets, deadline)
        return Delta(diagnostics=_findings(answers, targets), pending=_pending(answers))

    async def _compare_in_shadow(self, call: EngineCall, question: Question, deadline: float) -> Comparison:
        del call
        return await (await self._in_shadow()).compare(question, deadline)

    async def _compare(self, call: EngineCall, question: Question, deadline: float) -> Comparison:
        async with self._leased(call, deadline) as session:
            return await self._comparer.compare(session, question, deadline)

    async def _judge_paths(self, call: EngineCall, deadline: float) -> Delta:
        judge = self._judge
        state = judge.state(call.texts, call.disk)
        async with self._leased(call, deadline) as session:
            blocked = await self._comparer.blocked(state)
            targets = [path for path in call.paths if path in call.texts and judge.handles(path)]
            targets = [path for path in targets if path not in blocked]
            try:
                answers = await self._comparer.judge_state(session, state, targets, deadline)
            finally:
                judge.put_back(session, call.disk)
        reasons = {path: reason for path, reason in blocked.items() if path in call.paths}
        return Delta(diagnostics=_findings(answers, targets), pending=(*_pending(answers), *_because(reasons)))

    async def _format(self, session: Session, call: EngineCall, path: str, deadline: float) -> _Rewritten:
        """Format one file. A server that gives no answer but "null", as for a broken text, is asked why."""
        text = await format_document(session, path, deadline=deadline)
        if text is not None:
            return _Rewritten(text)
        broken = await syntax_problems(session, path, call.texts[path], deadline=deadline)
        return _Rewritten(call.texts[path], tuple(_not_formatted(finding) for finding in broken[:1]))

    async def _fix(self, session: Session, call: EngineCall, path: str, deadline: float) -> _Rewritten:
        """Fix one file; the findings that the fixes did away with are told, because a fix may remove code."""
        state = self._judge.state(call.texts, call.disk)
        before = await self._judge.judge(session, state, [path], deadline, at_once=1)
        text = await fix_all(session, path, deadline=deadline)
        state = self._judge.state({**call.texts, path: text}, call.disk)
        after = await self._judge.judge(session, state, [path], deadline, at_once=1)
        left = _findings(after, [path])
        if path in after.unjudged or path in before.unjudged:
            return _Rewritten(text, left)
        return _Rewritten(text, left, fixed=tuple(gone(_findings(before, [path]), left)))

    async def _changing(
        self,
        call: EngineCall,
        change: Callable[[Session, EngineCall, str, float], Awaitable[_Rewritten]],
    ) -> Delta:
        """Run a text-changing request on each file, its texts in sync before and put back after."""
        deadline = self._deadline(call)
        paths = [path for path in call.paths if path in call.texts and self._judge.handles(path)]
        word = "fixed" if call.fix else "formatted"

        async def one(session: Session, path: str) -> _Rewritten:
            session.sync(path, call.texts[path])
            try:
                return await change(session, call, path, deadline)
            except (ServerRefusedError, ValueError) as error:
                # The server is well and says no to this file (a syntax error, say): told, and the text stays.
                return _Rewritten(call.texts[path], refused=f"not {word}: {error}")
            except ServerTimeoutError as error:
                raise WaitTimeoutError(
                    f"{self._id}: {path} was not {word}: {error}", step=call.step, path=path
                ) from error
            except NotOfferedError as error:
                raise StepFailedError(
                    f"{self._id}: {path} was not {word}: {error}", step=call.step, path=path, retry="no"
                ) from error

        async def work() -> Delta:
            async with self._leased(call, deadline) as session:
                await self._judge.lay(session, self._judge.state(call.texts, call.disk), [], deadline)
                try:
                    results = {path: await one(session, path) for path in paths}
                finally:
                    self._judge.put_back(session, call.disk)
            return Delta(
                changed={path: made.text for path, made in results.items() if made.text != call.texts[path]},
                diagnostics=tuple(finding for made in results.values() for finding in made.found),
                pending=tuple(
                    Pending(reason=made.refused, path=path) for path, made in results.items() if made.refused
                ),
                fixed=tuple(finding for made in results.values() for finding in made.fixed),
            )

        try:
            return await self._attempted(call, work)
        except EngineBusyError as error:
            raise WaitTimeoutError(f"{self._id}: nothing was {word}: {error}; try again", step=call.step) from error

    # -- the frame around each

    def _deadline(self, call: EngineCall) -> float:
        return time.monotonic() + min(call.deadline_s, self._server.spec.timeout_s)

    @asynccontextmanager
    async def _leased(self, call: EngineCall, deadline: float) -> AsyncGenerator[Session]:
        """The session alone, knowing the disk as it is now."""
        await self._warmer.pause()
        try:
            async with self._server.lease(deadline) as session:
                await self._replace_if_hung(session)
                await self._judge.catch_up(session, call.paths, deadline)
                yield session
        finally:
            self._warmer.nudge()

    async def _attempted(self, call: EngineCall, attempt: Callable[[], Awaitable[T]]) -> T:
        """Run an attempt, once more if the server dies in it; ends early when the call is cancelled."""
        first = next(iter(call.paths), "_")
        self.config = nearest(self._server.root, first, self._server.spec.config_files)
        return await until_cancelled(call, self._id, self._attempts(call, attempt))

    async def _attempts(self, call: EngineCall, attempt: Callable[[], Awaitable[T]]) -> T:
        died = ""
        for _ in range(ATTEMPTS):
            try:
                return await attempt()
            except ServerGoneError as error:
                died = str(error)
            except EngineUnavailableError as error:
                again = isinstance(error, EngineClosedError | EngineRestsError)
                raise StepFailedError(str(error), step=call.step, retry="yes" if again else "no") from error
        raise StepFailedError(f"{self._id} died twice during this call: {died}", step=call.step, retry="yes")

    async def _replace_if_hung(self, session: Session) -> None:
        silent_s = session.connection.silent_s
        if silent_s > self._server.spec.hung_after_s:
            await self._server.hung(session, f"it has not said anything for {silent_s:.0f} s although it was asked")
            raise ServerGoneError("it did not answer any more and was replaced")

    def _not_judged(self, paths: Iterable[str], reason: str) -> tuple[Pending, ...]:
        return _because({path: reason for path in paths if self._judge.handles(path)})


def _because(reasons: Mapping[str, str]) -> tuple[Pending, ...]:
    return tuple(Pending(reason=reason, path=path) for path, reason in reasons.items())


def _findings(answers: Answers, paths: Sequence[str]) -> tuple[Finding, ...]:
    seen = tuple(finding for path in paths if path in answers.unjudged for finding in answers.unjudged[path].seen)
    return (*answers.findings(paths), *seen)


def _pending(answers: Answers) -> tuple[Pending, ...]:
    return _because({path: unjudged.reason for path, unjudged in answers.unjudged.items()})


def _not_formatted(cause: Finding) -> Finding:
    return msgspec.structs.replace(cause, severity="warning", message=f"not formatted: {cause.message}")

"""The gate's answer: rules first, then a person (SPEC section 4, 8.0.8 to 8.0.11). Implements `ports.Gate`.

Owns which questions wait, who may decide, that the first answer wins, and every way in which a question ends. It
shows nothing itself: views are told what is asked, what became known and how it ended. It changes no file either:
the pipeline writes what was approved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import msgspec

from devtools_lsp.core.changeset import Preview
from devtools_lsp.core.diagnostics import Pending
from devtools_lsp.daemon.activity import ActivityLog
from devtools_lsp.daemon.approval_choice import Answer, check_answer
from devtools_lsp.daemon.approval_endings import Endings
from devtools_lsp.daemon.approval_payload import (
    REQUESTED,
    UPDATED,
    Approval,
    ApprovalView,
    Decided,
    Resolution,
    Status,
    encode_announcement,
)
from devtools_lsp.daemon.disk import Disk
from devtools_lsp.daemon.survey import changed_since, concerns, survey
from devtools_lsp.daemon.verdicts import abandon, cancelled_error, judge, while_wanted
from devtools_lsp.errors import BadArgumentError, CallCancelledError, DevToolsError, PolicyError
from devtools_lsp.pipeline.off_loop import SMALL
from devtools_lsp.pipeline.remembering import RulesPlace, kept_rule, remembered_rule
from devtools_lsp.pipeline.rules import AlwaysAsks, Mode, Question, Rule, RuleBook
from devtools_lsp.ports import Cancellation, Clock, Decision, GateCall, GateContext

_log = logging.getLogger(__name__)

Role = Literal["agent", "terminal", "editor"]
T = TypeVar("T")

STILL_JUDGING = "the checkers have not answered yet"
UNKNOWABLE = "what it changes is known only after it ran"

_LOOKED_AT_ONCE = 50
"""Paths whose links are resolved on the loop: some 10 microseconds each."""


@dataclass(frozen=True, slots=True)
class GateSettings:
    """The configuration's `[gate]`. Durations in seconds; `rules` are the user's own, in order, from `rules_place`."""

    mode: Mode = "editor"
    timeout_s: float = 300.0
    preview_deadline_s: float = 2.0
    no_editor: Literal["fail", "wait"] = "fail"
    rules: tuple[Rule, ...] = ()
    rules_place: RulesPlace = field(default_factory=RulesPlace)


@dataclass(slots=True, eq=False)
class _Waiting:
    approval: Approval
    decision: asyncio.Future[Decision]
    follow: asyncio.Task[None] | None = None


class Approvals:
    """Implements `ports.Gate`. `disk` is where staleness is looked up; endings are logged to `activity`."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        settings: GateSettings | None = None,
        *,
        always_asks: AlwaysAsks = lambda _path: False,
        activity: ActivityLog | None = None,
    ) -> None:
        self._clock = clock
        self._disk = disk
        self._settings = settings or GateSettings()
        self._always_asks = always_asks
        self._activity = activity
        self._remembered: list[Rule] = []
        self._views: dict[ApprovalView, bool] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._endings = Endings()
        self._looking: set[asyncio.Task[None]] = set()
        self._closed = False

    # -- settings and rules --------------------------------------------------------------------------------------

    def configure(self, settings: GateSettings) -> None:
        """New settings from here on; what already waits keeps its time limit."""
        self._settings = settings

    @property
    def settings(self) -> GateSettings:
        """The settings in force."""
        return self._settings

    @property
    def rules(self) -> RuleBook:
        """All rules in force, for judging and for `status`."""
        return RuleBook(self._settings.mode, self._settings.rules, tuple(self._remembered), self._always_asks)

    def end_session(self, session: str) -> None:
        """An agent's session is over: what was remembered for it is forgotten."""
        self._remembered = [rule for rule in self._remembered if rule.session != session]

    # -- views and deciders --------------------------------------------------------------------------------------

    def attach(self, view: ApprovalView, *, decides: bool) -> None:
        """Show a view everything that waits, and what follows. One that `decides` counts as somebody to ask."""
        self._views[view] = decides
        for waiting in list(self._waiting.values()):
            _tell(view.requested, waiting.approval)

    def detach(self, view: ApprovalView) -> None:
        """A view is gone. What waits goes on waiting: another may attach."""
        self._views.pop(view, None)

    @property
    def deciders(self) -> int:
        """How many there are to ask."""
        return sum(self._views.values())

    def items(self) -> list[Approval]:
        """Everything that waits, oldest first."""
        return [waiting.approval for waiting in self._waiting.values()]

    def find(self, approval_id: str) -> Approval:
        """A waiting approval; raises BadArgumentError (`notFound`) that says what became of it."""
        waiting = self._waiting.get(approval_id)
        if waiting is None:
            ending = self._endings.of(approval_id)
            raise BadArgumentError(
                f"approval {approval_id} does not wait any more: it was {ending.status} by {ending.by}",
                reason="notFound",
            )
        return waiting.approval

    # -- the gate ------------------------------------------------------------------------------------------------

    async def __call__(self, context: GateContext, call: GateCall) -> Decision:
        """Answer one gate call. Raises CallCancelledError when the agent cancels or leaves meanwhile."""
        named = (*call.targets, *call.may_create)
        if len(named) <= _LOOKED_AT_ONCE:
            aliases = self._disk.aliases(named)
        else:
            aliases = await asyncio.to_thread(self._disk.aliases, named)
        question = Question(call, context.agent, context.session, context.in_place, aliases)
        settings = self._settings
        verdict, shown = await judge(
            self.rules,
            question,
            context,
            deadline_s=settings.preview_deadline_s,
            timeout_s=settings.timeout_s,
        )
        if verdict.decision == "allow":
            return Decision(approved=True, by="rule")
        if verdict.decision == "deny":
            return Decision(approved=False, by="rule", note=verdict.why)
        if self._closed or (not self.deciders and self._settings.no_editor == "fail"):
            return Decision(approved=False, by="nobody", reason="noDecider")
        return await self._ask(context, question, shown)

    async def _ask(self, context: GateContext, question: Question, known: Preview | None) -> Decision:
        timeout_s = self._settings.timeout_s
        shown = known or await while_wanted(context.signal, context.diff(), timeout_s)
        if shown is None:
            return Decision(approved=False, by="clock", reason="expired", note="its diff took too long to compute")
        if not shown.files and question.writes_what_is_shown:
            # Nothing would change, so that there is nothing to look at and nothing to decide.
            return Decision(approved=True, by="rule")
        if known is None:
            pending = Pending(reason=STILL_JUDGING if shown.files else UNKNOWABLE)
            shown = msgspec.structs.replace(shown, pending=[*shown.pending, pending])
        found, remember = await asyncio.to_thread(
            lambda: (survey(self._disk, shown, question), remembered_rule(question, self._always_asks))
        )
        approval = Approval(
            id=self._endings.new_id(),
            plan=context.plan,
            step_index=context.step_index,
            question=question,
            shown=shown,
            remember=remember,
            expires_at=self._clock.time() + timeout_s,
            existing=found.existing,
            baseline=found.baseline,
            counts=found.counts,
            unseen=found.unseen,
            hunk_bytes=found.hunk_bytes,
            argument_bytes=found.argument_bytes,
        )
        await _encode_if_heavy(REQUESTED, approval)
        if self._closed:
            raise _ended_with_the_daemon()
        if context.signal.cancelled:
            raise cancelled_error(context.signal)
        waiting = _Waiting(approval, asyncio.get_running_loop().create_future())
        self._waiting[approval.id] = waiting
        for view in list(self._views):
            _tell(view.requested, approval)
        approval.encoded = None
        self._record(approval, "pending", approval.agent)
        if known is None and shown.files:
            waiting.follow = asyncio.create_task(self._follow(waiting, context))
        return await self._wait(waiting, context.signal, timeout_s)

    async def _wait(self, waiting: _Waiting, signal: Cancellation, timeout_s: float) -> Decision:
        timer = asyncio.ensure_future(self._clock.sleep(timeout_s))
        stopped = asyncio.ensure_future(signal.wait())
        try:
            await asyncio.wait({waiting.decision, timer, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.decision.done():
                return waiting.decision.result()
            if signal.cancelled:
                self._end(waiting, "withdrawn", "agent")
                raise cancelled_error(signal)
            self._end(waiting, "expired", "clock")
            return Decision(
                approved=False, by="clock", reason="expired", note=f"nobody answered within {timeout_s:g} s"
            )
        finally:
            timer.cancel()
            stopped.cancel()
            if waiting.follow is not None:
                waiting.follow.cancel()
            # When nothing ended it so far, whoever awaited the gate was cancelled as a task.
            self._end(waiting, "withdrawn", "agent")
            abandon(waiting.decision)

    async def _follow(self, waiting: _Waiting, context: GateContext) -> None:
        """Find out what it would introduce and resolve, and say so; say as well when that takes too long."""
        deadline_s = self._settings.preview_deadline_s
        preview = asyncio.ensure_future(context.preview())
        try:
            done, _ = await asyncio.wait({preview}, timeout=deadline_s)
            if not done:
                await self._update(waiting, [Pending(reason=f"not judged within {deadline_s:g} s")])
            shown = await preview
        except DevToolsError as error:
            await self._update(waiting, [Pending(reason=error.message)])
        except asyncio.CancelledError:
            raise
        except Exception:
            _log.exception("the preview of approval %s failed", waiting.approval.id)
            await self._update(waiting, [Pending(reason="the checkers failed; the daemon's log says how")])
        else:
            await self._update(waiting, shown.pending, shown)
        finally:
            abandon(preview)

    async def _update(self, waiting: _Waiting, pending: list[Pending], found: Preview | None = None) -> None:
        approval = waiting.approval
        introduced, resolved = (found.introduced, found.resolved) if found is not None else ([], [])
        shown = msgspec.structs.replace(approval.shown, introduced=introduced, resolved=resolved, pending=pending)
        updated = replace(approval, shown=shown)
        await _encode_if_heavy(UPDATED, updated)
        if approval.status != "pending":
            return
        approval.shown, approval.encoded = updated.shown, updated.encoded
        for view in list(self._views):
            _tell(view.updated, approval)
        approval.encoded = None

    # -- answers and other ends ----------------------------------------------------------------------------------

    async def decide(self, approval_id: str, answer: Answer, role: Role) -> Decided:
        """Take a person's answer. The first one wins; a late one is told how the approval ended.

        Raises PolicyError (`notDecider`) for agents, BadArgumentError for an unknown id and for an answer that
        does not fit what was shown; the approval waits on then.
        """
        if role == "agent":
            raise PolicyError(
                "agents cannot decide approvals; a person does, in an editor or with `devtools-lsp approve`",
                reason="notDecider",
            )
        waiting = self._waiting.get(approval_id)
        if waiting is None:
            return self._late(approval_id)
        approval = waiting.approval
        check_answer(approval, answer)
        if answer.approve:
            changed = await asyncio.to_thread(changed_since, self._disk, approval.baseline)
            if approval_id not in self._waiting:
                return self._late(approval_id)
            if changed:
                self._go_stale(waiting, changed)
                return Decided(approval_id, "stale", applied=False, by="disk")
        if answer.remember and approval.remember is not None and approval.remember not in self._remembered:
            self._remembered.append(approval.remember)
        decision = Decision(
            approved=answer.approve,
            by=role,
            note=answer.note,
            edited=answer.edited,
            dropped=answer.drop,
            person=True,
        )
        status: Status = "approved" if answer.approve else "denied"
        self._end(waiting, status, role, decision)
        place = self._settings.rules_place
        kept = kept_rule(approval.remember, place) if answer.remember and approval.remember is not None else None
        file = place.file if kept is not None else None
        return Decided(approval_id, status, applied=True, by=role, rule=kept, rule_file=file)

    def files_changed(self, paths: Sequence[str]) -> None:
        """Something on disk changed, directories included: approvals whose files are not what was shown go stale."""
        names = set(paths)
        touched = [waiting for waiting in self._waiting.values() if concerns(waiting.approval.baseline, names)]
        if not touched:
            return
        task = asyncio.get_running_loop().create_task(self._look_again(touched))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def close(self) -> None:
        """The daemon ends: what waits is lost, and nothing is asked any more."""
        self._closed = True
        for waiting in list(self._waiting.values()):
            self._end(waiting, "lost", "daemon", _ended_with_the_daemon())
        for task in list(self._looking):
            task.cancel()
        await asyncio.gather(*self._looking, return_exceptions=True)

    async def _look_again(self, touched: Sequence[_Waiting]) -> None:
        for waiting in touched:
            changed = await asyncio.to_thread(changed_since, self._disk, waiting.approval.baseline)
            if changed and waiting.approval.status == "pending":
                self._go_stale(waiting, changed)

    def _go_stale(self, waiting: _Waiting, changed: Sequence[str]) -> None:
        names = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
        decision = Decision(approved=False, by="disk", reason="stale", note=f"changed since it was shown: {names}")
        self._end(waiting, "stale", "disk", decision)

    def _end(
        self, waiting: _Waiting, status: Status, by: str, outcome: Decision | CallCancelledError | None = None
    ) -> None:
        """End it once; whatever comes later changes nothing."""
        approval = waiting.approval
        if self._waiting.pop(approval.id, None) is None:
            return
        approval.status, approval.by = status, by
        resolution = Resolution(approval.id, status, by)
        self._endings.keep(resolution)
        if isinstance(outcome, Decision):
            waiting.decision.set_result(outcome)
        elif outcome is not None:
            waiting.decision.set_exception(outcome)
        self._record(approval, status, by)
        for view in list(self._views):
            _tell(lambda ended, shown=view: shown.resolved(ended, resolution), approval)

    def _late(self, approval_id: str) -> Decided:
        ending = self._endings.of(approval_id)
        return Decided(approval_id, ending.status, applied=False, by=ending.by)

    def _record(self, approval: Approval, verdict: str, by: str) -> None:
        if self._activity is not None:
            self._activity.record(
                "approval",
                plan=approval.plan,
                step=approval.step,
                agent=approval.agent,
                verdict=verdict,
                by=by,
                paths=approval.paths,
            )


async def _encode_if_heavy(method: str, approval: Approval) -> None:
    """Encode what is about to be announced, unless that takes so little time that the first view may do it."""
    if approval.weight > SMALL:
        approval.encoded = method, await asyncio.to_thread(encode_announcement, method, approval)


def _ended_with_the_daemon() -> CallCancelledError:
    return CallCancelledError("the daemon ended before anybody answered; nothing was changed")


def _tell(told: Callable[[Approval], None], approval: Approval) -> None:
    """One view's fault is no other view's, nor the agent's."""
    try:
        told(approval)
    except Exception:
        _log.exception("a view of approval %s failed", approval.id)

"""Asking the gate: builds the question, waits for the answer, and turns an approval into a permit (SPEC section 4).

Nothing else calls the gate and nothing else makes a `Permit`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from devtools_lsp.core.changeset import Preview
from devtools_lsp.core.result import DecisionReport
from devtools_lsp.errors import ConflictError, DevToolsError, GateDeclinedError, StepFailedError
from devtools_lsp.pipeline.parts import PipelineParts
from devtools_lsp.pipeline.path_locks import PathLockHolder
from devtools_lsp.pipeline.waiting import noticing
from devtools_lsp.ports import Cancellation, Decision, GateCall, GateContext, Permit, PlanIdentity

PATIENCE_S = 0.02
"""How long a gate may take before it counts as waiting for a person, so that path locks are let go."""

PreviewSource = Callable[[], Awaitable[Preview]]


async def _nothing_to_show() -> Preview:
    return Preview(diff="", files=[], normalized=[], introduced=[], resolved=[], pending=[])


class Asker:
    """Asks one plan's questions."""

    def __init__(
        self, parts: PipelineParts, who: PlanIdentity, signal: Cancellation, locks: PathLockHolder | None = None
    ) -> None:
        self._parts = parts
        self._who = who
        self._signal = signal
        self.locks = locks

    async def ask(
        self,
        index: int,
        step: str,
        args: Mapping[str, Any],
        *,
        targets: Sequence[str],
        may_create: Sequence[str] = (),
        engines: Sequence[str] | None = None,
        in_place: bool = False,
        diff: PreviewSource = _nothing_to_show,
        preview: PreviewSource = _nothing_to_show,
    ) -> tuple[Decision, Permit]:
        """Ask once; returns the approval and the permit it produced.

        Raises GateDeclinedError with the reason and the note, or ConflictError (`stale`) when the gate saw that
        what it showed is not what would be written any more.
        """
        call = GateCall(
            step=step,
            args=args,
            targets=tuple(sorted(set(targets))),
            may_create=tuple(sorted(set(may_create))),
            engines=tuple(engines) if engines is not None else None,
        )
        context = GateContext(
            plan=self._who.plan,
            step_index=index,
            agent=self._who.agent,
            signal=self._signal,
            session=self._who.session,
            in_place=in_place,
            handle=self._parts.handle,
            diff=diff,
            preview=preview,
        )
        try:
            decision = await self._answer(context, call)
        except BaseException as error:
            # Every question has its line in the log, also one that nobody was left to hear the answer of.
            self._report(call, Decision(approved=False, by="agent", reason="withdrawn"))
            if isinstance(error, Exception) and not isinstance(error, DevToolsError):
                raise StepFailedError(
                    f"{step}: the gate broke down ({type(error).__name__}: {error}); nothing was changed",
                    step=step,
                    retry="no",
                ) from error
            raise
        self._report(call, decision)
        if not decision.approved:
            raise _refusal(step, call, decision)
        return decision, Permit(
            plan=self._who.plan,
            step_index=index,
            step=step,
            targets=frozenset(call.targets),
            may_create=call.may_create,
        )

    def _report(self, call: GateCall, decision: Decision) -> None:
        if self._parts.observer is not None:
            self._parts.observer.gate_answered(self._who, call, decision)

    async def _answer(self, context: GateContext, call: GateCall) -> Decision:
        if self.locks is None:
            return await self._parts.gate(context, call)
        return await noticing(self._parts.gate(context, call), PATIENCE_S, self.locks.release)


def _refusal(step: str, call: GateCall, decision: Decision) -> GateDeclinedError | ConflictError:
    note = f": {decision.note}" if decision.note else ""
    if decision.reason == "stale":
        return ConflictError(
            f"{step}: what was shown for approval is no longer what is on disk{note}; read the files again and retry",
            reason="stale",
            step=step,
            paths=call.targets,
            note=decision.note,
        )
    words = {
        "denied": f"{step} was denied by {decision.by}{note}",
        "withdrawn": f"{step} was withdrawn before it was answered{note}; nothing was changed",
        "expired": f"{step} was not approved in time{note}; nothing was changed",
        "noDecider": f"{step} needs a person's approval and nobody is attached to give it{note}; "
        "attach an editor or run `devtools-lsp approvals --watch`, or allow the step by a rule in devtools.toml",
    }
    return GateDeclinedError(
        words[decision.reason],
        reason=None if decision.reason == "withdrawn" else decision.reason,
        step=step,
        paths=call.targets,
        note=decision.note,
    )


def report_decision(decision: Decision, earlier: DecisionReport | None) -> DecisionReport | None:
    """What the result says of a person's decision; rules' answers are not reported."""
    if not decision.person:
        return earlier
    return DecisionReport(
        approved=decision.approved,
        edited=[
            *(earlier.edited if earlier else []),
            *(entry.path or entry.hunk_id or "" for entry in decision.edited),
        ],
        dropped=[*(earlier.dropped if earlier else []), *decision.dropped],
        by=decision.by,
        note=decision.note,
    )

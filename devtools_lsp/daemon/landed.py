"""What the pipeline reports, handed on to those whom it concerns. Implements `ports.Observer`.

One place, so that the order is one: editors are told and findings cleared, then the log has its line. Engines learn
of changed files a moment later, several at once: whoever asks one before that sweeps the tree first. It never raises
and never waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ParamSpec

from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.core.result import Written
from devtools_lsp.daemon.activity import ActivityLog
from devtools_lsp.daemon.approvals import Approvals
from devtools_lsp.daemon.diagnostics_hub import DiagnosticsHub
from devtools_lsp.daemon.editors import Editors
from devtools_lsp.engines.tree import FileEvent
from devtools_lsp.ports import Decision, GateCall, LandedFile, PlanIdentity

_log = logging.getLogger(__name__)

P = ParamSpec("P")

MOMENT_S = 0.005
"""For how long what changed is gathered for the engines: the agent's answer goes out before they are told."""

TellEngines = Callable[[Sequence[FileEvent]], Coroutine[Any, Any, None]]


async def _no_engines(_events: Sequence[FileEvent]) -> None:
    """For a daemon without engines."""


class Landed:
    """The daemon's observer. `tell_engines` tells the warm servers that files are not what they were."""

    def __init__(
        self,
        editors: Editors,
        hub: DiagnosticsHub,
        approvals: Approvals,
        activity: ActivityLog,
        tell_engines: TellEngines = _no_engines,
    ) -> None:
        self._editors = editors
        self._hub = hub
        self._approvals = approvals
        self._activity = activity
        self._tell_engines = tell_engines
        self._telling: set[asyncio.Task[None]] = set()
        self._untold: list[FileEvent] = []

    def gate_answered(self, who: PlanIdentity, call: GateCall, decision: Decision) -> None:
        """One line for each gate call: what was asked of which files, and who answered how. Never the arguments."""
        self._safely(
            self._activity.record,
            "gate",
            plan=who.plan,
            step=call.step,
            agent=who.agent,
            verdict="approved" if decision.approved else decision.reason,
            by=decision.by,
            paths=list(dict.fromkeys([*call.targets, *call.may_create])),
        )

    def landed(self, who: PlanIdentity, step: str, files: Sequence[LandedFile], written: Sequence[Written]) -> None:
        """Mutations are on the disk."""
        events = _events(written)
        there = [event.path for event in events if event.kind != "deleted"]
        gone = [event.path for event in events if event.kind == "deleted" and event.path not in there]
        touched = sorted({event.path for event in events})
        self._safely(self._to_engines, events)
        self._safely(self._editors.landed, who, files)
        if gone:
            self._safely(self._hub.files_removed, gone)
        self._safely(self._hub.files_changed, there)
        self._safely(self._approvals.files_changed, touched)
        self._safely(self._activity.record, "landed", plan=who.plan, step=step, agent=who.agent, paths=touched)

    def judged(
        self, who: PlanIdentity, engine_id: str, step: str, paths: Sequence[str], diagnostics: Sequence[Diagnostic]
    ) -> None:
        """An engine answered for files as they are on disk."""
        del who
        self._safely(self._hub.judged, engine_id, step, paths, diagnostics)

    def failed(self, who: PlanIdentity, step: str, code: str, paths: Sequence[str]) -> None:
        """A step failed: its code stands in the log, its message does not."""
        self._safely(
            self._activity.record, "failed", plan=who.plan, step=step, agent=who.agent, verdict=code, paths=paths
        )

    def engine_event(self, engine_id: str, what: str, details: Mapping[str, Any] | None = None) -> None:
        """A process of an engine started, idled or failed. After a failure its findings are nobody's any more."""
        del details
        if what in ("failed", "died", "removed"):
            self._safely(self._hub.engine_gone, engine_id)
        self._safely(self._activity.record, "engine", plan="", verdict=what, by=engine_id)

    def changed_outside(self, events: Sequence[FileEvent]) -> None:
        """Somebody else changed files or directories, as the watcher saw it."""
        paths = [event.path for event in events]
        self._safely(self._to_engines, events)
        self._safely(self._hub.files_changed, paths)
        self._safely(self._approvals.files_changed, paths)

    def _to_engines(self, events: Sequence[FileEvent]) -> None:
        if not self._untold:
            asyncio.get_running_loop().call_later(MOMENT_S, self._begin_telling)
        self._untold.extend(events)

    def _begin_telling(self) -> None:
        events, self._untold = self._untold, []
        task = asyncio.get_running_loop().create_task(self._tell_engines(events))
        self._telling.add(task)
        task.add_done_callback(self._told)

    def _told(self, task: asyncio.Task[None]) -> None:
        self._telling.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.error("the engines could not be told of changed files", exc_info=fault)

    def _safely(self, tell: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """A fault of one listener is no fault of the plan that reports."""
        try:
            tell(*args, **kwargs)
        except Exception:
            _log.exception("a listener failed")


def _events(written: Sequence[Written]) -> list[FileEvent]:
    """What happened to each path, deletions first: a swap deletes a name that another file takes."""
    events: list[FileEvent] = [FileEvent(entry.from_, "deleted") for entry in written if entry.from_ is not None]
    events += [FileEvent(entry.path, "deleted") for entry in written if entry.kind == "deleted"]
    for entry in written:
        if entry.kind != "deleted":
            events.append(FileEvent(entry.path, "changed" if entry.kind == "modified" else "created"))
    return events

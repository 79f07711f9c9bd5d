"""What is done at start with the transactions that a dead process left: all old or all new, and a report of which.

Runs stages 2 to 8 of the gauntlet on every path again, the policy included, because a forged record must not be a
way around it. Blocks; nothing else may write meanwhile.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import Literal

from devtools_lsp.errors import DevToolsError, PolicyError
from devtools_lsp.fs.faults import point
from devtools_lsp.fs.journal import Abandoned, Journal
from devtools_lsp.fs.names import check_depth
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.records import Entry, Record
from devtools_lsp.fs.revert import Reverter
from devtools_lsp.fs.walk import LIST_FLAGS, RootWalk, Trail
from devtools_lsp.paths import parent_of, relative_path


@dataclass(frozen=True, slots=True)
class RecoveredPlan:
    """One interrupted transaction.

    `outcome` says whether its files are all `old` or all `new` now; `stuck` when some could not be reached, so that
    the next start tries again. `restored` were taken back · `kept` hold what somebody else wrote meanwhile and were
    not touched · `refused` are named by the record but closed by the policy · `failed` path to reason.
    """

    plan: str
    outcome: Literal["old", "new", "stuck"]
    restored: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    failed: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What recovery found; empty after an orderly end."""

    plans: tuple[RecoveredPlan, ...] = ()
    problems: tuple[str, ...] = ()
    """Parts of the journal that could not be looked at, in words."""

    @property
    def clean(self) -> bool:
        """Whether nothing had been interrupted and everything could be looked at."""
        return not self.plans and not self.problems

    def describe(self) -> list[str]:
        """One sentence a plan, for the log and for people."""
        lines: list[str] = []
        for plan in self.plans:
            text = f"plan {plan.plan} was interrupted; "
            text += {
                "old": "its files hold their old contents",
                "new": "its files hold their new contents",
                "stuck": "some of its files could not be restored, and the next start tries again",
            }[plan.outcome]
            if plan.kept:
                text += f"; kept because someone changed them since: {', '.join(plan.kept)}"
            if plan.refused:
                text += f"; not touched because the policy closes them: {', '.join(plan.refused)}"
            lines.extend([text, *(f"  {path}: {why}" for path, why in plan.failed.items())])
        return [*lines, *self.problems]


def adopt_settled(journal: Journal) -> None:
    """Adopt the sessions that came to an orderly end since this one began, so that their plans can be undone here."""
    with journal.abandoned() as (sessions, _):
        for session in sessions:
            if not session.prepared():
                journal.adopt(session)


def recover(walk: RootWalk, journal: Journal, policy: PathPolicy | None) -> RecoveryReport:
    """Settle every session whose process is gone and adopt what it committed.

    Without a policy nothing may be written, so what was interrupted is left for a start that has one.
    """
    plans: list[RecoveredPlan] = []
    with journal.abandoned() as (sessions, problems):
        for session in sessions:
            try:
                if policy is None and session.prepared():
                    problems.append(
                        f"the journal's session {session.name} was interrupted, and no policy is configured"
                    )
                if policy is None:
                    continue
                settled = True
                for record in session.prepared():
                    plan = _Recovery(walk, session, record, policy).run()
                    plans.append(plan)
                    settled = settled and plan.outcome != "stuck"
                if settled:
                    _sweep(walk, session, policy)
                    journal.adopt(session)
            except OSError as error:
                # The other sessions are settled all the same, and this one again at the next start.
                problems.append(f"the journal's session {session.name} could not be settled: {error.strerror}")
        try:
            journal.prune()
        except OSError as error:
            problems.append(f"old records could not be removed from the journal: {error.strerror}")
        return RecoveryReport(tuple(plans), tuple(problems))


class _Recovery:
    """One prepared record."""

    def __init__(self, walk: RootWalk, session: Abandoned, record: Record, policy: PathPolicy) -> None:
        self._walk = walk
        self._session = session
        self._record = record
        self._policy = policy
        self._trails: list[Trail] = []

    def run(self) -> RecoveredPlan:
        point("recovery:start")
        try:
            return self._settle()
        finally:
            self._close_trails()

    def _settle(self) -> RecoveredPlan:
        record = self._record
        reverter = Reverter(self._session.descriptor, record.id, self._open_parent)
        restored: list[str] = []
        kept: list[str] = []
        refused: list[str] = []
        failed: dict[str, str] = {}
        reverted: list[Entry] = []
        new = False
        for entry in reversed(record.entries):
            point("recovery:revert")
            try:
                self._judge(entry.path)
            except PolicyError:
                refused.append(entry.path)
                continue
            try:
                if record.light and reverter.landed(entry) and not reverter.displaced_other(entry):
                    new = True
                    continue
                outcome = reverter.revert(entry)
            except (OSError, DevToolsError) as error:
                failed[entry.path] = _reason(error)
                continue
            finally:
                self._close_trails()
            if outcome == "undone":
                restored.append(entry.path)
            elif outcome == "kept":
                kept.append(entry.path)
            reverted.append(entry)
            point("recovery:reverted")
        if not failed:
            if not new:
                self._remove_directories()
            failed = self._sync(reverted)
        if failed:
            return RecoveredPlan(
                record.plan, "stuck", tuple(sorted(restored)), tuple(sorted(kept)), tuple(sorted(refused)), failed
            )
        point("recovery:forget")
        self._session.settle(record, new=new)
        return RecoveredPlan(
            record.plan,
            "new" if new else "old",
            tuple(sorted(restored)),
            tuple(sorted(kept)),
            tuple(sorted(refused)),
        )

    def _judge(self, path: str, *, directory: bool = False) -> None:
        if relative_path(path, self._walk.root) != path or not path:
            raise PolicyError(f"{path!r} is not a normalized path", reason="malformed", path=path)
        check_depth(path)
        self._policy.judge(path, "write", directory=directory)
        try:
            trail = self._open_parent(path)
        except OSError:
            return  # Reverting meets the same error and reports it.
        self._policy.judge(path, "write", trail.identities, directory=directory)

    def _open_parent(self, path: str) -> Trail:
        trail = self._walk.walk(path, follow=False)
        self._trails.append(trail)
        return trail

    def _close_trails(self) -> None:
        while self._trails:
            self._trails.pop().close()

    def _remove_directories(self) -> None:
        for directory in reversed(self._record.directories):
            with contextlib.suppress(OSError, DevToolsError):
                # Somebody may have put something there, or taken it away: then it is theirs.
                self._judge(directory, directory=True)
                os.rmdir(directory.rpartition("/")[2], dir_fd=self._open_parent(directory).descriptor)
            self._close_trails()

    def _sync(self, entries: list[Entry]) -> dict[str, str]:
        """Make durable what was taken back; the directories where that failed, since they are not what they were."""
        failed: dict[str, str] = {}
        for directory in sorted({parent_of(entry.path) for entry in entries}):
            try:
                trail = self._open_parent(f"{directory}/." if directory else ".")
                if not trail.missing:
                    descriptor = os.open(".", LIST_FLAGS, dir_fd=trail.descriptor)
                    try:
                        os.fsync(descriptor)
                    finally:
                        os.close(descriptor)
            except FileNotFoundError:
                continue  # Nothing of it is there any more, so there is nothing to lose.
            except (OSError, DevToolsError) as error:
                failed[directory or "."] = _reason(error)
            finally:
                self._close_trails()
        return failed


def _reason(error: OSError | DevToolsError) -> str:
    return error.message if isinstance(error, DevToolsError) else str(error.strerror)


def _sweep(walk: RootWalk, session: Abandoned, policy: PathPolicy) -> None:
    """Remove temporaries that had to stand in the tree itself; only names of our own form are touched."""
    for directory, name in session.strays():
        path = f"{directory}/{name or '.'}" if directory else name
        with contextlib.suppress(OSError, DevToolsError):
            if relative_path(directory, walk.root) != directory:
                continue
            policy.judge(path, "delete")
            if not name:
                with walk.walk(directory, follow=False) as trail:
                    if not trail.missing and trail.name:
                        os.rmdir(trail.name, dir_fd=trail.descriptor)
                continue
            with walk.walk(path, follow=False) as trail:
                if not trail.missing:
                    os.unlink(name, dir_fd=trail.descriptor)

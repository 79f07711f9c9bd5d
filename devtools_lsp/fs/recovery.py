"""What is done at start with the transactions that a dead process left: all old or all new, and a report of which.

Runs stages 2 to 8 of the gauntlet on every path again, the policy included, because a forged record must not be a
way around it. Blocks; nothing else may write meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from devtools_lsp.errors import DevToolsError, PolicyError
from devtools_lsp.fs.abandoned import Abandoned, kept_records
from devtools_lsp.fs.faults import point
from devtools_lsp.fs.journal import Journal
from devtools_lsp.fs.journal_names import part_name
from devtools_lsp.fs.names import check_depth
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.records import Entry, Record
from devtools_lsp.fs.revert import Reverter
from devtools_lsp.fs.staging import remove_empty
from devtools_lsp.fs.walk import LIST_FLAGS, RootWalk, Trail
from devtools_lsp.paths import parent_of, relative_path


@dataclass(frozen=True, slots=True)
class RecoveredPlan:
    """One interrupted transaction.

    `outcome` says whether its files are all `old` or all `new` now; `stuck` when some could not be reached, so that
    the next start tries again. `restored` were taken back · `kept` hold what somebody else wrote meanwhile and were
    not touched · `refused` are named by the record but closed by the policy, or behind a link; what can be got back of
    them is parked · `failed` path to reason.
    """

    plan: str
    outcome: Literal["old", "new", "stuck"]
    restored: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    failed: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class ParkedPlan:
    """What an interrupted plan left because the policy or a link closed the place when it was to be taken back.

    `paths` to where in the journal the old content is, root-relative (None: there was none, the plan made the file) ·
    `why` by path, as it was then. `devtools/undo` of the plan takes it back once that is over.
    """

    plan: str
    paths: dict[str, str | None]
    why: dict[str, str]

    def describe(self) -> list[str]:
        """What to do about it, then a line for each path."""
        text = f"plan {self.plan} was interrupted and could not be taken back everywhere; when the way is free again, "
        lines = [text + f"`devtools-lsp undo {self.plan}` does it where the files still hold what the plan wrote"]
        for path, place in self.paths.items():
            old = f"what it held before is kept in {place}" if place is not None else "the plan made it"
            lines.append(f"  {path}: {old} ({self.why[path]})")
        return lines


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What recovery found; empty after an orderly end."""

    plans: tuple[RecoveredPlan, ...] = ()
    problems: tuple[str, ...] = ()
    """Parts of the journal that could not be looked at, in words."""
    parked: tuple[ParkedPlan, ...] = ()
    """What this start or an earlier one had to leave; said until it is undone or the retention has passed."""

    @property
    def clean(self) -> bool:
        """Whether nothing had been interrupted and everything could be looked at."""
        return not self.plans and not self.problems and not self.parked

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
        return [*lines, *(line for left in self.parked for line in left.describe()), *self.problems]


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
        return RecoveryReport(
            tuple(plans), tuple(problems), tuple(_parked_plan(record, journal.place) for record in journal.parked())
        )


def parked_plans(root: str) -> list[ParkedPlan]:
    """What the journal of a root has parked, daemon or not: looks only, and takes nothing over. Raises OSError."""
    with contextlib.closing(RootWalk(root)) as walk:
        found: list[ParkedPlan] = []
        for place, records in kept_records(walk):
            landed = {record.plan for record in records}
            found += [
                _parked_plan(record, place) for record in records if record.parked and record.undone_by not in landed
            ]
        return found


def _parked_plan(record: Record, place: str) -> ParkedPlan:
    images = {entry.path: f"{place}/{part_name(record.id, 'old', entry.n)}" for entry in record.entries if entry.before}
    paths = {entry.path: images.get(entry.path) for entry in record.entries if entry.path in record.parked}
    return ParkedPlan(record.plan, paths, record.parked)


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
        refused: dict[str, str] = {}
        failed: dict[str, str] = {}
        reverted: list[Entry] = []
        new = False
        for entry in reversed(record.entries):
            point("recovery:revert")
            try:
                self._judge(entry.path)
            except PolicyError as error:
                refused[entry.path] = error.message
                continue
            try:
                if record.light and reverter.landed(entry) and not reverter.displaced_other(entry):
                    new = True
                    continue
                became = reverter.revert(entry)
            except (OSError, DevToolsError) as error:
                failed[entry.path] = _reason(error)
                continue
            finally:
                self._close_trails()
            if became == "undone":
                restored.append(entry.path)
            elif became == "kept":
                kept.append(entry.path)
            reverted.append(entry)
            point("recovery:reverted")
        outcome: Literal["old", "new", "stuck"] = "new" if new else "old"
        if not failed:
            if not new:
                self._remove_directories()
            failed = self._sync(reverted)
        if failed:
            outcome = "stuck"
        else:
            left = self._left(reverter, kept, refused)
            point("recovery:forget")
            self._session.settle(record, record if new else left)
        return RecoveredPlan(
            record.plan, outcome, tuple(sorted(restored)), tuple(sorted(kept)), tuple(sorted(refused)), failed
        )

    def _left(self, reverter: Reverter, kept: Collection[str], refused: Mapping[str, str]) -> Record | None:
        """The part of the record that still is of use: what could not be taken back, and what stood there before what
        somebody else wrote. It stays as a plan that can be undone.
        """
        entries: list[Entry] = []
        for entry in self._record.entries:
            if entry.path in refused:
                found = reverter.park(entry)
                entries += [found] if found is not None else []
            elif entry.path in kept and reverter.keeps(entry):
                entries.append(entry)
            self._close_trails()
        if not entries:
            return None
        parked = {entry.path: refused[entry.path] for entry in entries if entry.path in refused}
        # Its time of being kept begins when somebody can first read of it.
        return msgspec.structs.replace(self._record, time=time.time(), entries=tuple(entries), parked=parked)

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
        made = self._record.made or (0,) * len(self._record.directories)
        for directory, ino in reversed(list(zip(self._record.directories, made, strict=True))):
            with contextlib.suppress(OSError, DevToolsError):
                # Somebody may have put something there, or taken it away: then it is theirs.
                self._judge(directory, directory=True)
                remove_empty(directory.rpartition("/")[2], self._open_parent(directory).descriptor, ino)
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
    """Remove from the tree what its transactions left there beside their files; only what is of our own form."""
    committed = {record.id: record for record in session.committed()}
    for id_, strays in session.strays().items():
        record = committed.get(id_)
        needed = [entry.stage for entry in record.entries] if record is not None and record.parked else []
        for directory, name in strays.temporaries:
            if directory not in needed:
                _remove_temporary(walk, policy, directory, name)
        going = strays.emptied if record is not None else tuple((path, 0) for path in strays.made)
        for directory, ino in going:
            _remove_directory(walk, policy, directory, ino)


def _remove_temporary(walk: RootWalk, policy: PathPolicy, directory: str, name: str) -> None:
    path = f"{directory}/{name}" if directory else name
    with contextlib.suppress(OSError, DevToolsError):
        if relative_path(directory, walk.root) != directory:
            return
        policy.judge(path, "delete")
        with walk.walk(path, follow=False) as trail:
            if not trail.missing:
                os.unlink(name, dir_fd=trail.descriptor)


def _remove_directory(walk: RootWalk, policy: PathPolicy, path: str, ino: int) -> None:
    with contextlib.suppress(OSError, DevToolsError):
        if not path or relative_path(path, walk.root) != path:
            return
        policy.judge(path, "delete", directory=True)
        with walk.walk(path, follow=False) as trail:
            policy.judge(path, "delete", trail.identities, directory=True)
            if not trail.missing and trail.name:
                remove_empty(trail.name, trail.descriptor, ino)

"""Before and after: what a plan's texts introduce and resolve, in its own files and in those that depend on them.

Owns the order of questions (edited files, the other acquired ones, then dependents until their deadline) and the
list of what was not judged. It asks through `judging`, and knows no protocol.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from devtools_lsp.core.delta import Comparison
from devtools_lsp.core.diagnostics import Pending
from devtools_lsp.core.linediff import enclosing_span
from devtools_lsp.core.summary import first_names
from devtools_lsp.engines.client import ServerTimeoutError
from devtools_lsp.engines.judging import PULLS_AT_ONCE, Answers, Judge, State
from devtools_lsp.engines.messages import DocumentSymbol, Position
from devtools_lsp.engines.navigation import files_referring_to, symbols_of
from devtools_lsp.engines.positions import TextPositions
from devtools_lsp.engines.reports import Unjudged
from devtools_lsp.engines.server import EngineBusyError
from devtools_lsp.engines.session import Session

BASELINE_SHARE = 0.5
"""The part of the time for dependents that may go into learning what they said before the edit."""
REFERENCES_SHARE = 0.25
ASK_REFERENCES_ABOVE = 4
"""With fewer files that import the edited ones, asking which of them refer to it costs more than judging all."""
MAX_SYMBOLS_ASKED = 8
ALL_AT_ONCE = 100
"""A project of more files is judged in the order of who imports the edited ones: the deadline may come first."""
PENDING_LISTED = 50

NOT_REACHED = Unjudged("the deadline for dependents came first")


@dataclass(frozen=True, slots=True)
class Question:
    """What the pipeline asks: two maps of texts over the same disk, and the files that the step names."""

    acquired: Mapping[str, str]
    texts: Mapping[str, str]
    disk: Mapping[str, str | None]
    paths: Sequence[str]


@dataclass(slots=True)
class Side:
    """One side of a comparison: which files exist on it and what was said about them."""

    state: State
    targets: list[str]
    answers: Answers = field(default_factory=Answers)

    def add(self, answers: Answers) -> None:
        """Further answers about this side."""
        self.answers.judged.update(answers.judged)
        self.answers.unjudged.update(answers.unjudged)


class Comparer:
    """Compares two states with one judge. Called with the lease held; `deadline` is a monotonic time."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._spec = judge.spec

    @property
    def at_once(self) -> int:
        """How many files are asked about at the same time: a checker that works serially gains nothing by more.

        One that is given files anew must not be at work on another meanwhile, which may include them.
        """
        return 1 if self._spec.dependents == "references" or self._spec.preambles else PULLS_AT_ONCE

    async def judge_state(self, session: Session, state: State, targets: Sequence[str], deadline: float) -> Answers:
        """What is said about files in one state; the server sees that state afterwards, unless all was known."""
        known = self._judge.known(session, state, targets)
        if len(known.judged) == len(targets):
            return known
        await self._judge.lay(session, state, targets, deadline)
        return await self._judge.judge(session, state, targets, deadline, at_once=self.at_once)

    async def compare(self, session: Session, question: Question, deadline: float) -> Comparison:
        """The comparison; the server sees the disk again afterwards."""
        judge = self._judge
        edited = sorted(
            path
            for path in {*question.acquired, *question.texts}
            if judge.handles(path) and question.acquired.get(path) != question.texts.get(path)
        )
        targets = list(dict.fromkeys([*edited, *(path for path in question.paths if judge.handles(path))]))
        before = Side(judge.state(question.acquired, question.disk), targets)
        after = Side(judge.state(question.texts, question.disk), targets)
        before.targets = [path for path in targets if path in question.acquired]
        after.targets = [path for path in targets if path in question.texts]
        blocked = await self.blocked(before.state, after.state)
        dependents: list[str] = []
        beyond = 0
        try:
            await self._ask_targets(session, before, blocked, deadline)
            if not edited:
                return comparison_of(before, before, dependents, blocked)
            if judge.crosses_files:
                asked = await self._dependents(session, before.state, after.state, edited, deadline)
                asked = [path for path in asked if path not in blocked and path not in targets]
                beyond = len(asked) - self._spec.dependents_limit
                dependents = asked[: self._spec.dependents_limit]
            await self._ask_targets(session, after, blocked, deadline)
            limit = min(deadline, time.monotonic() + self._spec.dependents_deadline_s)
            await self._ask_dependents(session, before, after, dependents, limit)
        finally:
            judge.put_back(session, question.disk)
        compared = comparison_of(before, after, dependents, blocked)
        if self._spec.dependents == "unknown":
            note = Pending(reason="files that depend on the edited ones are not judged: this engine does not find them")
            return replace(compared, pending=(*compared.pending, note))
        limited = judge.tree.limited if judge.crosses_files else None
        return _with_limits(compared, beyond, limited)

    async def _ask_targets(self, session: Session, side: Side, blocked: Mapping[str, str], deadline: float) -> None:
        side.add(await self._ask(session, side.state, [path for path in side.targets if path not in blocked], deadline))

    async def _ask_dependents(
        self, session: Session, before: Side, after: Side, dependents: Sequence[str], deadline: float
    ) -> None:
        """First how they are after the edit; then, for those of them whose state before is not known, how they were.

        Without a baseline an answer is worth nothing, so part of the time is kept for it where it is needed.
        """
        if not dependents:
            return
        before.add(self._judge.known(session, before.state, dependents))
        unknown = [path for path in dependents if path not in before.answers.judged]
        share = 1 - BASELINE_SHARE * len(unknown) / len(dependents)
        now = time.monotonic()
        with suppress(EngineBusyError):
            after.add(await self._ask(session, after.state, dependents, now + (deadline - now) * share))
            answered = [path for path in unknown if path in after.answers.judged]
            before.add(await self._ask(session, before.state, answered, deadline))

    async def _ask(self, session: Session, state: State, paths: Sequence[str], deadline: float) -> Answers:
        return await self.judge_state(session, state, paths, deadline) if paths else Answers()

    # -- what cannot be judged without a disk that agrees

    async def blocked(self, *states: State) -> dict[str, str]:
        """Files that this engine would judge wrongly, with the reason: what they import is in a plan only."""
        judge = self._judge
        absent = {path for state in states for path in state.deleted}
        if not self._spec.sees_new_files:
            absent |= {path for state in states for path in state.created}
        if not absent or not judge.crosses_files:
            return {}
        if self._spec.dependents == "unknown":
            beside = {path for state in states for path in state.disk if judge.handles(path) and path not in absent}
            return dict.fromkeys(beside, f"it may depend on {_named(absent)}, which {_ONLY_PLANNED}")
        await judge.graph.refresh()
        overlays = {path: text for state in states for path, text in state.overlays.items()}
        direct = judge.graph.asking_for(absent, overlays)
        reason = f"it imports {_named(absent)}, which {_ONLY_PLANNED}"
        return dict.fromkeys([*direct, *(path for path in judge.graph.closure(direct) if path not in absent)], reason)

    # -- who may be affected

    async def _dependents(
        self, session: Session, before: State, after: State, edited: Sequence[str], deadline: float
    ) -> list[str]:
        judge = self._judge
        if self._spec.dependents == "unknown":
            return []
        if self._spec.dependents == "workspace":
            files = judge.tree.with_extensions(judge.extensions)
            if len(files) <= ALL_AT_ONCE:
                return files
            await judge.graph.refresh()
            return list(dict.fromkeys([*judge.graph.closure(edited), *files]))
        await judge.graph.refresh()
        closure = judge.graph.closure(edited)
        referring: list[str] = []
        if len(closure) > ASK_REFERENCES_ABOVE:
            limit = min(deadline, time.monotonic() + self._spec.dependents_deadline_s * REFERENCES_SHARE)
            referring = await self._referring(session, before, after, edited, limit)
            # The small ones first: more of them are judged before the deadline.
            referring.sort(key=lambda path: judge.tree.files.get(path, (0, 0, 0))[1])
        return [path for path in dict.fromkeys([*referring, *closure]) if judge.handles(path)]

    async def _referring(
        self, session: Session, before: State, after: State, edited: Sequence[str], deadline: float
    ) -> list[str]:
        """The files that refer to what the edits touch, as the server knows it before them."""
        found: dict[str, None] = {}
        await self._judge.lay(session, before, edited, deadline)
        with suppress(ServerTimeoutError):
            for path in edited:
                old = before.text(path, self._judge.tree)
                if old is None:
                    continue
                positions = TextPositions(old, session.encoding)
                span = enclosing_span(old, after.text(path, self._judge.tree) or "")
                first, last = positions.to_lsp_position(span.start).line, positions.to_lsp_position(span.end).line
                symbols = await symbols_of(session, path, deadline=deadline)
                for position in list(_symbols_at(symbols, first, last))[:MAX_SYMBOLS_ASKED]:
                    found.update(dict.fromkeys(await files_referring_to(session, path, position, deadline=deadline)))
        return list(found)


_ONLY_PLANNED = "the plan creates, deletes or moves, and this engine takes from the disk"


def _named(paths: Iterable[str]) -> str:
    return first_names(sorted(paths), 3)


def _symbols_at(symbols: Iterable[DocumentSymbol], first: int, last: int) -> Iterator[Position]:
    """Where the symbols are named that meet the lines `first` to `last`: the innermost first."""
    for symbol in symbols:
        if symbol.range.start.line <= last and symbol.range.end.line >= first:
            yield from _symbols_at(symbol.children or (), first, last)
            yield symbol.selection_range.start


def comparison_of(before: Side, after: Side, dependents: Sequence[str], blocked: Mapping[str, str]) -> Comparison:
    """What two sides say together: a file counts as judged when every side that has it was answered."""
    paths = list(dict.fromkeys([*before.targets, *after.targets, *dependents]))
    judged: list[str] = []
    pending: list[Pending] = []
    for path in paths:
        sides = [side for side in (before, after) if path in side.targets or path in dependents]
        missing = [side for side in sides if path not in side.answers.judged]
        if not missing:
            judged.append(path)
        elif path not in blocked:
            reason = missing[-1].answers.unjudged.get(path, NOT_REACHED).reason
            pending.append(Pending(reason=reason, path=path))
    pending.extend(Pending(reason=reason, path=path) for path, reason in blocked.items())
    return Comparison(
        before=before.answers.findings(judged),
        after=after.answers.findings(judged),
        judged=frozenset(judged),
        pending=tuple(_shortened(pending)),
    )


def _with_limits(comparison: Comparison, beyond: int, limited: str | None) -> Comparison:
    """A comparison that says which dependents were never asked about."""
    notes: list[Pending] = []
    if beyond > 0:
        notes.append(Pending(reason=f"{beyond} more files of the project were not judged (dependents_limit)"))
    if limited is not None:
        notes.append(Pending(reason=f"{limited}, so files there that depend on these were not judged"))
    return replace(comparison, pending=(*comparison.pending, *notes)) if notes else comparison


def _shortened(pending: list[Pending]) -> list[Pending]:
    if len(pending) <= PENDING_LISTED:
        return pending
    rest = len(pending) - PENDING_LISTED
    return [*pending[:PENDING_LISTED], Pending(reason=f"{rest} more files were not judged; {pending[-1].reason}")]

"""Judging states of a workspace with one language server: what it says before and after, and what it did not say.

A state is the disk with texts of a plan laid over it. Owns which answer belongs to which state, the laying-over and
putting-back of texts, and the order and time in which files are judged. One state at a time, and nothing is changed
while answers are awaited, so that no answer can describe another state (I14).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from devtools_lsp.core.diagnostics import Finding
from devtools_lsp.engines.baselines import Baselines, StateKey
from devtools_lsp.engines.client import ServerGoneError
from devtools_lsp.engines.dependents import ImportGraph
from devtools_lsp.engines.locate import nearest
from devtools_lsp.engines.reports import Judged, Unjudged, judge_file
from devtools_lsp.engines.server import EngineBusyError
from devtools_lsp.engines.session import Session
from devtools_lsp.engines.spec import EngineSpec
from devtools_lsp.engines.tree import FileEvent, ProjectTree, Signature, in_skipped_directory, signature_of
from devtools_lsp.paths import extension_of

DOCUMENTS_KEPT_OPEN = 16
PULLS_AT_ONCE = 32
CARRIED_FILES = 20


@dataclass(frozen=True, slots=True)
class State:
    """The disk with `overlays` laid over it (path to text). `created` are overlays without a file below."""

    overlays: Mapping[str, str]
    disk: Mapping[str, str | None]
    created: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()
    signature: frozenset[tuple[str, str]] = frozenset()

    def text(self, path: str, tree: ProjectTree) -> str | None:
        """A file's text in this state."""
        if path in self.overlays:
            return self.overlays[path]
        known = self.disk.get(path)
        return known if known is not None else tree.read(path)


ON_DISK = State({}, {})
"""The disk itself, nothing laid over it."""


@dataclass(slots=True)
class Answers:
    """What was said about which file in one state."""

    judged: dict[str, Judged] = field(default_factory=dict[str, Judged])
    unjudged: dict[str, Unjudged] = field(default_factory=dict[str, Unjudged])

    def findings(self, paths: Iterable[str]) -> tuple[Finding, ...]:
        """The findings in these files, as far as they were judged."""
        return tuple(finding for path in paths if path in self.judged for finding in self.judged[path].findings)


TOO_LATE = Unjudged("the deadline came first")

STRANGER_LIMIT_S = 3.0
"""A file that is no part of the project may never be answered, so it gets no more time than this."""
NO_PART = "it is no part of the project (hidden, installed, or behind a linked directory)"

SHARED_ABOVE_S = 6.0
"""With less time than this left the first files get all of it: they are the ones that were edited."""


class Judge:
    """The judgement of one server. Every method is called with the lease of the session held."""

    def __init__(self, spec: EngineSpec, tree: ProjectTree) -> None:
        self.spec = spec
        self.tree = tree
        self.epoch = 0
        self.extensions = frozenset(spec.extensions)
        self.graph = ImportGraph(tree, self.extensions)
        self._latest: dict[str, Judged] = {}
        # A state is one text of a file for a linter of single files, and a whole project for others.
        self._baselines = Baselines(8, 200_000) if self.crosses_files else Baselines(800, 50_000)
        self._session: Session | None = None
        self._configuration_names = {name.partition("#")[0] for name in (*spec.config_files, *spec.project_files)}
        self._configurations: dict[Path, Signature | None] = {}

    @property
    def crosses_files(self) -> bool:
        """Whether this engine's word on one file depends on others."""
        return self.spec.dependents != "none"

    @property
    def finds_dependents(self) -> bool:
        """Whether files that depend on an edited one are found and judged."""
        return self.spec.dependents in ("workspace", "references")

    def handles(self, path: str) -> bool:
        """Whether a file is this engine's business."""
        return "*" in self.extensions or extension_of(path) in self.extensions

    def state(self, texts: Mapping[str, str], disk: Mapping[str, str | None]) -> State:
        """The state that a plan's texts make of the disk."""
        overlays = {path: text for path, text in texts.items() if self.handles(path) and disk.get(path) != text}
        created = frozenset(path for path in overlays if disk.get(path) is None)
        deleted = frozenset(
            path for path, text in disk.items() if text is not None and path not in texts and self.handles(path)
        )
        signature = frozenset((path, _digest(text)) for path, text in overlays.items())
        return State(overlays, disk, created, deleted, signature | {(path, "") for path in deleted})

    def is_stranger(self, path: str) -> bool:
        """Whether a file is no part of the project as a sweep sees it: hidden, installed, behind a linked directory.

        A checker of whole projects says nothing of such a file, or that it is clean, unless it is open.
        """
        return path not in self.tree.files

    def needs_shadow(self, state: State) -> bool:
        """Whether a state differs from the disk in which files there are, and a copy of the project can show it."""
        differs = bool(state.deleted or (state.created and not self.spec.sees_new_files))
        return self.spec.shadow and differs and self.tree.limited is None

    # -- the disk

    async def catch_up(self, session: Session, paths: Sequence[str], deadline: float) -> None:
        """Learn what changed on disk since the last call, and tell the server before it is asked."""
        await self.settle(session, deadline)
        if session is not self._session:
            self._session = session
            self._baselines.clear()
            self._latest.clear()
            self._configurations.clear()
        if self.crosses_files:
            await self.tree.sweep()
        else:
            self._look_at_configurations(paths)
        events = self.tree.events_since(session.disk_revision)
        session.disk_revision = self.tree.revision
        if events is None:
            session.connection.end("more files changed at once than are told one by one")
            raise ServerGoneError("more files changed at once than are told one by one")
        if events:
            await self._tell(session, events)

    def _look_at_configurations(self, paths: Sequence[str]) -> None:
        """A linter of single files needs no sweep: what matters beside the text is its configuration."""
        found: set[Path] = set()
        for directory in {path.rpartition("/")[0] for path in paths}:
            file = nearest(self.tree.root, f"{directory}/_" if directory else "_", self.spec.config_files)
            if file is not None:
                found.add(file)
        known = self._configurations
        fresh = {file: signature_of(file) for file in found | set(known)}
        changed = [file for file, signature in fresh.items() if file in known and known[file] != signature]
        self._configurations = fresh
        if changed:
            self.tree.note(FileEvent(file.relative_to(self.tree.root).as_posix(), "changed") for file in changed)
            self.epoch += 1

    async def _tell(self, session: Session, events: Sequence[FileEvent]) -> None:
        for event in events:
            if event.path not in session.documents:
                continue
            text = self.tree.read(event.path) if event.kind != "deleted" else None
            if text is None:
                session.close(event.path)
            else:
                session.sync(event.path, text)
        session.watched(events)
        if self.crosses_files:
            self.graph.forget()
        relevant = [event for event in events if self._matters(event)]
        if relevant:
            await self._advance(session, relevant)

    def _matters(self, event: FileEvent) -> bool:
        name = event.path.rpartition("/")[2]
        if name in self._configuration_names:
            return True
        return self.handles(event.path) and (self.crosses_files or event.kind != "changed")

    async def _advance(self, session: Session, events: Sequence[FileEvent]) -> None:
        """A new epoch of the disk. What is known to hold in it is carried over; everything else is asked again.

        Two things hold: where the disk became exactly a state that was judged already, that state's answers; and,
        for a language whose import lines show every dependence, the answers about files that do not import what
        changed over any number of steps.
        """
        old, self.epoch = self.epoch, self.epoch + 1
        changed = {event.path for event in events}
        if any(event.kind != "changed" or not self.handles(event.path) for event in events):
            return
        carried: dict[str, Judged] = {}
        if self.spec.dependents == "references":
            await self.graph.refresh()
            touched = changed.union(self.graph.closure(changed))
            before = self._baselines.of((session.generation, old, frozenset()))
            carried = {path: judged for path, judged in before.items() if path not in touched}
        if len(changed) <= CARRIED_FILES:
            carried.update(self._landed(session, old, changed))
        if carried:
            self._baselines.remember((session.generation, self.epoch, frozenset()), carried)

    def _landed(self, session: Session, old: int, changed: Iterable[str]) -> Mapping[str, Judged]:
        """The answers of the state in which exactly these files had the texts that the disk has now."""
        texts = {path: self.tree.read(path) for path in changed}
        over = frozenset((path, _digest(text)) for path, text in texts.items() if text is not None)
        return self._baselines.of((session.generation, old, over)) if len(over) == len(texts) else {}

    # -- states

    def _key(self, session: Session, state: State, path: str) -> StateKey:
        if self.crosses_files:
            return (session.generation, self.epoch, state.signature)
        text = state.text(path, self.tree)
        return (session.generation, self.epoch, frozenset({(path, _digest(text or ""))}))

    def _known(self, session: Session, state: State, path: str) -> Judged | None:
        return self._baselines.of(self._key(session, state, path)).get(path)

    def _remember(self, session: Session, state: State, path: str, judged: Judged) -> None:
        self._baselines.remember(self._key(session, state, path), {path: judged})

    async def settle(self, session: Session, deadline: float) -> None:
        """Wait until nothing is being computed for an earlier question; raises EngineBusyError at the deadline.

        A change that comes while a server computes may leave it with answers about neither state.
        """
        if not await session.connection.settled(deadline):
            raise EngineBusyError("the engine still worked on an earlier question at the deadline")
        if session.owed:
            owed, session.owed = session.owed, {}
            self.put_back(session, owed)

    async def lay(self, session: Session, state: State, targets: Iterable[str], deadline: float) -> None:
        """Make the server see a state; `targets` are opened where this server judges open documents only."""
        await self.settle(session, deadline)
        for path in list(session.documents):
            if path not in state.overlays and not self._restore(session, state, path):
                session.close(path)
        for path in targets:
            closed = self.spec.judges_closed and not self.is_stranger(path)
            if not closed and path not in state.overlays and (text := state.text(path, self.tree)) is not None:
                session.sync(path, text)
        for path, text in state.overlays.items():
            # First what the disk holds: a server that first sees a file with other text may not re-judge importers.
            if path not in session.documents and (known := state.disk.get(path)) is not None:
                session.sync(path, known)
            session.sync(path, text)

    def _restore(self, session: Session, state: State, path: str) -> bool:
        known = state.disk.get(path) if path in state.disk else session.documents[path].text
        if known is None or path in state.deleted:
            return False
        session.sync(path, known)
        return True

    def put_back(self, session: Session, disk: Mapping[str, str | None]) -> None:
        """Make the server see the disk again, and keep few documents open."""
        if not session.alive:
            return
        if session.connection.unsettled:
            session.owed.update(disk)
            return
        for path in list(session.documents):
            if path not in disk:
                continue
            text = disk[path]
            if text is None:
                session.close(path)
            else:
                session.sync(path, text)
        for path in list(session.documents)[:-DOCUMENTS_KEPT_OPEN]:
            session.close(path)

    def known(self, session: Session, state: State, paths: Iterable[str]) -> Answers:
        """What was already said about these files in this very state."""
        found = ((path, self._known(session, state, path)) for path in paths)
        return Answers({path: judged for path, judged in found if judged is not None})

    def unknown(self, session: Session) -> list[str]:
        """The project's files about which nothing is known as the disk is now."""
        files = self.tree.with_extensions(self.extensions)[: self.spec.dependents_limit]
        known = self.known(session, ON_DISK, files).judged
        return [path for path in files if path not in known]

    async def judge(
        self, session: Session, state: State, paths: Sequence[str], deadline: float, *, at_once: int
    ) -> Answers:
        """Judge files of a state that was laid; known answers are taken, at most `at_once` pulls are under way."""
        answers = self.known(session, state, paths)
        to_ask = [path for path in paths if path not in answers.judged]
        if time.monotonic() >= deadline:
            answers.unjudged.update(dict.fromkeys(to_ask, TOO_LATE))
            return answers
        if self.spec.sticky_findings:
            await self._renew(session, state, to_ask, deadline)
        if len(to_ask) == 1 or at_once == 1:
            await self._ask_in_turn(session, state, to_ask, deadline, answers)
            return answers
        places = asyncio.Semaphore(at_once)

        async def ask(path: str) -> None:
            async with places:
                await self._ask(session, state, path, deadline, answers)

        try:
            async with asyncio.TaskGroup() as group:
                for path in to_ask:
                    group.create_task(ask(path))
        except BaseExceptionGroup as failures:
            # A server that dies ends every question at once, and its caller knows what to do about one such error.
            raise failures.exceptions[0] from None
        return answers

    async def _ask_in_turn(
        self, session: Session, state: State, paths: Sequence[str], deadline: float, answers: Answers
    ) -> None:
        """One after the other. While there is much time, a file may take half of what is left, so that one that is
        never answered does not cost the others theirs; it is asked again only when no other was answered either,
        which is how a server looks that is still indexing.
        """
        late: list[str] = []
        answered = False
        for index, path in enumerate(paths):
            left = deadline - time.monotonic()
            shared = left > SHARED_ABOVE_S and index < len(paths) - 1
            await self._ask(session, state, path, deadline - left / 2 if shared else deadline, answers)
            if path in answers.judged:
                answered = True
            elif shared:
                late.append(path)
        for path in () if answered else late:
            await self._ask(session, state, path, deadline, answers)

    async def _renew(self, session: Session, state: State, paths: Sequence[str], deadline: float) -> None:
        """Have files read anew that may carry findings of texts which are gone; all at once, before any is asked."""
        stale = [path for path in paths if session.residue.may_remain(path)]
        if not stale:
            return
        await self.settle(session, deadline)
        for path in stale:
            text = state.text(path, self.tree)
            if text is not None:
                session.renew(path, text)

    async def _ask(self, session: Session, state: State, path: str, deadline: float, answers: Answers) -> None:
        now = time.monotonic()
        if now >= deadline:
            answers.unjudged[path] = TOO_LATE
            return
        stranger = self.crosses_files and self.is_stranger(path) and path not in state.overlays
        if stranger:
            deadline = min(deadline, now + STRANGER_LIMIT_S)
        answer = await judge_file(
            session, path, lambda: state.text(path, self.tree), deadline=deadline, known=self._latest.get(path)
        )
        if isinstance(answer, Judged) and stranger and not answer.findings and in_skipped_directory(path):
            answer = Unjudged("the engine reports nothing of it and may leave it out")
        if isinstance(answer, Judged):
            answers.judged[path] = answer
            answers.unjudged.pop(path, None)
            self._remember(session, state, path, answer)
            if answer.result_ids:
                self._latest[path] = answer
        elif stranger:
            answers.unjudged[path] = replace(answer, reason=f"{answer.reason}; {NO_PART}")
        else:
            answers.unjudged[path] = answer


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

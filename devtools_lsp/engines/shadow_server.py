"""A second server of an engine over a shadow copy, for plans that create, delete or move files.

A language server takes the existence of files from the disk: no message of the protocol makes it believe that a
file is gone. Where a second server is cheap the plan is carried out in a copy and judged there, in all project
files. Owns that server and its copy, one plan at a time; paths are the same in both, so nothing needs mapping.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from devtools_lsp.core.delta import Comparison
from devtools_lsp.engines.comparing import Question, Side, comparison_of
from devtools_lsp.engines.judging import ON_DISK, PULLS_AT_ONCE, Answers, Judge, State
from devtools_lsp.engines.server import LanguageServer
from devtools_lsp.engines.session import Session
from devtools_lsp.engines.shadow import Shadow
from devtools_lsp.engines.tree import ProjectTree


class ShadowServer:
    """Made at the first plan that needs it. Its server stops when idle, like any other."""

    def __init__(self, project: Judge, shadow: Shadow, judge: Judge, server: LanguageServer) -> None:
        self._project = project
        self._shadow = shadow
        self._judge = judge
        self.server = server

    @classmethod
    async def create(cls, project: Judge, serve: Callable[[ProjectTree], LanguageServer]) -> ShadowServer:
        """An empty copy and a server over it, neither filled nor started yet."""
        shadow = await asyncio.to_thread(Shadow, project.spec.id)
        tree = ProjectTree(shadow.root)
        return cls(project, shadow, Judge(project.spec, tree), serve(tree))

    async def close(self) -> None:
        """Stop the server and remove the copy."""
        await self.server.close()
        await asyncio.to_thread(self._shadow.close)

    async def compare(self, question: Question, deadline: float) -> Comparison:
        """Before and after over the whole project; what `LanguageServer.lease` raises."""
        async with self.server.lease(deadline) as session:
            before = Side(self._project.state(question.acquired, question.disk), [])
            after = Side(self._project.state(question.texts, question.disk), [])
            await self._ask(session, before, question.acquired, deadline)
            await self._ask(session, after, question.texts, deadline)
            return comparison_of(before, after, [], {})

    async def judge(
        self, texts: Mapping[str, str], disk: Mapping[str, str | None], paths: Sequence[str], deadline: float
    ) -> Answers:
        """What is said about some files in one state; what `LanguageServer.lease` raises."""
        async with self.server.lease(deadline) as session:
            await self._lay(session, self._project.state(texts, disk), texts, deadline)
            return await self._judge.judge(session, ON_DISK, paths, deadline, at_once=PULLS_AT_ONCE)

    async def _ask(self, session: Session, side: Side, texts: Mapping[str, str], deadline: float) -> None:
        await self._lay(session, side.state, texts, deadline)
        side.targets = self._judge.tree.with_extensions(self._judge.extensions)
        side.add(await self._judge.judge(session, ON_DISK, side.targets, deadline, at_once=PULLS_AT_ONCE))

    async def _lay(self, session: Session, state: State, texts: Mapping[str, str], deadline: float) -> None:
        # Everything that the plan holds goes in, also what this engine does not judge: configuration, data, stubs.
        overlays = {path: text for path, text in texts.items() if state.disk.get(path) != text}
        deleted = {path for path in state.disk if path not in texts}
        await self._project.tree.sweep()
        await asyncio.to_thread(self._shadow.lay, self._project.tree, overlays, deleted)
        await self._judge.catch_up(session, (), deadline)

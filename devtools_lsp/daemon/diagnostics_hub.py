"""Published diagnostics: engines' findings and approvals' marks, merged by file, in each editor's own terms (8.0.7).

Owns what every editor is shown about every file, and that it belongs to the bytes it is shown on (I14): findings
of a text that an editor does not have are not shown there. What the findings are, the engines say; what a mark
means, `daemon/approval_marks.py` does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.daemon.buffers import EditorBuffers
from devtools_lsp.daemon.diagnostics_page import Mark, OnDisk, Page, Sink, read_page
from devtools_lsp.daemon.disk import Disk
from devtools_lsp.daemon.findings import Findings, Judgement
from devtools_lsp.daemon.lsp_rim import LspDiagnostic, PositionEncoding
from devtools_lsp.ports import Clock
from devtools_lsp.wire.framing import FrameTooLargeError

_log = logging.getLogger(__name__)

PublishMode = Literal["agent", "open", "off"]

REJUDGE_AFTER_S = 0.3
"""How long after a change a file is judged again, or cleared."""
REJUDGE_AT_LATEST_S = 1.0
"""How long a file that keeps changing is left alone."""
JUDGE_BOUND_S = 30.0
MAX_REJUDGED = 200
"""With more files due at once (a branch was switched), the others are cleared until somebody judges them."""


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """Files to judge again: `texts` gives unsaved text, None for what is on disk. `engines` None means all."""

    texts: Mapping[str, str | None]
    engines: frozenset[str] | None


Judge = Callable[[JudgeRequest], Awaitable[Sequence[Judgement]]]
"""Judges files without a plan of any agent; reading engines only, nothing is written."""


@dataclass(slots=True)
class _Due:
    at: float
    at_latest: float


class DiagnosticsHub:
    """Merges, publishes, clears. Everything is called on the event loop; files are read in threads."""

    def __init__(
        self,
        disk: Disk,
        buffers: EditorBuffers,
        clock: Clock,
        *,
        publish: PublishMode = "agent",
        judge: Judge | None = None,
    ) -> None:
        self._disk = disk
        self._buffers = buffers
        self._clock = clock
        self._mode: PublishMode = publish
        self._judge = judge
        self._findings = Findings()
        self._marks: dict[str, dict[str, Mark]] = {}
        self._sinks: dict[Sink, set[str]] = {}
        self._versions: dict[str, int] = {}
        self._stale: dict[str, None] = {}
        self._news = False
        self._publishing: asyncio.Task[None] | None = None
        self._due: dict[str, _Due] = {}
        self._rejudging: asyncio.Task[None] | None = None
        self._closed = False

    # -- what is known -------------------------------------------------------------------------------------------

    def configure(self, publish: PublishMode, judge: Judge | None = None) -> None:
        """Another mode from here on; `judge` replaces the hook when given."""
        self._judge = judge or self._judge
        if publish == self._mode:
            return
        self._mode = publish
        self._republish(self._findings.paths())
        if publish == "open":
            for path in self._buffers.open_paths():
                self._schedule(path)

    def judged(self, engine_id: str, step: str, paths: Sequence[str], diagnostics: Sequence[Diagnostic]) -> None:
        """An agent's lint or check answered for `paths` as they are on disk; replaces its earlier answer."""
        self._take(Judgement(engine_id, step, tuple(paths), tuple(diagnostics)))

    def engine_gone(self, engine_id: str) -> None:
        """An engine was removed, or started anew: what it said before is forgotten."""
        self._republish(self._findings.drop_engine(engine_id))

    def files_changed(self, paths: Sequence[str]) -> None:
        """Files or directories changed on disk: what is gone is cleared now, what is left is judged again soon."""
        for path in self._findings.below(paths):
            if self._disk.is_file(path):
                self._schedule(path)
            else:
                self.files_removed([path])
        for path in paths:
            if self._mode == "open" and self._buffers.is_open(path):
                self._schedule(path)
            if path in self._marks:
                self._republish([path])

    def files_removed(self, paths: Sequence[str]) -> None:
        """Files were deleted or moved away: cleared at once."""
        for path in paths:
            self._due.pop(path, None)
        self._republish(self._findings.drop(paths))

    def buffer_changed(self, path: str) -> None:
        """Some editor opened, changed or closed it."""
        if self._findings.of(path) or (self._mode == "open" and self._buffers.is_open(path)):
            self._schedule(path)
        elif path in self._marks:
            self._republish([path])

    def mark(self, owner: str, marks: Mapping[str, Mark]) -> None:
        """Show marks, by path, in place of those that the owner had before."""
        self.unmark(owner, republish=False)
        for path, mark in marks.items():
            self._marks.setdefault(path, {})[owner] = mark
        self._republish(marks)

    def unmark(self, owner: str, *, republish: bool = True) -> None:
        """Take an owner's marks away."""
        touched = [path for path, marks in self._marks.items() if marks.pop(owner, None) is not None]
        for path in touched:
            if not self._marks[path]:
                del self._marks[path]
        if republish:
            self._republish(touched)

    def marks_on(self, path: str) -> dict[str, Mark]:
        """The marks of a file, by owner."""
        return dict(self._marks.get(path, {}))

    # -- editors -------------------------------------------------------------------------------------------------

    def attach(self, sink: Sink) -> None:
        """Show an editor everything there is."""
        self._sinks[sink] = set()
        self._republish([*self._findings.paths(), *self._marks])

    def detach(self, sink: Sink) -> None:
        """An editor is gone."""
        self._sinks.pop(sink, None)

    def opened(self, sink: Sink, path: str) -> None:
        """An editor has opened a file: it is told once more what there is, also that there is nothing.

        Some clients drop what was published while a file was closed, others keep what they showed before it was
        closed and opened again.
        """
        published = self._sinks.get(sink)
        if published is not None and not sink.pulls:
            published.add(path)
            self._publish_soon(path)

    def shown_paths(self) -> list[str]:
        """Every file with something to show."""
        return sorted({*self._findings.paths(), *self._marks})

    def version(self, path: str) -> str:
        """Changes whenever what is shown for a file may have changed: the result id of a pull."""
        return str(self._versions.get(path, 0))

    async def pull(self, sink: Sink, path: str) -> list[LspDiagnostic]:
        """What an editor that pulls is shown for a file now."""
        return (await self._page(path)).diagnostics(sink)

    async def settled(self) -> None:
        """Return when everything known so far was published."""
        while self._publishing is not None:
            await asyncio.shield(self._publishing)

    async def close(self) -> None:
        """Stop; nothing is published any more."""
        self._closed = True
        tasks = [task for task in (self._publishing, self._rejudging) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- publishing ----------------------------------------------------------------------------------------------

    def _take(self, judgement: Judgement, digests: Mapping[str, bytes] | None = None) -> None:
        if self._mode == "off":
            return
        for path in judgement.paths:
            # Judged just now, so that an earlier change is no reason to judge it again.
            if digests is None:
                self._due.pop(path, None)
        self._republish(self._findings.judged(judgement, digests))

    def _republish(self, paths: Iterable[str]) -> None:
        for path in sorted(paths):
            self._versions[path] = self._versions.get(path, 0) + 1
            self._news = True
            self._publish_soon(path)

    def _publish_soon(self, path: str) -> None:
        self._stale[path] = None
        if self._publishing is None and not self._closed:
            self._publishing = asyncio.get_running_loop().create_task(self._publish_all())

    async def _publish_all(self) -> None:
        try:
            # What becomes known in one turn of the loop is published together.
            await asyncio.sleep(0)
            while self._stale:
                path = next(iter(self._stale))
                del self._stale[path]
                try:
                    self._publish(await self._page(path))
                except Exception:
                    _log.exception("the diagnostics of %s could not be published", path)
                await asyncio.sleep(0)
            if self._news:
                self._news = False
                for sink in list(self._sinks):
                    if sink.pulls:
                        sink.refresh()
        finally:
            self._publishing = None

    async def _page(self, path: str) -> Page:
        on_disk = OnDisk()
        if self._findings.of(path) or path in self._marks:
            encodings: set[PositionEncoding] = {sink.encoding for sink in self._sinks}
            on_disk = await asyncio.to_thread(read_page, self._disk, path, encodings)
            await self._buffers.settle(path)
        held = self._findings.of(path)
        if on_disk.digest is not None:
            for entry in held:
                entry.digest = entry.digest or on_disk.digest
        marks = list(self._marks.get(path, {}).values())
        return Page(path, on_disk, [] if self._mode == "off" else held, marks, self._buffers)

    def _publish(self, page: Page) -> None:
        for sink, published in list(self._sinks.items()):
            if sink.pulls:
                continue
            payload, some = page.payload(sink)
            if not some and page.path not in published:
                continue
            try:
                sink.send(payload)
            except FrameTooLargeError:
                sink.send(page.cut(sink))
            (published.add if some else published.discard)(page.path)

    # -- judging again -------------------------------------------------------------------------------------------

    def _schedule(self, path: str) -> None:
        now = self._clock.monotonic()
        known = self._due.get(path)
        at_latest = known.at_latest if known is not None else now + REJUDGE_AT_LATEST_S
        self._due[path] = _Due(min(now + REJUDGE_AFTER_S, at_latest), at_latest)
        if self._rejudging is None and not self._closed:
            self._rejudging = asyncio.get_running_loop().create_task(self._rejudge_all())

    async def _rejudge_all(self) -> None:
        try:
            while self._due:
                now = self._clock.monotonic()
                ready = [path for path, due in self._due.items() if due.at <= now]
                if not ready:
                    await self._clock.sleep(max(0.0, min(due.at for due in self._due.values()) - now))
                    continue
                for path in ready:
                    del self._due[path]
                try:
                    await self._rejudge(ready)
                except Exception:
                    _log.exception("judging %d changed files again failed; their findings are cleared", len(ready))
                    self._republish(self._findings.drop(ready))
        finally:
            self._rejudging = None

    async def _rejudge(self, paths: Sequence[str]) -> None:
        """Judge what is not what was judged, and clear what cannot be; show the others where they stand now."""
        texts: dict[str, str | None] = {}
        digests: dict[str, bytes] = {}
        for path in paths:
            on_disk = await asyncio.to_thread(read_page, self._disk, path)
            await self._buffers.settle(path)
            unsaved = self._buffers.unsaved(path, on_disk.digest)
            digest = unsaved.digest if unsaved is not None else on_disk.digest
            if digest is None:
                self._republish(self._findings.drop([path]))
                continue
            held = self._findings.of(path)
            # Findings whose text was not read yet are of what is on disk.
            if unsaved is None:
                changed = any(entry.digest not in (None, digest) for entry in held)
            else:
                changed = any(entry.digest != digest for entry in held)
            if changed or (not held and self._mode == "open"):
                texts[path] = unsaved.text if unsaved is not None else None
                digests[path] = digest
            else:
                self._republish([path])
        if not texts:
            return
        for path in list(texts)[MAX_REJUDGED:]:
            del texts[path]
            self._republish(self._findings.drop([path]))
        engines = frozenset[str]().union(*(self._findings.engines(path) for path in texts))
        answers = await self._ask_judge(JudgeRequest(texts, None if self._mode == "open" else engines))
        cleared = self._findings.drop(texts)
        for answer in answers:
            self._take(answer, digests)
        self._republish(cleared)

    async def _ask_judge(self, request: JudgeRequest) -> Sequence[Judgement]:
        if self._judge is None:
            return ()
        try:
            async with asyncio.timeout(JUDGE_BOUND_S):
                return await self._judge(request)
        except TimeoutError:
            _log.warning("judging %d changed files again took too long; they are cleared", len(request.texts))
            return ()

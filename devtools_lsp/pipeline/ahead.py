"""What is told of a plan once it has landed, worked out beforehand: which lines changed, and how many.

A commit waits for the disk in a thread, and the loop has nothing else to do for that call. From the commit on nothing
may wait, so what is heavy is worked out before it, in a thread as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from devtools_lsp.pipeline.off_loop import SMALL
from devtools_lsp.pipeline.proposal import Proposed
from devtools_lsp.ports import LandedFile, LineCounter


class Ahead:
    """The announcement and the line counts of the entries of one write plan, and whatever `then` works out of them."""

    def __init__(
        self,
        entries: Sequence[Proposed],
        counter: LineCounter | None,
        *,
        announced: bool,
        then: Callable[[], None] | None = None,
    ) -> None:
        self._entries = entries
        self._counter = counter
        self._announced = announced
        self._then = then
        self._files: list[LandedFile] | None = None
        self._counts: dict[str, tuple[str, str, tuple[int, int]]] = {}
        weight = 0
        for entry in entries:
            weight += len(entry.before.text) if entry.before is not None else 0
            weight += len(entry.after.text) if entry.after is not None else 0
        self.light = weight <= SMALL
        """Whether `work` is short enough for the loop."""

    async def begin(self) -> None:
        """Work out what is heavy now, in a thread; what is light waits for `work`."""
        if self._announced and not self.light:
            self._files = await asyncio.to_thread(self._find)

    def work(self) -> None:
        """Work out what is light: for a moment in which the disk is waited for, since it may fail to come."""
        if self._announced:
            self.files()
        if self._counter is not None:
            for entry in self._entries:
                old, new = (side.text if side else "" for side in (entry.before, entry.after))
                self._counts[entry.path] = (old, new, self._counter(old, new))
        if self._then is not None:
            self._then()

    def files(self) -> list[LandedFile]:
        """What is announced."""
        if self._files is None:
            self._files = self._find()
        return self._files

    def counts(self, path: str, old: str, new: str) -> tuple[int, int] | None:
        """How many lines (added, removed) turn `old` into `new`; None when that was not counted for these texts."""
        known = self._counts.get(path)
        return known[2] if known is not None and known[0] is old and known[1] is new else None

    def _find(self) -> list[LandedFile]:
        return [entry.to_landed_file() for entry in self._entries]

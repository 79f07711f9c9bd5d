"""Findings that outlive the text they were made for, in servers that keep them.

pyright and basedpyright note findings about a file as soon as some other file's judgement looks into it, and hand them
out with the first judgement of that file, even if the text that caused them is gone by then: a wrong name in
`style.py` that was never written is reported in `segment.py` later. Only a judgement, or a new text, empties the note.

Owns the bookkeeping of which files may carry such a note. Pure; times are counts of changes told to one server.
"""

from __future__ import annotations


class Residue:
    """The bookkeeping for one server process."""

    def __init__(self) -> None:
        self._now = 0
        self._asked: int | None = None
        self._asked_before: int | None = None
        self._emptied: dict[str, int] = {}

    def changed(self) -> None:
        """The server was told of a change of any text."""
        self._now += 1

    def asked(self) -> None:
        """The server was asked something that makes it look into files."""
        if self._asked != self._now:
            self._asked_before, self._asked = self._asked, self._now

    def emptied(self, path: str) -> None:
        """A file was judged, or has a new text."""
        self._emptied[path] = self._now

    def may_remain(self, path: str) -> bool:
        """Whether a file may carry a note from a state before this one."""
        earlier = self._asked if self._asked is not None and self._asked < self._now else self._asked_before
        return earlier is not None and self._emptied.get(path, -1) < earlier

"""What each session has read: the memory behind `edit_file`'s and `write_file`'s refusals (SPEC 7.6).

A session is a connection, or a name that outlives it. A connection's ends with it. Memory is bounded; a file that was
forgotten counts as unread.
"""

from __future__ import annotations

import difflib
from collections import OrderedDict
from dataclasses import dataclass, field

from devtools_lsp.core.workspace import DiskFile, Workspace
from devtools_lsp.errors import ConflictError, NotReadError
from devtools_lsp.text import split_lines

MAX_SESSIONS = 200
MAX_CHARACTERS = 64 * 1024 * 1024
"""Of remembered text over all sessions."""
SHOWN_LINES = 40


@dataclass(slots=True)
class _Session:
    seen: OrderedDict[str, DiskFile] = field(default_factory=OrderedDict[str, DiskFile])


class SessionMemory:
    """Remembers, by session and path, the content last read or written."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._characters = 0

    def seen(self, session: str, path: str) -> DiskFile | None:
        """What the session last saw of a file; None when it never did, or when it was forgotten."""
        known = self._sessions.get(session)
        return known.seen.get(path) if known is not None else None

    def remember(self, session: str, path: str, content: DiskFile | None) -> None:
        """The session has seen this; None forgets it."""
        known = self._sessions.setdefault(session, _Session())
        self._sessions.move_to_end(session)
        earlier = known.seen.pop(path, None)
        if earlier is not None:
            self._characters -= len(earlier.content.text)
        if content is not None:
            known.seen[path] = content
            self._characters += len(content.content.text)
        while len(self._sessions) > MAX_SESSIONS or self._characters > MAX_CHARACTERS:
            self._forget_oldest()

    def forget(self, session: str) -> None:
        """The session is over and nobody can take it up again."""
        known = self._sessions.pop(session, None)
        if known is not None:
            self._characters -= sum(len(content.content.text) for content in known.seen.values())

    def _forget_oldest(self) -> None:
        name, oldest = next(iter(self._sessions.items()))
        if oldest.seen and self._characters > MAX_CHARACTERS:
            _, content = oldest.seen.popitem(last=False)
            self._characters -= len(content.content.text)
        if not oldest.seen or len(self._sessions) > MAX_SESSIONS:
            del self._sessions[name]
            self._characters -= sum(len(content.content.text) for content in oldest.seen.values())


@dataclass(slots=True)
class SessionWitness:
    """Compares what one plan acquired of one file with what its session saw, and remembers what became of it.

    `refuse_changed`: a file that changed since is a conflict (write_file); else `changed` says so (edit_file).
    """

    memory: SessionMemory
    session: str
    path: str
    refuse_changed: bool = False
    changed: bool = False
    _found: DiskFile | None = None

    def acquired(self, workspace: Workspace) -> None:
        """Judge the file as acquisition found it; raises ConflictError when it changed and that is refused."""
        seen = self.memory.seen(self.session, self.path)
        self._found = workspace.disk.get(self.path)
        # Content decides, never a time stamp.
        self.changed = seen is not None and self._found is not None and self._found.sha256 != seen.sha256
        if self.changed and self.refuse_changed:
            raise self.conflict()

    def finished(self, workspace: Workspace) -> None:
        """Remember the file as it is on disk now."""
        self.memory.remember(self.session, self.path, workspace.disk.get(self.path))

    def conflict(self) -> ConflictError:
        """The refusal that shows what changed since the session read the file."""
        seen = self.memory.seen(self.session, self.path)
        assert seen is not None
        assert self._found is not None
        return ConflictError(
            f"{self.path} was changed by someone else since this session read it. What changed:\n"
            f"{_difference(seen.content.text, self._found.content.text)}\nRead it again and decide anew",
            reason="stale",
            path=self.path,
            paths=[self.path],
        )


def require_seen(memory: SessionMemory, session: str, path: str) -> None:
    """Raise NotReadError for a file that the session has not read."""
    if memory.seen(session, path) is None:
        raise NotReadError(
            f"edit_file: this session has not read {path}; call read_file on it first", step="edit", path=path
        )


def _difference(old: str, new: str) -> str:
    lines = list(
        difflib.unified_diff(split_lines(old)[:5000], split_lines(new)[:5000], "as read", "now", lineterm="", n=1)
    )
    shown = "\n".join(lines[:SHOWN_LINES])
    return shown + (f"\n… {len(lines) - SHOWN_LINES} more lines" if len(lines) > SHOWN_LINES else "")

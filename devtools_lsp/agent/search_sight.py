"""What a search program printed, looked at again before it is shown.

A program opens names one after the other, so that a directory which turns into a link meanwhile leads it out of the
workspace. The workspace's own file system cannot be led out: what it does not find again at that name is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from devtools_lsp.agent.search_output import MatchedLine
from devtools_lsp.pipeline.parts import PipelineParts
from devtools_lsp.ports import BatchFileSystem, FileStat, batching
from devtools_lsp.text import NotTextError, decode

_FILES_AT_FIRST = 16
_FILES_AT_MOST = 64
"""Contents held at a time, each of at most what a search reads of a file; many only after small ones."""

_SMALL_BYTES = 1024 * 1024


class Sight(Protocol):
    """The workspace as its own file system sees it."""

    async def contents(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """The bytes of those of the root-relative paths that may be read."""
        ...

    async def standing(self, paths: Sequence[str]) -> frozenset[str]:
        """Those of the root-relative paths at which something is."""
        ...


class WorkspaceSight:
    """Sight through a pipeline's file system, which must be able to look at many files in one go."""

    def __init__(self, parts: PipelineParts, file_system: BatchFileSystem) -> None:
        self._file_system = file_system
        self._translate = parts.translator.to_adapter

    @classmethod
    def of(cls, parts: PipelineParts) -> WorkspaceSight | None:
        """None for a file system that cannot; nobody searches its files with a program of the host."""
        file_system = batching(parts.file_system)
        return cls(parts, file_system) if file_system is not None else None

    async def contents(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """See `Sight`."""
        found = await self._file_system.read_many([self._translate(path) for path in paths])
        known = {path: found[self._translate(path)] for path in paths}
        return {path: data for path, data in known.items() if isinstance(data, bytes)}

    async def standing(self, paths: Sequence[str]) -> frozenset[str]:
        """See `Sight`."""
        found = await self._file_system.stat_many([self._translate(path) for path in paths])
        return frozenset(path for path in paths if isinstance(found[self._translate(path)], FileStat))


async def confirmed(sight: Sight, found: Sequence[tuple[str, MatchedLine]]) -> list[tuple[str, MatchedLine]]:
    """Those of the matches whose line is in the file of that name now."""
    kept: list[tuple[str, MatchedLine]] = []
    by_name: dict[str, list[MatchedLine]] = {}
    for name, match in found:
        by_name.setdefault(name, []).append(match)
    names = list(by_name)
    start, size = 0, _FILES_AT_FIRST
    while start < len(names):
        contents = await sight.contents(names[start : start + size])
        for name in names[start : start + size]:
            if name in contents:
                kept += [(name, match) for match in by_name[name] if _holds(contents[name], match.text)]
        start += size
        size = _FILES_AT_MOST if sum(map(len, contents.values())) < _SMALL_BYTES else _FILES_AT_FIRST
    return kept


def _holds(data: bytes, line: bytes) -> bool:
    """Whether a file holds a line as the program printed it, which is UTF-8 whatever the file's encoding."""
    if line in data:
        return True
    try:
        return line.decode("utf-8", "replace") in decode(data)[0]
    except NotTextError:
        return False

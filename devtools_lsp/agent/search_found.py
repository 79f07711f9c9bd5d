"""What a search has found so far: lines by file, or the first paths, and whether either may be shown.

Judges every path once, since a total must not count what policy denies, and looks at the lines themselves only when
they are shown. Owns the caps on what is kept.
"""

from __future__ import annotations

from pathlib import Path

from devtools_lsp.agent.search_output import BinaryFile, MatchedLine, Skipped, SkipReason, take_files, take_matches
from devtools_lsp.agent.search_place import Deny, Place
from devtools_lsp.agent.search_rules import SNIFFED_BYTES, ForeignTrees, Glob, nfc

COLLECTED_PER_SHOWN = 25
"""So many times the cap is collected before a search is stopped, so that what is shown is the first by path."""


class Judge:
    """Decides whether a path that a program printed may be shown, and counts what cannot be."""

    def __init__(self, place: Place, deny: Deny | None) -> None:
        self._deny = deny
        self._trees = ForeignTrees(Path(place.root))
        self._in_foreign_tree = self._trees.holds(place.base)
        self.foreign = 0
        self.unnameable = 0

    def shown(self, names: list[str]) -> list[str]:
        """Those of some files that may be shown; ask once for each."""
        if not self._in_foreign_tree:
            directories = {name.rpartition("/")[0] for name in names}
            foreign = {directory for directory in directories if self._trees.holds(directory)}
            if foreign:
                ours = [name for name in names if name.rpartition("/")[0] not in foreign]
                self.foreign += len(names) - len(ours)
                names = ours
        deny = self._deny
        return names if deny is None else [name for name in names if not deny(name)]

    def denies(self, name: str) -> bool:
        """Whether policy keeps the very existence of a file from being told."""
        return self._deny is not None and self._deny(name)


class FoundLines:
    """Matching lines by file, as they come."""

    def __init__(self, place: Place, judge: Judge, wanted: Glob | None, cap: int) -> None:
        """`wanted` filters files, `cap` is how many lines are going to be shown."""
        self._place = place
        self._judge = judge
        self._wanted = wanted
        self._most = cap * COLLECTED_PER_SHOWN
        self._buffer = bytearray()
        self._by_path: dict[bytes, list[bytes] | None] = {}
        self._by_name: dict[str, list[bytes]] = {}
        self.total = 0
        self.skipped = Skipped(counts_at=self._counts)

    @property
    def files(self) -> int:
        """How many files match."""
        return len(self._by_name)

    def consume(self, data: bytes) -> bool:
        """More of what the program prints; False when there is enough."""
        self._buffer += data
        records, binary = take_matches(self._buffer)
        by_path = self._by_path
        self._decide([path for path in dict.fromkeys(path for path, _ in records) if path not in by_path])
        for path, printed in records:
            lines = by_path[path]
            if lines is not None:
                lines.append(printed)
                self.total += 1
        for file in binary:
            self._take_binary(file)
        return self.total <= self._most

    def first(self, count: int, max_line_bytes: int) -> list[tuple[str, MatchedLine]]:
        """So many lines in order of path and line, each with so many bytes of its text."""
        shown: list[tuple[str, MatchedLine]] = []
        for name in sorted(self._by_name):
            lines = [
                MatchedLine.parse(printed, max_line_bytes) for printed in self._by_name[name][: count - len(shown)]
            ]
            shown += [(name, line) for line in lines]
            if len(shown) >= count:
                break
        return shown

    def _take_binary(self, file: BinaryFile) -> None:
        name = file.path.decode("utf-8", "replace")[2:]
        if file.offset < SNIFFED_BYTES and name in self._by_name:
            # ripgrep prints the first line of a binary file where that matches, and no other.
            self.total -= len(self._by_name.pop(name))
        if file.matches:
            self.skipped.add("binary", name)

    def _decide(self, paths: list[bytes]) -> None:
        """Make room for the lines of those files that may be shown."""
        names: dict[str, bytes] = {}
        for path in paths:
            self._by_path[path] = None
            try:
                names[path[2:].decode("utf-8")] = path
            except UnicodeDecodeError:
                self._judge.unnameable += 1
        wanted = list(names) if self._wanted is None else [name for name in names if self._is_wanted(name)]
        for name in self._judge.shown(wanted):
            self._by_path[names[name]] = self._by_name[name] = []

    def _is_wanted(self, name: str) -> bool:
        wanted = self._wanted
        return wanted is None or wanted.matches(name) or wanted.matches(self._place.below_anchor(name))

    def _counts(self, reason: SkipReason, name: str) -> bool:
        # Which binary files are told of may depend on the pattern, which must not reveal what a denied one holds.
        return reason not in ("binary", "oversized") or (self._is_wanted(name) and not self._judge.denies(name))


class FoundPaths:
    """The first paths in order of their names, and how many there were: memory for the cap alone."""

    def __init__(self, place: Place, judge: Judge, wanted: Glob, cap: int) -> None:
        """`wanted` is what the part of a path below the base must match; a base that is a file was named itself."""
        self._judge = judge
        self._fullmatch = wanted.regex.fullmatch
        self._base = f"./{place.base}"
        self._below = len(f"{self._base}/") if place.base else len("./")
        self._cap = cap
        self._buffer = bytearray()
        self._kept: list[str] = []
        self.total = 0
        self.skipped = Skipped()

    def consume(self, data: bytes) -> bool:
        """More of what the program prints."""
        self._buffer += data
        printed = take_files(self._buffer)
        if not printed:
            return True
        texts = self._texts(printed)
        fullmatch, below, base = self._fullmatch, self._below, self._base
        if printed.isascii():
            names = [text[2:] for text in texts if fullmatch(text, below) or text == base]
        else:
            names = [text[2:] for text in texts if fullmatch(nfc(text[below:])) or text == base]
        shown = self._judge.shown(names)
        self.total += len(shown)
        self._kept += shown
        if len(self._kept) >= 4 * self._cap + 100:
            self._kept = self.first()
        return True

    def first(self) -> list[str]:
        """As many as the cap allows, sorted."""
        return sorted(self._kept)[: self._cap]

    def _texts(self, printed: bytes) -> list[str]:
        """The paths as text; those which are none, and match as far as they are read, are counted."""
        try:
            return printed.decode("utf-8").split("\0")
        except UnicodeDecodeError:
            pass
        texts: list[str] = []
        for path in printed.split(b"\0"):
            try:
                texts.append(path.decode("utf-8"))
            except UnicodeDecodeError:
                below = path.decode("utf-8", "surrogateescape")[self._below :]
                if self._fullmatch(nfc(below)) is not None:
                    self._judge.unnameable += 1
        return texts

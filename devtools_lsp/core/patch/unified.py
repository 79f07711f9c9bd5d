"""Unified and git diffs: headers, names and framing here, the hunks through the `unidiff` package.

`unidiff` reads hunks well once their frame is sound. What it does not hold for is repaired before it sees the
text: headers are recognized only outside a hunk whose counts are unfinished, names are unquoted (octal escapes)
and split correctly where they contain ` b/`, lines end at LF only, headers without numbers get their counts,
and everything malformed is refused with its line. Each file's hunks then pass through `PatchSet` under a neutral
name.

Refused by name, because a text patch cannot say them or this project would not carry them out: mode changes,
symbolic links, submodules, binary content, copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

from devtools_lsp.core.differing import shown
from devtools_lsp.core.patch.envelope import anchor_text
from devtools_lsp.core.patch.headers import HunkFrame, Section, names_of
from devtools_lsp.core.patch.malformed import malformed, open_ends
from devtools_lsp.core.patch.operations import (
    NO_NEWLINE,
    AddFile,
    DeleteFile,
    Operation,
    ParsedPatch,
    PatchHunk,
    PatchLine,
    UpdateFile,
)

_HUNK = re.compile(r"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@.*", re.DOTALL)
_LOOKS_NUMBERED = re.compile(r"@@ *-[0-9]")
_MODE = re.compile(r"(old|new|new file|deleted file) mode ([0-7]+)\s*")
_INDEX = re.compile(r"index [0-9a-f]+\.\.[0-9a-f]+(?: ([0-7]+))?\s*")
_BINARY = re.compile(r"(?:GIT binary patch|Binary files? .* (?:differ|has changed))\s*")
_BETWEEN = re.compile(r"(?:From|commit) [0-9a-f]{40}\b.*|Index: .*|Only in .*: .*|diff -.*")
"""What begins the prose between two files: a mail, a commit, or a line of svn, hg or diff itself."""

_SIGNATURE = re.compile(r"-- ?")
_VERSION = re.compile(r"[0-9]+\.[0-9]+.*")
_REGULAR_MODES = {"100644", "100664"}
_SPECIAL_MODES = {"120000": "a symbolic link", "160000": "a submodule"}


def is_unified(lines: Sequence[str]) -> bool:
    """Whether some line opens a file of a unified diff."""
    return any(
        line.startswith("diff --git ") or _opens_names(lines, index)
        for index, line in enumerate(lines)
        if line.startswith(("diff --git ", "--- "))
    )


def parse_unified(lines: Sequence[str], first_line: int) -> ParsedPatch:
    """Parse the lines of a diff; `first_line` is the number of the first one, for messages."""
    return ParsedPatch(tuple(_operation(section) for section in _Scanner(lines, first_line).sections()), "unified")


def _opens_names(lines: Sequence[str], index: int) -> bool:
    """Whether a `--- ` line is a header: only with its `+++ ` line below it."""
    return lines[index].startswith("--- ") and index + 1 < len(lines) and lines[index + 1].startswith("+++ ")


# -- framing -----------------------------------------------------------------------------------------------------


class _Scanner:
    """Cuts a diff into sections and hunks; knows at each line whether a header may stand there."""

    def __init__(self, lines: Sequence[str], first_line: int) -> None:
        self._lines = lines
        self._first = first_line
        self._at = 0

    def sections(self) -> Iterator[Section]:
        """The files in order. A section is complete when the next one opens."""
        section: Section | None = None
        anchors: tuple[str, ...] = ()
        free_text = True
        while self._at < len(self._lines):
            line, number = self._lines[self._at], self._first + self._at
            if line.startswith("diff --git "):
                if section is not None:
                    yield section
                section, free_text = Section(number, git_names=line.removeprefix("diff --git ")), False
            elif _opens_names(self._lines, self._at):
                if section is not None and (section.git_names is None or section.old_name is not None):
                    yield section
                    section = None
                section, free_text = section or Section(number), False
                section.old_name, section.new_name = line[4:], self._lines[self._at + 1][4:]
                self._at += 1
            elif line.startswith("@@"):
                if section is None or free_text:
                    raise malformed("a hunk stands before any '--- a/path' and '+++ b/path'", number)
                anchors = self._hunk(section, line, number, anchors)
                continue
            elif section is not None and not free_text:
                free_text = self._extended(section, line, number)
            elif _BINARY.fullmatch(line):
                raise malformed(
                    f"{shown(line)}: binary content is not supported in a patch; nothing was applied", number
                )
            elif line.startswith(("--- ", "+++ ")) and section is None and self._names_follow():
                raise malformed("'--- ' and '+++ ' lines must stand in pairs, the old name first", number)
            self._at += 1
        if section is None:
            raise malformed("the diff names no file ('--- a/path' and '+++ b/path')", self._first)
        yield section

    def _names_follow(self) -> bool:
        """Whether a lone header line is followed by a hunk, so that it cannot be prose."""
        return self._at + 1 < len(self._lines) and self._lines[self._at + 1].startswith("@@")

    def _extended(self, section: Section, line: str, number: int) -> bool:
        """A line outside hunks within a file's section; True when prose begins (the next mail, the signature)."""
        if not line.strip():
            return False
        mode = _MODE.fullmatch(line)
        index = _INDEX.fullmatch(line)
        if section.hunks:
            if self._prose_begins(line):
                return True
            if line.startswith("\\"):
                return False
            raise malformed(
                f"{shown(line)} lies outside any hunk: correct the counts of the @@ line above, or leave the line out",
                number,
            )
        if mode is not None:
            self._mode(section, mode.group(1), mode.group(2), number)
        elif index is not None:
            if index.group(1) in _SPECIAL_MODES:
                section.refuse(number, _SPECIAL_MODES[index.group(1)])
        elif _BINARY.fullmatch(line):
            section.refuse(number, "binary content")
            return True
        elif line.startswith(("rename from ", "copy from ")):
            section.rename_from = line.partition(" from ")[2]
        elif line.startswith(("rename to ", "copy to ")):
            section.rename_to = line.partition(" to ")[2]
            if line.startswith("copy"):
                section.refuse(number, "a copy of another file (add the new file with its content instead)")
        elif not line.startswith(("similarity index ", "dissimilarity index ")):
            if self._prose_begins(line):
                return True
            raise malformed(f"{shown(line)} is no line of a diff's header", number)
        return False

    def _prose_begins(self, line: str) -> bool:
        """Whether a line ends a file's part. What follows is skipped up to a header, so this is strict: a line of
        content without its sign must not take the rest of the patch with it.
        """
        return _BETWEEN.fullmatch(line) is not None or self._signs_off(line)

    def _signs_off(self, line: str) -> bool:
        """Whether this is the signature of a mail: two hyphens above the version of git."""
        following = self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""
        return _SIGNATURE.fullmatch(line) is not None and _VERSION.fullmatch(following) is not None

    def _mode(self, section: Section, kind: str, mode: str, number: int) -> None:
        section.added |= kind == "new file"
        section.deleted |= kind == "deleted file"
        if mode in _SPECIAL_MODES:
            section.refuse(number, _SPECIAL_MODES[mode])
        elif kind in ("old", "new"):
            section.refuse(
                number, "a mode change (leave the 'old mode' and 'new mode' lines out, change it with a command)"
            )
        elif kind == "new file" and mode not in _REGULAR_MODES:
            section.refuse(number, f"mode {mode} (use 'new file mode 100644', change it with a command)")

    def _hunk(self, section: Section, line: str, number: int, anchors: tuple[str, ...]) -> tuple[str, ...]:
        """Read one `@@` line and, unless only another `@@` line follows, its body; returns anchors still open."""
        self._at += 1
        header = _HUNK.fullmatch(line)
        if header is None:
            if _LOOKS_NUMBERED.match(line):
                raise malformed(f"{shown(line)} is not of the form '@@ -start,count +start,count @@'", number)
            text = anchor_text(line)
            anchors = (*anchors, text) if text is not None else anchors
            if self._at < len(self._lines) and self._lines[self._at].startswith("@@"):
                return anchors
            hunk = HunkFrame(number, None, anchors, body_line=self._first + self._at)
            self._uncounted(hunk)
        else:
            start, old_count, _, new_count = (int(group) if group else None for group in header.groups())
            hunk = HunkFrame(number, start, anchors, body_line=self._first + self._at)
            self._counted(hunk, 1 if old_count is None else old_count, 1 if new_count is None else new_count)
        self._open_ends(hunk)
        section.hunks.append(hunk)
        return ()

    def _counted(self, hunk: HunkFrame, old_count: int, new_count: int) -> None:
        old_left, new_left = old_count, new_count
        while old_left > 0 or new_left > 0:
            line = self._lines[self._at] if self._at < len(self._lines) else None
            sign = None if line is None else line[:1] or " "
            if line == "" and not (old_left and new_left):
                sign = None
            if line is None or sign is None or sign not in " +-\\":
                end = f"{shown(line)} follows" if line else "the patch ends"
                raise malformed(
                    f"the @@ line says {old_count} old and {new_count} new lines, but {end} after "
                    f"{old_count - old_left} and {new_count - new_left}: correct its counts, or write a bare '@@'",
                    hunk.line,
                )
            old_left -= sign in " -"
            new_left -= sign in " +"
            if old_left < 0 or new_left < 0:
                raise malformed(
                    f"{shown(line)} is more than the @@ line says ({old_count} old and {new_count} new lines): correct "
                    "its counts, or write a bare '@@'",
                    self._first + self._at,
                )
            hunk.body.append(line or " ")
            self._at += 1

    def _uncounted(self, hunk: HunkFrame) -> None:
        """The body of an `@@` without numbers goes on until something that only a header can be."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line[:1] not in ("", " ", "+", "-", "\\") or _opens_names(self._lines, self._at):
                break
            if self._signs_off(line):
                break
            hunk.body.append(line or " ")
            self._at += 1
        while hunk.body and hunk.body[-1] == " " and self._lines[self._at - 1] == "":
            hunk.body.pop()
            self._at -= 1

    def _open_ends(self, hunk: HunkFrame) -> None:
        """A `\\ No newline at end of file` below the last counted line belongs to the hunk."""
        if self._at < len(self._lines) and self._lines[self._at].startswith("\\"):
            hunk.body.append(self._lines[self._at])
            self._at += 1
        if not any(line[:1] != "\\" for line in hunk.body):
            raise malformed("the hunk has no lines", hunk.line)


# -- operations and hunks ----------------------------------------------------------------------------------------


def _operation(section: Section) -> Operation:
    old, new = names_of(section)
    if section.refusal is not None:
        line, what = section.refusal
        raise malformed(f"{new or old}: {what} is not supported in a patch; nothing was applied", line, path=new or old)
    hunks = tuple(_read_hunks(section))
    if old is None and new is not None:
        return AddFile(new, _added_text(section, hunks), line=section.line)
    if old is not None and new is None:
        if any(line.sign != "-" for hunk in hunks for line in hunk.lines):
            raise malformed(f"{old} is deleted, so every line of its hunk must start with '-'", section.line, path=old)
        return DeleteFile(old, hunks, line=section.line)
    if old is None or new is None:
        raise malformed("both names are /dev/null", section.line)
    if not hunks and old == new:
        raise malformed(f"{new} is named but nothing about it changes", section.line, path=new)
    return UpdateFile(old, hunks, new if new != old else None, line=section.line)


def _added_text(section: Section, hunks: Sequence[PatchHunk]) -> str:
    lines = [line for hunk in hunks for line in hunk.lines]
    if any(line.sign != "+" for line in lines):
        raise malformed("a new file's hunk has only lines that start with '+'", section.line)
    if not lines:
        return ""
    return "\n".join(line.text for line in lines) + ("" if hunks[-1].new_open else "\n")


def _read_hunks(section: Section) -> Iterator[PatchHunk]:
    """The section's hunks as `unidiff` reads them in their repaired frames."""
    if not section.hunks:
        return
    try:
        read = PatchSet(_repaired(section.hunks))[0]
    except UnidiffParseError as error:
        raise malformed(str(error).strip(), section.hunks[0].line) from error
    for frame, hunk in zip(section.hunks, read, strict=True):
        rows: list[PatchLine] = []
        marks: dict[int, int] = {}
        for offset, line in enumerate(hunk):
            if line.line_type == "\\":
                marks[len(rows) - 1] = frame.body_line + offset
            else:
                rows.append(PatchLine(line.line_type, line.value.removesuffix("\n")))
        old_open, new_open = open_ends(rows, marks)
        yield PatchHunk(
            tuple(rows), frame.anchors, start=frame.start, old_open=old_open, new_open=new_open, line=frame.line
        )


def _repaired(frames: Sequence[HunkFrame]) -> Iterator[str]:
    """The hunks with true counts under a neutral name; any marker of a missing line break in its known words."""
    yield "--- file\n"
    yield "+++ file\n"
    for frame in frames:
        old_count = sum(line[0] in " -" for line in frame.body)
        new_count = sum(line[0] in " +" for line in frame.body)
        yield f"@@ -1,{old_count} +1,{new_count} @@\n"
        for line in frame.body:
            yield (NO_NEWLINE if line[0] == "\\" else line) + "\n"

"""The `*** Begin Patch` dialect: Add, Delete, Update and Move, `@@` anchors, `*** End of File`.

The grammar is line by line. In an update every line has a sign; an empty line stands for an empty line that is
kept, but not where only a directive follows, because there it merely separates. A header with numbers, as a
unified diff has, is taken as a hint.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from devtools_lsp.core.differing import shown
from devtools_lsp.core.patch.malformed import EXAMPLE, authored_path, malformed, open_ends
from devtools_lsp.core.patch.operations import (
    AddFile,
    DeleteFile,
    Operation,
    ParsedPatch,
    PatchHunk,
    PatchLine,
    UpdateFile,
)

BEGIN = "*** Begin Patch"
END = "*** End Patch"
_END_OF_FILE = "*** End of File"
_MOVE = "*** Move to:"
_FILE = re.compile(r"\*\*\* (Add|Delete|Update) File:(.*)", re.DOTALL)
_NUMBERED = re.compile(r"@@ -([0-9]{1,9})(?:,[0-9]{1,9})? \+[0-9]{1,9}(?:,[0-9]{1,9})? @@")


def parse_envelope(lines: Sequence[str], first_line: int) -> ParsedPatch:
    """Parse the lines from `*** Begin Patch` to `*** End Patch`; `first_line` is the number of the first one."""
    return _Parser(lines, first_line).parse()


class _Parser:
    def __init__(self, lines: Sequence[str], first_line: int) -> None:
        self._lines = lines
        self._first = first_line
        self._at = 1

    @property
    def _number(self) -> int:
        return self._first + self._at

    def _line(self) -> str | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def parse(self) -> ParsedPatch:
        operations: list[Operation] = []
        while (line := self._line()) is not None:
            if line.rstrip() == END:
                self._refuse_rest()
                if not operations:
                    raise malformed("the patch names no file; write for example:\n" + EXAMPLE, self._number)
                return ParsedPatch(tuple(operations), "envelope")
            header = _FILE.fullmatch(line)
            if header is not None:
                operations.append(self._operation(header))
            elif line.strip():
                raise malformed(
                    f"{shown(line)} stands where {END} or one of '*** Add File: ', '*** Delete File: ', "
                    "'*** Update File: ' must; write for example:\n" + EXAMPLE,
                    self._number,
                )
            else:
                self._at += 1
        last = max(index for index, line in enumerate(self._lines) if line.strip())
        raise malformed(f"the patch ends without {END}; was it cut off?", self._first + last)

    def _refuse_rest(self) -> None:
        for index in range(self._at + 1, len(self._lines)):
            if self._lines[index].strip():
                raise malformed(
                    f"{shown(self._lines[index])} follows {END}; put all files between {BEGIN} and {END}",
                    self._first + index,
                )

    def _operation(self, header: re.Match[str]) -> Operation:
        number = self._number
        path = self._path(header.group(2))
        self._at += 1
        if header.group(1) == "Add":
            return AddFile(path, self._added(path), line=number)
        if header.group(1) == "Delete":
            return DeleteFile(path, line=number)
        move_to = None
        line = self._line()
        if line is not None and line.startswith(_MOVE):
            move_to = self._path(line[len(_MOVE) :])
            self._at += 1
        hunks: list[PatchHunk] = []
        while (hunk := self._hunk(path, first=not hunks)) is not None:
            hunks.append(hunk)
        if not hunks and move_to is None:
            raise malformed(f"the update of {path} has no hunk: add @@ and lines with a sign", number, path=path)
        return UpdateFile(path, tuple(hunks), move_to, line=number)

    def _path(self, raw: str) -> str:
        return authored_path(raw.strip(" \t"), self._number)

    def _added(self, path: str) -> str:
        content: list[str] = []
        while (line := self._line()) is not None and not line.startswith("*** "):
            if line.startswith("+"):
                content.append(line[1:] + "\n")
            elif line.strip() or self._sign_follows():
                raise malformed(
                    f"{shown(line)} lacks its sign: every line of an added file starts with '+', empty ones too",
                    self._number,
                    path=path,
                )
            self._at += 1
        return "".join(content)

    def _sign_follows(self) -> bool:
        """Whether the next line that is not empty still belongs to the added file."""
        index = self._at
        while index < len(self._lines) and not self._lines[index].strip():
            index += 1
        return index < len(self._lines) and not self._lines[index].startswith("*** ")

    def _hunk(self, path: str, *, first: bool) -> PatchHunk | None:
        while self._line() == "":
            self._at += 1
        number = self._number
        anchors: list[str] = []
        start: int | None = None
        headed = False
        while (line := self._line()) is not None and line.startswith("@@"):
            headed = True
            numbered = _NUMBERED.match(line)
            if numbered is not None:
                start = int(numbered.group(1))
            elif (anchor := anchor_text(line)) is not None:
                anchors.append(anchor)
            self._at += 1
        if not headed and (line is None or line.startswith("*** ") or not first):
            return None
        return self._body(path, number, tuple(anchors), start)

    def _body(self, path: str, number: int, anchors: tuple[str, ...], start: int | None) -> PatchHunk:
        rows: list[PatchLine] = []
        marks: dict[int, int] = {}
        separators = 0
        at_end = False
        while (line := self._line()) is not None:
            if line.rstrip() == _END_OF_FILE:
                at_end = True
                self._at += 1
                break
            if line.startswith(("*** ", "@@")):
                break
            if line.startswith("\\"):
                marks[len(rows) - 1] = self._number
            elif line == "":
                separators += 1
                rows.append(PatchLine(" ", ""))
            elif line[0] in " -+":
                rows.append(PatchLine(line[0], line[1:]))
            else:
                raise malformed(
                    f"{shown(line)} lacks its sign: start the line with a blank (kept), '-' (removed) or '+' (added)",
                    self._number,
                    path=path,
                )
            separators = separators if line == "" else 0
            self._at += 1
        if separators:
            del rows[-separators:]
        if not rows:
            raise malformed("the hunk has no lines", number, path=path)
        old_open, new_open = open_ends(rows, marks)
        return PatchHunk(tuple(rows), anchors, at_end, start, old_open, new_open, line=number)


def anchor_text(line: str) -> str | None:
    """The text of an `@@` line without the marks, None when it has none or only dots that stand for numbers."""
    text = line[2:].rstrip().removesuffix("@@").rstrip().removeprefix(" ")
    return text if text.strip() not in ("", "...", "…") else None

"""What a patch says, as data: operations on files and hunks of lines, and the patch written out again.

Both dialects parse to these values, and `ParsedPatch.render` writes the dialect it came in. Nothing here knows
whether a file exists or a hunk fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from devtools_lsp.core.quoting import quote_name
from devtools_lsp.text import BYTE_ORDER_MARK, split_lines

Dialect = Literal["envelope", "unified"]

NO_NEWLINE = "\\ No newline at end of file"


class PatchLine(NamedTuple):
    """One line of a hunk: `sign` is a blank (kept), `-` (removed) or `+` (added); `text` has no line end."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class PatchHunk:
    """Lines that belong together in one place of a file.

    `anchors` are the texts of `@@` lines that scope the place, outermost first. `at_end` demands the end of the
    file. `start` is the old start line that a header names, for settling ties only. `old_open` and `new_open` say
    that the last line before and after has no line break (`\\ No newline at end of file`); with both false the
    file keeps what it has. `line` is the 1-based line in the patch.
    """

    lines: tuple[PatchLine, ...]
    anchors: tuple[str, ...] = ()
    at_end: bool = False
    start: int | None = None
    old_open: bool = False
    new_open: bool = False
    line: int = field(default=0, compare=False)

    def old(self) -> list[str]:
        """The lines that must be in the file."""
        return [line.text for line in self.lines if line.sign != "+"]

    def new(self) -> list[str]:
        """The lines that stand there afterwards."""
        return [line.text for line in self.lines if line.sign != "-"]

    def without_mark(self) -> PatchHunk:
        """The hunk without byte order marks at line starts: a diff of a marked file has it in the first line."""
        if not any(line.text.startswith(BYTE_ORDER_MARK) for line in self.lines):
            return self
        return replace(
            self, lines=tuple(PatchLine(sign, text.removeprefix(BYTE_ORDER_MARK)) for sign, text in self.lines)
        )


@dataclass(frozen=True, slots=True)
class AddFile:
    """A file comes into being with an LF text."""

    path: str
    text: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A file goes. `hunks`, where a diff gives them, hold its whole content, which must be what the file has."""

    path: str
    hunks: tuple[PatchHunk, ...] = ()
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class UpdateFile:
    """A file changes, moves, or both."""

    path: str
    hunks: tuple[PatchHunk, ...]
    move_to: str | None = None
    line: int = field(default=0, compare=False)


Operation = AddFile | DeleteFile | UpdateFile


@dataclass(frozen=True, slots=True)
class ParsedPatch:
    """A whole patch, operations in the order written; they take effect one after the other."""

    operations: tuple[Operation, ...]
    dialect: Dialect

    @property
    def targets(self) -> tuple[str, ...]:
        """Every path named, both ends of moves, sorted."""
        named = {operation.path for operation in self.operations}
        named |= {target for operation in self.operations if (target := _move_target(operation)) is not None}
        return tuple(sorted(named))

    @property
    def acquires(self) -> tuple[str, ...]:
        """The files that must exist before, sorted: what is changed, moved or deleted and not made by the patch."""
        needed, _ = self._walk()
        return tuple(sorted(needed))

    @property
    def may_create(self) -> tuple[str, ...]:
        """The paths that come into being, sorted: they exist afterwards and need not before."""
        needed, present = self._walk()
        return tuple(sorted(present - needed))

    @property
    def removes(self) -> tuple[str, ...]:
        """The paths that exist before and not afterwards, sorted: deleted, or moved away."""
        needed, present = self._walk()
        return tuple(sorted(needed - present))

    @property
    def acquires_if_present(self) -> tuple[str, ...]:
        """Files that are moved or deleted after the patch moved another to their name, sorted.

        When such a file exists, the patch exchanges names or shifts them along; when it does not, the moves are a
        chain. Which of the two holds, only the files tell.
        """
        arrived: set[str] = set()
        found: set[str] = set()
        for operation in self.operations:
            leaves = isinstance(operation, DeleteFile) or _move_target(operation) is not None
            if leaves and operation.path in arrived:
                found.add(operation.path)
            target = _move_target(operation)
            if target is not None:
                arrived.add(target)
        return tuple(sorted(found))

    def _walk(self) -> tuple[set[str], set[str]]:
        """(files needed before, files there afterwards), as far as the patch alone tells."""
        needed: set[str] = set()
        present: set[str] = set()
        for operation in self.operations:
            if isinstance(operation, AddFile):
                present.add(operation.path)
                continue
            if operation.path not in present:
                needed.add(operation.path)
                present.add(operation.path)
            if isinstance(operation, DeleteFile):
                present.discard(operation.path)
            elif operation.move_to is not None:
                present.discard(operation.path)
                present.add(operation.move_to)
        return needed, present

    def resolved(self, resolve: Callable[[str], str]) -> ParsedPatch:
        """The same patch with every path put through `resolve`, so that one file has one name."""
        operations: list[Operation] = []
        for operation in self.operations:
            if isinstance(operation, UpdateFile) and operation.move_to is not None:
                target = resolve(operation.move_to)
                operations.append(replace(operation, path=resolve(operation.path), move_to=target))
            else:
                operations.append(replace(operation, path=resolve(operation.path)))
        return replace(self, operations=tuple(operations))

    def render(self) -> str:
        """The patch as text in its dialect; parsing it gives an equal patch."""
        if self.dialect == "envelope":
            return "\n".join(["*** Begin Patch", *_envelope(self.operations), "*** End Patch", ""])
        return "".join(line + "\n" for operation in self.operations for line in _unified(operation))


def _move_target(operation: Operation) -> str | None:
    return operation.move_to if isinstance(operation, UpdateFile) else None


def _envelope(operations: Sequence[Operation]) -> Iterator[str]:
    for operation in operations:
        if isinstance(operation, AddFile):
            yield f"*** Add File: {operation.path}"
            yield from ("+" + line for line in split_lines(operation.text))
        elif isinstance(operation, DeleteFile):
            yield f"*** Delete File: {operation.path}"
        else:
            yield f"*** Update File: {operation.path}"
            if operation.move_to is not None:
                yield f"*** Move to: {operation.move_to}"
            for hunk in operation.hunks:
                yield from _hunk_lines(hunk)
                if hunk.at_end:
                    yield "*** End of File"


def _unified(operation: Operation) -> Iterator[str]:
    target = _move_target(operation) or operation.path
    yield f"diff --git {quote_name('a/' + operation.path)} {quote_name('b/' + target)}"
    old_name, new_name = quote_name("a/" + operation.path) + "\t", quote_name("b/" + target) + "\t"
    if isinstance(operation, AddFile):
        yield "new file mode 100644"
        if operation.text:
            yield from ("--- /dev/null", f"+++ {new_name}")
            lines = tuple(PatchLine("+", line) for line in split_lines(operation.text))
            yield from _hunk_lines(PatchHunk(lines, start=0, new_open=not operation.text.endswith("\n")))
        return
    if isinstance(operation, DeleteFile):
        yield "deleted file mode 100644"
        new_name = "/dev/null"
    elif target != operation.path:
        yield from (f"rename from {quote_name(operation.path)}", f"rename to {quote_name(target)}")
    if operation.hunks:
        yield from (f"--- {old_name}", f"+++ {new_name}")
    shift = 0
    for hunk in operation.hunks:
        yield from _hunk_lines(hunk, shift)
        shift += len(hunk.new()) - len(hunk.old())


def _hunk_lines(hunk: PatchHunk, shift: int = 0) -> Iterator[str]:
    for anchor in hunk.anchors:
        yield f"@@ {anchor}"
    old_count, new_count = len(hunk.old()), len(hunk.new())
    if hunk.start is not None:
        # A start names the line before when its side is empty, hence the one line of difference.
        first = hunk.start + (old_count == 0)
        new_start = max(0, first + shift - (new_count == 0))
        yield f"@@ -{hunk.start},{old_count} +{new_start},{new_count} @@"
    elif not hunk.anchors:
        yield "@@"
    last_old = max((index for index, line in enumerate(hunk.lines) if line.sign != "+"), default=-1)
    last_new = max((index for index, line in enumerate(hunk.lines) if line.sign != "-"), default=-1)
    for index, line in enumerate(hunk.lines):
        yield line.sign + line.text
        if (index == last_old and hunk.old_open) or (index == last_new and hunk.new_open):
            yield NO_NEWLINE

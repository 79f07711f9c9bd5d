"""What both dialects share: how a patch is refused for its form (E_DEV_BAD_ARG with the line, SPEC 3.6.2), how
its paths are taken, and what its marks of a missing line break mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from devtools_lsp.core.differing import shown
from devtools_lsp.core.patch.operations import NO_NEWLINE, PatchLine
from devtools_lsp.errors import BadArgumentError
from devtools_lsp.paths import MAX_PATH_BYTES

EXAMPLE = "*** Begin Patch\n*** Update File: path/to/file\n@@\n-old line\n+new line\n*** End Patch"
"""A short valid patch that messages show."""


def malformed(message: str, line: int, *, path: str | None = None) -> BadArgumentError:
    """The error for a patch that does not parse; `line` is 1-based in the patch as it was given."""
    return BadArgumentError(
        f"patch line {line}: {message}", reason="malformed", step="apply_patch", line=line, path=path
    )


def authored_path(path: str, line: int) -> str:
    """A path with its empty and `.` segments left out, by text alone; leading slashes and `..` stay as written.

    Raises the error for a path that is empty or longer than any file system takes.
    """
    if len(path) > MAX_PATH_BYTES:
        raise malformed(f"the path {shown(path)} is too long", line)
    kept = "/".join(segment for segment in path.split("/") if segment not in ("", "."))
    if not kept:
        raise malformed("a path is missing", line)
    # Two of them make a UNC path, which is refused for what it is.
    return path[: len(path) - len(path.lstrip("/"))] + kept


def open_ends(rows: Sequence[PatchLine], marks: Mapping[int, int]) -> tuple[bool, bool]:
    """(`old_open`, `new_open`) of a hunk with marks of a missing line break.

    `marks` maps the index of the row above a mark (-1 for none) to the mark's line in the patch. Raises the error
    for a mark below a line that is not the last one of its side.
    """
    last_old = max((index for index, row in enumerate(rows) if row.sign != "+"), default=-1)
    last_new = max((index for index, row in enumerate(rows) if row.sign != "-"), default=-1)
    old_open = new_open = False
    for index, line in marks.items():
        sign = rows[index].sign if index >= 0 else ""
        if not sign or (sign != "+" and index != last_old) or (sign != "-" and index != last_new):
            raise malformed(f"{NO_NEWLINE!r} belongs below the last line of the file", line)
        old_open |= sign != "+"
        new_open |= sign != "-"
    return old_open, new_open

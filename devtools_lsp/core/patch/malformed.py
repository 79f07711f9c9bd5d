"""How both dialects refuse a patch for its form (E_DEV_BAD_ARG with the line, SPEC 3.6.2) and take its paths."""

from __future__ import annotations

from devtools_lsp.core.differing import shown
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
    """A path with its empty and `.` segments left out, by text alone; a leading slash and `..` stay as written.

    Raises the error for a path that is empty or longer than any file system takes.
    """
    if len(path) > MAX_PATH_BYTES:
        raise malformed(f"the path {shown(path)} is too long", line)
    kept = "/".join(segment for segment in path.split("/") if segment not in ("", "."))
    if not kept:
        raise malformed("a path is missing", line)
    return "/" + kept if path.startswith("/") else kept

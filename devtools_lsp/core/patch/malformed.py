"""The one way in which a patch is refused for its form: E_DEV_BAD_ARG with the line (SPEC 3.6.2)."""

from __future__ import annotations

from devtools_lsp.errors import BadArgumentError

EXAMPLE = "*** Begin Patch\n*** Update File: path/to/file\n@@\n-old line\n+new line\n*** End Patch"
"""A short valid patch that messages show."""


def malformed(message: str, line: int, *, path: str | None = None) -> BadArgumentError:
    """The error for a patch that does not parse; `line` is 1-based in the patch as it was given."""
    return BadArgumentError(
        f"patch line {line}: {message}", reason="malformed", step="apply_patch", line=line, path=path
    )


def shown(line: str) -> str:
    """A line of a patch as a message quotes it."""
    return repr(line if len(line) <= 80 else line[:80] + "…")

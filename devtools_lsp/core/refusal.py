"""What an error knows beside its message, in words: the same for models and for people at a terminal. Pure.

How code, reason and message are set out, and which of this is shown, is the business of whoever shows it.
"""

from __future__ import annotations

from devtools_lsp.errors import DevToolsError

_ADVICE = {
    "no": "do not repeat the call",
    "afterCorrection": "correct the call and repeat it",
    "withLess": "ask for less and repeat it",
    "yes": "the call may be repeated",
}


def known_lines(error: DevToolsError) -> list[str]:
    """Where it happened, which files it is about, what is on the disk and what a person said: a line for each."""
    lines: list[str] = []
    where = ":".join(str(part) for part in (error.path, error.line) if part is not None)
    if error.step or where:
        lines.append("at: " + " ".join(part for part in (error.step, where) if part))
    if error.matches:
        lines.append("fits at: " + ", ".join(f"{match['path']}:{match['line']}" for match in error.matches))
    if error.paths:
        lines.append("files: " + ", ".join(error.paths))
    if error.alternatives:
        lines.append("instead: " + ", ".join(error.alternatives))
    if error.written:
        landed = ", ".join(f"{entry.get('path', '?')} ({entry.get('kind', 'written')})" for entry in error.written)
        lines.append(f"already on disk: {landed}")
    if error.note:
        lines.append(f"the person says: {error.note}")
    return lines


def advice(error: DevToolsError) -> str:
    """What becomes of the call: whether to correct it, to repeat it, or to give up."""
    return _ADVICE[error.retry]

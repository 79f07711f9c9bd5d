"""One finished run of a command: whether its exit code is known, and what it said.

Owns what counts as a failure of the command itself. How it is started belongs to `command`, what its output means to
`parsers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from devtools_lsp.core.diagnostics import Finding
from devtools_lsp.engines.process import Completed
from devtools_lsp.engines.spec import CommandSpec


class CommandFailedError(Exception):
    """The command ended in a way that its table does not know; the message has its last words."""


class CommandTimeoutError(Exception):
    """The command was killed at its time limit."""


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run that was understood: what it printed, and whether its exit code means findings."""

    stdout: str
    stderr: str
    cwd: Path
    found: bool


def understood(command: CommandSpec, completed: Completed, cwd: Path) -> Run:
    """A run that ended as its table knows; raises CommandFailedError, CommandTimeoutError."""
    if completed.timed_out:
        raise CommandTimeoutError(f"timeout: no end within {completed.duration_s:.1f} s, so it was killed")
    if completed.overflowed:
        raise CommandFailedError("it printed more than 64 MiB and was killed")
    stdout = completed.stdout.decode("utf-8", "replace")
    stderr = completed.stderr.decode("utf-8", "replace")
    if completed.returncode in command.ok_exits:
        return Run(stdout, stderr, cwd, found=False)
    if completed.returncode in command.findings_exits:
        return Run(stdout, stderr, cwd, found=True)
    words = (stderr.strip() or stdout.strip())[-600:]
    raise CommandFailedError(f"it ended with exit code {completed.returncode}: {words or 'without a word'}")


def refused(path: str, run: Run) -> Finding:
    """What is said of a file that the command left as it is."""
    said = run.stderr.strip() or run.stdout.strip()
    return Finding(path=path, severity="warning", message=f"not changed: {said[:600] or 'the command refused it'}")


def about_the_project(finding: Finding, base: Path, root: Path) -> Finding:
    """A message that names the shadow's files, about the project's own."""
    if base == root or str(base) not in finding.message:
        return finding
    return msgspec.structs.replace(finding, message=finding.message.replace(str(base), str(root)))

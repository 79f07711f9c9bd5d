"""Running ripgrep, or the slower program that stands in for it, and reading what it prints.

Both print matches as `PATH NUL LINE:COLUMN:TEXT LF` (lists of files as `PATH NUL`), and on standard error one line
`ignoring PATH: WHY` for each place that they pass over. Owns the command lines, the bounds and the parsing; decides
nothing about paths.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from devtools_lsp.agent.search_rules import REPOSITORY_NAMES, SKIPPED_DIRECTORIES
from devtools_lsp.errors import StepFailedError, StepUnavailableError
from devtools_lsp.ports import Cancellation

Program = Literal["ripgrep", "python"]
SkipReason = Literal["ignored", "dependencies", "binary", "oversized", "unreadable"]

_REPOSITORY_NAMES = frozenset(name.encode() for name in REPOSITORY_NAMES)
_CHUNK = 64 * 1024
"""Read and parsed at once: a few milliseconds of the loop."""

_EXAMPLES = 5
_COMPLAINT_BYTES = 4096
_IGNORING = re.compile(rb"(?:^|: )ignoring \./(.*): (Ignore\(|\d+ bytes|found binary data)(.*)")
_BINARY_MESSAGE = re.compile(rb": (?:WARNING: stopped searching binary file|binary file matches)")
_UNKNOWN_OPTION = re.compile(r"unrecognized flag|unexpected argument|wasn't expected")
_OMITTED = re.compile(rb" \[\.\.\. (?:\d+ more match(?:es)?|omitted end of long line)\]$")


@functools.cache
def ripgrep() -> str | None:
    """The `rg` that the package brings along, else the one on PATH."""
    for directory in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent)):
        candidate = Path(directory) / "rg"
        if os.access(candidate, os.X_OK):
            return str(candidate)
    return shutil.which("rg")


@dataclass(slots=True)
class Skipped:
    """What was passed over, counted by reason; a directory counts once. `examples` are root-relative paths."""

    counts: dict[SkipReason, int] = field(default_factory=dict[SkipReason, int])
    examples: dict[SkipReason, list[str]] = field(default_factory=dict[SkipReason, list[str]])

    def add(self, reason: SkipReason, path: str) -> None:
        """Count one place."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        shown = self.examples.setdefault(reason, [])
        if len(shown) < _EXAMPLES:
            shown.append(path)


@dataclass(frozen=True, slots=True)
class RawMatch:
    """One matching line. `column` is 1-based in bytes; `text` is cut when the line is long."""

    path: bytes
    line: int
    column: int
    text: bytes
    cut: bool


@dataclass(slots=True)
class Outcome:
    """How a run ended.

    `complaint` is what the program said against its arguments, `stopped` why it was ended early, `status` its exit
    status otherwise. `tells` is false for a ripgrep that did not say what it passes over.
    """

    program: Program
    skipped: Skipped = field(default_factory=Skipped)
    complaint: str = ""
    stopped: Literal["", "timeout", "enough", "cancelled"] = ""
    status: int = 0
    tells: bool = False
    complaining: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """What to run. `base` is a root-relative path (`""` for the root); `pattern` None lists files instead."""

    root: str
    base: str
    pattern: str | None = None
    case_insensitive: bool = False
    honour_ignores: bool = True
    parent_rules: bool = True
    file_names: tuple[str, ...] = ()
    max_file_bytes: int = 0
    max_line_bytes: int = 0
    timeout_s: float = 20.0


async def run(
    query: Query,
    consume: Callable[[bytes, Skipped], bool],
    *,
    signal: Cancellation | None = None,
    program: Program | None = None,
) -> Outcome:
    """Run the search; `consume` gets raw output and where to count, and returns False when it has enough.

    Raises StepUnavailableError when neither program can be started, StepFailedError when it broke down. Cancelling
    the task, or `signal`, ends it.
    """
    chosen: Program = program or ("ripgrep" if ripgrep() else "python")
    outcome = await _run_once(query, consume, signal, chosen)
    if chosen == "ripgrep" and _UNKNOWN_OPTION.search(outcome.complaint):
        # An old ripgrep: the stand-in understands the question.
        outcome = await _run_once(query, consume, signal, "python")
    if not outcome.stopped and outcome.status not in (0, 1, 2):
        raise StepFailedError(
            f"the search program ({outcome.program}) ended with status {outcome.status}: "
            f"{outcome.complaint.strip() or 'no message'}; try again",
            step="search",
            retry="yes",
        )
    return outcome


async def _run_once(
    query: Query, consume: Callable[[bytes, Skipped], bool], signal: Cancellation | None, chosen: Program
) -> Outcome:
    argv = _ripgrep_argv(query) if chosen == "ripgrep" else _python_argv(query)
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "HOME") if name in os.environ}
    # The stand-in must find this package, and nothing that lies in the workspace.
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=query.root,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_CHUNK,
        )
    except OSError as error:
        raise StepUnavailableError(f"{argv[0]} could not be started: {error.strerror}", step="search") from error
    outcome = Outcome(chosen)
    work = asyncio.create_task(_collect(process, consume, outcome))
    cancelled = asyncio.create_task((signal or Cancellation()).wait())
    try:
        await asyncio.wait({work, cancelled}, timeout=query.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            outcome.stopped = "cancelled" if cancelled.done() else "timeout"
    finally:
        cancelled.cancel()
        if not work.done():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        # Its pipes end with it, so that this does not wait for anything else.
        await work
    outcome.status = process.returncode or 0
    return outcome


async def _collect(
    process: asyncio.subprocess.Process, consume: Callable[[bytes, Skipped], bool], outcome: Outcome
) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    await asyncio.gather(_read_output(process, process.stdout, consume, outcome), _read_errors(process.stderr, outcome))
    await process.wait()


def parse_matches(buffer: bytearray, skipped: Skipped) -> list[RawMatch]:
    """Take the complete records off the front of a buffer of matches; messages about binary files are counted."""
    found: list[RawMatch] = []
    position = 0
    while True:
        nul = buffer.find(b"\0", position)
        newline = buffer.find(b"\n", position)
        if newline >= 0 and (nul < 0 or newline < nul):
            message = _BINARY_MESSAGE.search(buffer, position, newline)
            if message and message[0].endswith(b"matches"):
                skipped.add("binary", bytes(buffer[position : message.start()]).decode("utf-8", "replace")[2:])
            if message:
                position = newline + 1
                continue
        end = buffer.find(b"\n", nul + 1) if nul >= 0 else -1
        if end < 0:
            break
        line, _, rest = bytes(buffer[nul + 1 : end]).partition(b":")
        column, _, text = rest.partition(b":")
        text = text.removesuffix(b"\r")
        kept = _OMITTED.sub(b"", text)
        found.append(RawMatch(bytes(buffer[position:nul]), int(line), int(column), kept, len(kept) != len(text)))
        position = end + 1
    del buffer[:position]
    return found


def parse_files(buffer: bytearray) -> list[bytes]:
    """Take the complete paths off the front of a buffer of NUL-terminated ones."""
    end = buffer.rfind(b"\0")
    if end < 0:
        return []
    paths = bytes(buffer[:end]).split(b"\0")
    del buffer[: end + 1]
    return paths


def _ripgrep_argv(query: Query) -> list[str]:
    program = ripgrep()
    assert program is not None
    argv = [program, "--no-config", "--debug", "--hidden", "--color=never", "--null", "--no-require-git"]
    argv += ["--no-ignore-dot", "--no-ignore-global"]
    argv += [f"--glob=!{name}" for name in sorted(REPOSITORY_NAMES)]
    argv += [f"--glob=!{name}/" for name in sorted(SKIPPED_DIRECTORIES)]
    if not query.honour_ignores:
        argv.append("--no-ignore")
    elif not query.parent_rules:
        argv += ["--no-ignore-parent", *(["--ignore-file=.gitignore"] if query.base else [])]
    argv += [f"--type-add=devtoolslsp:{name}" for name in query.file_names]
    if query.file_names:
        argv.append("--type=devtoolslsp")
    if query.pattern is None:
        argv.append("--files")
    else:
        argv += ["--line-number", "--column", "--no-heading", "--with-filename", "--crlf", "--engine=auto"]
        argv += [f"--max-filesize={query.max_file_bytes}", f"--max-columns={query.max_line_bytes}"]
        argv.append("--max-columns-preview")
        if query.case_insensitive:
            argv.append("--ignore-case")
        argv.append(f"--regexp={query.pattern}")
    return [*argv, "--", f"./{query.base}"]


def _python_argv(query: Query) -> list[str]:
    argv = [sys.executable, "-P", "-m", "devtools_lsp.agent.search_fallback", f"--base=./{query.base}"]
    argv += [f"--max-file-bytes={query.max_file_bytes}", f"--max-line-bytes={query.max_line_bytes}"]
    argv += [f"--file-name={name}" for name in query.file_names]
    if not query.honour_ignores:
        argv.append("--no-ignore")
    if query.case_insensitive:
        argv.append("--ignore-case")
    if query.pattern is not None:
        argv.append(f"--regexp={query.pattern}")
    return argv


async def _read_output(
    process: asyncio.subprocess.Process,
    stream: asyncio.StreamReader,
    consume: Callable[[bytes, Skipped], bool],
    outcome: Outcome,
) -> None:
    while data := await stream.read(_CHUNK):
        if not outcome.stopped and not consume(data, outcome.skipped):
            outcome.stopped = "enough"
            with contextlib.suppress(ProcessLookupError):
                process.kill()


async def _read_errors(stream: asyncio.StreamReader, outcome: Outcome) -> None:
    rest = b""
    while data := await stream.read(_CHUNK):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            _take_error(line, outcome)
    _take_error(rest, outcome)


def _take_error(line: bytes, outcome: Outcome) -> None:
    if line.startswith(b"rg: "):
        # Lines without the prefix go on with the message before them, which may be a debug one.
        debug = line.startswith(b"rg: DEBUG|")
        outcome.tells = outcome.tells or debug
        outcome.complaining = not debug and b"(os error " not in line
    found = _IGNORING.search(line)
    if found:
        reason = _reason(found[2], found[3])
        if reason is not None and found[1].rpartition(b"/")[2] not in _REPOSITORY_NAMES:
            outcome.skipped.add(reason, found[1].decode("utf-8", "replace"))
        return
    text = line.decode("utf-8", "replace").removeprefix("rg: ")
    if "(os error " in text:
        outcome.skipped.add("unreadable", text.partition(": ")[0].removeprefix("./"))
    elif outcome.complaining and len(outcome.complaint) < _COMPLAINT_BYTES:
        outcome.complaint += text + "\n"


def _reason(kind: bytes, details: bytes) -> SkipReason | None:
    if kind.endswith(b" bytes"):
        return "oversized"
    if kind == b"found binary data":
        return "binary"
    if details.startswith(b"IgnoreMatch(Override"):
        return "dependencies"
    if details.startswith(b"IgnoreMatch(Gitignore"):
        return "ignored"
    return None

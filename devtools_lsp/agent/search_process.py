"""Running ripgrep, or the slower program that stands in for it.

Owns the command lines, the bounds, and the end of what was started. What the programs print is taken apart in
`search_output.py`; nothing here decides about paths.
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from signal import SIGKILL
from typing import Literal

from devtools_lsp.agent.search_output import Messages, Skipped, SkipReason
from devtools_lsp.agent.search_pipe import LOOK_AWAY_S, Pipe
from devtools_lsp.agent.search_rules import REPOSITORY_NAMES, SKIPPED_DIRECTORIES
from devtools_lsp.errors import StepFailedError, StepUnavailableError
from devtools_lsp.ports import Cancellation

Program = Literal["ripgrep", "python"]

Consume = Callable[[bytes], bool]
"""Gets what a program prints; False when it has enough."""

_UNKNOWN_OPTION = re.compile(r"unrecognized flag|unexpected argument|wasn't expected")
_ORDERLY = (0, 1, 2)


@functools.cache
def ripgrep() -> str | None:
    """The `rg` that the package brings along, else the one on PATH."""
    for directory in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent)):
        candidate = Path(directory) / "rg"
        if os.access(candidate, os.X_OK):
            return str(candidate)
    return shutil.which("rg")


@dataclass(slots=True)
class Outcome:
    """How a run ended.

    `complaint` is what the program said beside what it passed over, `stopped` why it was ended early, `status` its exit
    status otherwise. `tells` is false for a ripgrep that did not say what it passes over.
    """

    program: Program
    skipped: Skipped = field(default_factory=Skipped)
    complaint: str = ""
    stopped: Literal["", "timeout", "enough", "cancelled"] = ""
    status: int = 0
    tells: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """What to run. `base` is a root-relative path (`""` for the root); `pattern` None lists files instead.

    `file_names` are patterns that the names of the files must match. With them, and for a base that is a file, a
    binary file is told of only if it matches; else every binary file is. With `crlf` a line does not have the carriage
    return before its end.
    """

    root: str
    base: str
    pattern: str | None = None
    case_insensitive: bool = False
    honour_ignores: bool = True
    parent_rules: bool = True
    file_names: tuple[str, ...] = ()
    crlf: bool = True
    max_file_bytes: int = 0
    max_line_bytes: int = 0
    timeout_s: float = 20.0


async def run(
    query: Query,
    consume: Consume,
    skipped: Skipped,
    *,
    signal: Cancellation | None = None,
    program: Program | None = None,
) -> Outcome:
    """Run the search. `consume` gets raw output; what is passed over is counted in `skipped`.

    Raises StepUnavailableError when neither program can be started, StepFailedError when it broke down. Cancelling
    the task, or `signal`, ends it.
    """
    search = _Search(query, consume, skipped, signal or Cancellation())
    if (program or ("ripgrep" if ripgrep() else "python")) == "python":
        outcome = await search.in_python()
    else:
        outcome = await search.in_ripgrep()
        if _UNKNOWN_OPTION.search(outcome.complaint):
            # An old ripgrep: the stand-in understands the question.
            skipped.clear()
            outcome = await search.in_python()
    if not outcome.stopped and outcome.status not in _ORDERLY:
        raise StepFailedError(
            f"the search program ({outcome.program}) ended with status {outcome.status}: "
            f"{outcome.complaint.strip() or 'no message'}; try again",
            step="search",
            retry="yes",
        )
    return outcome


class _Search:
    """One question, and the ways to have it answered."""

    def __init__(self, query: Query, consume: Consume, skipped: Skipped, signal: Cancellation) -> None:
        self._query = query
        self._consume = consume
        self._skipped = skipped
        self._signal = signal

    async def in_python(self) -> Outcome:
        """Ask the stand-in."""
        return await self._run("python", _python_argv(self._query), self._consume, self._skipped.add)

    async def in_ripgrep(self) -> Outcome:
        """Ask ripgrep."""
        return await (self._in_two_processes() if self._query.file_names else self._in_one_process())

    async def _in_one_process(self) -> Outcome:
        """One that searches and tells."""
        return await self._run("ripgrep", _ripgrep_argv(self._query, tells=True), self._consume, self._skipped.add)

    async def _in_two_processes(self) -> Outcome:
        """One that searches, and beside it one that walks and tells what is passed over.

        A single one would tell of each file that it leaves out for its name, too, in dozens of system calls a file,
        and that takes longer than to search it.
        """
        argv = _ripgrep_argv(self._query, tells=False)
        walk = _ripgrep_argv(replace(self._query, pattern=None, file_names=()), tells=True)
        searcher = asyncio.create_task(self._run("ripgrep", argv, self._consume, self._skipped.add))
        teller = asyncio.create_task(self._run("ripgrep", walk, lambda _: True, self._add_as_told))
        try:
            outcome = await searcher
            if not outcome.stopped and not outcome.complaint:
                told = await teller
                outcome.tells = told.tells
                outcome.stopped = told.stopped
                if told.status not in _ORDERLY:
                    outcome.status, outcome.complaint = told.status, told.complaint
        finally:
            searcher.cancel()
            teller.cancel()
            await asyncio.wait({searcher, teller})
        return outcome

    def _add_as_told(self, reason: SkipReason, path: str) -> None:
        # The one that searches meets what is unreadable as well.
        if reason != "unreadable":
            self._skipped.add(reason, path)

    async def _run(
        self, program: Program, argv: list[str], consume: Consume, add: Callable[[SkipReason, str], None]
    ) -> Outcome:
        outcome = Outcome(program, self._skipped)
        stdout, stderr = Pipe(), Pipe()
        try:
            process = await self._start(argv, stdout, stderr)
            work = asyncio.create_task(self._collect(process, stdout, stderr, consume, Messages(add), outcome))
            await self._watch(process, work, outcome)
        finally:
            stdout.close()
            stderr.close()
        outcome.status = process.returncode or 0
        return outcome

    async def _start(self, argv: list[str], stdout: Pipe, stderr: Pipe) -> asyncio.subprocess.Process:
        environment = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "HOME") if name in os.environ}
        # The stand-in must find this package, and nothing that lies in the workspace.
        environment["PYTHONPATH"] = str(Path(__file__).parents[2])
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=self._query.root,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout.writer,
                stderr=stderr.writer,
            )
        except OSError as error:
            raise StepUnavailableError(f"{argv[0]} could not be started: {error.strerror}", step="search") from error
        stdout.started()
        stderr.started()
        return process

    async def _watch(self, process: asyncio.subprocess.Process, work: asyncio.Task[None], outcome: Outcome) -> None:
        """Until the work is done, the time is over or somebody cancels; nothing runs afterwards."""
        try:
            await self._signal.wait_or_done(work, self._query.timeout_s)
            if not work.done():
                outcome.stopped = "cancelled" if self._signal.cancelled else "timeout"
        finally:
            if not work.done():
                _kill(process)
            # It ends with the process, so that this does not wait for anything else.
            await work

    async def _collect(
        self,
        process: asyncio.subprocess.Process,
        stdout: Pipe,
        stderr: Pipe,
        consume: Consume,
        messages: Messages,
        outcome: Outcome,
    ) -> None:
        def take(data: bytes) -> None:
            if not outcome.stopped and not consume(data):
                outcome.stopped = "enough"
                _kill(process)

        ended = asyncio.ensure_future(process.wait())
        # A list of files is printed in blocks; matches come one file at a time, and so do messages.
        look_away_s = 0 if self._query.pattern is None else LOOK_AWAY_S
        async with asyncio.TaskGroup() as group:
            group.create_task(stdout.drain(take, ended, look_away_s=look_away_s))
            group.create_task(stderr.drain(messages.feed, ended))
        messages.finish()
        outcome.complaint, outcome.tells = messages.complaint, messages.tells
        await ended


def _kill(process: asyncio.subprocess.Process) -> None:
    """End it at once.

    `process.kill` would first look whether it has ended, and so take its exit status from the one who waits for that.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, SIGKILL)


def _ripgrep_argv(query: Query, *, tells: bool) -> list[str]:
    program = ripgrep()
    assert program is not None
    argv = [program, "--no-config", "--hidden", "--color=never", "--null", "--no-require-git"]
    argv += ["--no-ignore-dot", "--no-ignore-global"]
    # What does not tell says at least which binary files match.
    argv.append("--debug" if tells else "--binary")
    argv += [f"--glob=!{name}" for name in sorted(REPOSITORY_NAMES)]
    argv += [f"--glob=!{name}/" for name in sorted(SKIPPED_DIRECTORIES)]
    if not query.honour_ignores:
        argv.append("--no-ignore")
    elif not query.parent_rules:
        argv += ["--no-ignore-parent", *(["--ignore-file=.gitignore"] if query.base else [])]
    argv += [f"--type-add=devtoolslsp:{name}" for name in query.file_names]
    if query.file_names:
        argv.append("--type=devtoolslsp")
    if query.max_file_bytes:
        argv.append(f"--max-filesize={query.max_file_bytes}")
    if query.pattern is None:
        argv.append("--files")
    else:
        argv += ["--line-number", "--column", "--no-heading", "--with-filename", "--engine=auto"]
        argv += [f"--max-columns={query.max_line_bytes}", "--max-columns-preview"]
        if query.crlf:
            argv.append("--crlf")
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
    if not query.crlf:
        argv.append("--keep-cr")
    if query.case_insensitive:
        argv.append("--ignore-case")
    if query.pattern is not None:
        argv.append(f"--regexp={query.pattern}")
    return argv

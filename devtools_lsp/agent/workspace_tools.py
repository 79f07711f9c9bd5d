"""The workspace surface: read_file, write_file, edit_file, glob, grep and bash (SPEC 7.6).

Owns the tools' arguments, their words, and what a session has read. Every call goes through `pipeline.guarded`, so the
gate is asked and files change like anywhere else; what a command changes by itself is looked for and reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, Field

from devtools_lsp.agent.changed_files import ChangedFiles, changed_files, take_snapshot
from devtools_lsp.agent.forge import Invocation, Progress, Tool, ToolAnswer, ToolSet
from devtools_lsp.agent.schemas import schema_of
from devtools_lsp.agent.search import glob, grep
from devtools_lsp.agent.search_sight import WorkspaceSight
from devtools_lsp.agent.sessions import SessionMemory, SessionWitness, require_seen
from devtools_lsp.agent.shell import ShellResult, ShellSettings, run_command
from devtools_lsp.core.diagnostics import notice
from devtools_lsp.core.result import DecisionReport, Result, Written
from devtools_lsp.errors import CallCancelledError, DevToolsError, ReadOnlyError, StepUnavailableError
from devtools_lsp.pipeline.guarded import Caller
from devtools_lsp.pipeline.pipeline import DevPipeline, new_plan_id
from devtools_lsp.pipeline.prepare import local_path, screen_path
from devtools_lsp.pipeline.steps import (
    RelativePath,
    ReplaceArguments,
    StepArguments,
    WriteFileArguments,
    validate_arguments,
)
from devtools_lsp.ports import PlanIdentity
from devtools_lsp.text import split_lines

DEFAULT_LIMIT = 2000
"""Lines that read_file returns when no limit is given."""
LONGEST_LINE = 2000
MUTATING = ("write_file", "edit_file", "bash")


class ReadFileArguments(StepArguments):
    """Arguments of read_file."""

    path: RelativePath
    offset: int = Field(default=1, ge=1, description="First line, 1-based.")
    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=20_000, description="How many lines at most.")


class GlobArguments(StepArguments):
    """Arguments of glob."""

    pattern: str = Field(min_length=1, description="Glob such as `src/**/*.py`; `**` matches any directories.")
    path: str | None = Field(default=None, min_length=1, description="Directory to look below; default: the root.")


class GrepArguments(StepArguments):
    """Arguments of grep."""

    pattern: str = Field(min_length=1, description="Regular expression (Rust syntax), matched line by line.")
    path: str | None = Field(default=None, min_length=1, description="File or directory to search; default: the root.")
    glob: str | None = Field(default=None, min_length=1, description="Only files that match this glob, e.g. `*.py`.")
    case_insensitive: bool = Field(default=False, description="Ignore case.")


def _without_nul(command: str) -> str:
    if "\0" in command:
        raise ValueError("it contains a NUL character, which no command can; remove it")
    return command


class BashArguments(StepArguments):
    """Arguments of bash."""

    command: Annotated[str, AfterValidator(_without_nul)] = Field(
        min_length=1, description="Shell command, run with `sh -c` at the workspace root."
    )
    timeout_secs: float | None = Field(
        default=None,
        gt=0,
        le=3600,
        strict=False,
        description="Time limit in seconds, at most 3600; default: the configured one.",
    )


_TOOLS: dict[str, tuple[type[StepArguments], str, dict[str, Any]]] = {
    "read_file": (
        ReadFileArguments,
        "Read a text file with line numbers. Reading comes before edit_file. Works on files of any size in windows.",
        {"path": "src/app.py", "offset": 1, "limit": 200},
    ),
    "write_file": (
        WriteFileArguments,
        (
            "Give a file a whole new content, creating it and its directories where they are missing. Prefer edit_file "
            "for changes."
        ),
        {"path": "notes.md", "content": "# Notes\n"},
    ),
    "edit_file": (
        ReplaceArguments,
        (
            "Replace exact text in a file that this session has read. old_string must occur exactly once unless "
            "replace_all is true. Line endings and encoding are kept."
        ),
        {"path": "src/app.py", "old_string": "total = 0\n", "new_string": "total = start\n"},
    ),
    "glob": (
        GlobArguments,
        "Find files by name pattern. Honours .gitignore; says what was skipped.",
        {"pattern": "src/**/*.py"},
    ),
    "grep": (
        GrepArguments,
        "Search file contents with a regular expression. Honours .gitignore; says what was skipped.",
        {"pattern": "def main", "glob": "*.py"},
    ),
    "bash": (
        BashArguments,
        (
            "Run a shell command (`sh -c`) at the workspace root, without input. Output is streamed and capped; when "
            "the time is over everything that it started ends. The answer lists the files it changed."
        ),
        {"command": "git status --short"},
    ),
}


def describe_workspace_tools() -> dict[str, str]:
    """The tools' descriptions by name, as agents read them."""
    return {name: description for name, (_, description, _) in _TOOLS.items()}


Deny = Callable[[str], bool]


class _Caller(Caller, frozen=True):
    """A caller who may be `told` beforehand what a call will answer if all that it writes lands."""

    told: Callable[[ToolAnswer], None] | None = None

    def answering(self, answer: Callable[[Result], ToolAnswer]) -> Caller:
        """The caller as the pipeline takes it, when `answer` makes the tool's answer of a result."""
        told = self.told
        if told is None:
            return self

        def foretell(result: Result) -> None:
            told(answer(result))

        return msgspec.structs.replace(self, foretold=foretell)


class WorkspaceTools:
    """Makes and runs the workspace tools of one pipeline."""

    def __init__(
        self,
        pipeline: DevPipeline,
        *,
        memory: SessionMemory,
        deny: Deny,
        shell: ShellSettings | None,
    ) -> None:
        """`deny` says which paths may not be read; `shell` None means that bash is turned off."""
        self._pipeline = pipeline
        self._memory = memory
        self._deny = deny
        self._shell = shell
        self._sight = WorkspaceSight.of(pipeline.parts)

    def tools(self) -> ToolSet:
        """The tools that are offered: read-only mode hides what changes files, bash included."""
        withheld: dict[str, Exception] = {}
        offered: dict[str, Tool] = {}
        for name, (model, description, example) in _TOOLS.items():
            if self._pipeline.read_only and name in MUTATING:
                withheld[name] = ReadOnlyError(f"{name} can change files and this workspace is read-only", step=name)
            elif name == "bash" and self._shell is None:
                withheld[name] = StepUnavailableError(
                    "bash is turned off in this workspace ([shell] enabled = false)", step="bash"
                )
            else:
                offered[name] = Tool(
                    name=name,
                    step=name,
                    description=description,
                    input_schema={**schema_of(model), "examples": [example]},
                    read_only=name not in MUTATING,
                    call=self._caller(name, model),
                    title=name.replace("_", " ").capitalize(),
                    destructive=name in ("write_file", "bash"),
                )
        return ToolSet(offered, withheld)

    def _caller(self, name: str, model: type[StepArguments]) -> Any:
        handlers: dict[str, Callable[..., Awaitable[ToolAnswer]]] = {
            "read_file": self._read_file,
            "write_file": self._write_file,
            "edit_file": self._edit_file,
            "glob": self._glob,
            "grep": self._grep,
            "bash": self._bash,
        }
        handler = handlers[name]

        async def call(
            arguments: Mapping[str, Any], who: Invocation, progress: Progress | None = None, /
        ) -> ToolAnswer:
            checked = validate_arguments(name, model, arguments)
            caller = _Caller(
                PlanIdentity(who.plan or new_plan_id(), who.agent, who.session), who.signal, told=who.foretold
            )
            return await handler(checked, dict(arguments), caller, progress)

        return call

    # -- files ---------------------------------------------------------------------------------------------------

    async def _read_file(
        self, args: ReadFileArguments, authored: Mapping[str, Any], caller: Caller, _progress: Progress | None
    ) -> ToolAnswer:
        path = local_path(self._pipeline.parts, "read_lines", args.path)
        witness = SessionWitness(self._memory, caller.who.session, path)
        end = args.offset + args.limit - 1
        result = await self._pipeline.guarded.read_file(
            args.path, args.offset, end, authored=authored, caller=caller, witness=witness
        )
        read = next(iter(result.reads.values()))
        lines = split_lines(read.text)
        content = "".join(f"{number:>6}\t{_shown(line)}\n" for number, line in enumerate(lines, read.start))
        if read.total_lines == 0:
            content = "(the file is empty)\n"
        elif read.end < read.total_lines:
            content += f"({read.total_lines - read.end} more lines; go on with offset {read.end + 1})\n"
        data = {"path": path, "start": read.start, "end": read.end, "totalLines": read.total_lines}
        return ToolAnswer(result, content, data)

    async def _write_file(
        self, args: WriteFileArguments, authored: Mapping[str, Any], caller: _Caller, _progress: Progress | None
    ) -> ToolAnswer:
        path = local_path(self._pipeline.parts, "write_file", args.path)
        witness = SessionWitness(self._memory, caller.who.session, path, refuse_changed=True)

        def answer(result: Result) -> ToolAnswer:
            kind = result.written[0].kind if result.written else "unchanged"
            return ToolAnswer(result, f"{path}: {kind}\n", {"path": path, "kind": kind})

        return answer(
            await self._pipeline.guarded.write_file(
                args.path, args.content, authored=authored, caller=caller.answering(answer), witness=witness
            )
        )

    async def _edit_file(
        self, args: ReplaceArguments, authored: Mapping[str, Any], caller: _Caller, _progress: Progress | None
    ) -> ToolAnswer:
        path = local_path(self._pipeline.parts, "edit", args.path)
        if self._memory.seen(caller.who.session, path) is None:
            # That the policy forbids it is the better reason; what was read is screened with the edit itself.
            await screen_path(self._pipeline.parts, "edit", path, "write")
            require_seen(self._memory, caller.who.session, path)
        witness = SessionWitness(self._memory, caller.who.session, path)

        def answer(result: Result) -> ToolAnswer:
            outcome = "edited" if result.written else "unchanged"
            note = " (someone else changed the file since it was read; the edit applied to what it is now)"
            return ToolAnswer(
                result,
                f"{path}: {outcome}{note if witness.changed else ''}\n",
                {"path": path, "changedSinceRead": witness.changed},
            )

        try:
            result = await self._pipeline.guarded.edit_file(
                args.path,
                args.old_string,
                args.new_string,
                replace_all=args.replace_all,
                authored=authored,
                caller=caller.answering(answer),
                witness=witness,
            )
        except DevToolsError as error:
            if witness.changed and error.reason in ("noMatch", "ambiguous"):
                raise witness.conflict().at(step="edit") from error
            raise
        return answer(result)

    # -- searching -----------------------------------------------------------------------------------------------

    async def _glob(
        self, args: GlobArguments, authored: Mapping[str, Any], caller: Caller, _progress: Progress | None
    ) -> ToolAnswer:
        parts = self._pipeline.parts
        found = await self._pipeline.guarded.search(
            authored,
            lambda: glob(
                parts.root, args.pattern, path=args.path, deny=self._deny, sight=self._sight, signal=caller.signal
            ),
            caller,
        )
        return ToolAnswer(self._pipeline.guarded.result(caller), found.content, found.data)

    async def _grep(
        self, args: GrepArguments, authored: Mapping[str, Any], caller: Caller, _progress: Progress | None
    ) -> ToolAnswer:
        parts = self._pipeline.parts
        found = await self._pipeline.guarded.search(
            authored,
            lambda: grep(
                parts.root,
                args.pattern,
                path=args.path,
                glob=args.glob,
                case_insensitive=args.case_insensitive,
                deny=self._deny,
                sight=self._sight,
                signal=caller.signal,
            ),
            caller,
        )
        return ToolAnswer(self._pipeline.guarded.result(caller), found.content, found.data)

    # -- commands ------------------------------------------------------------------------------------------------

    async def _bash(
        self, args: BashArguments, authored: Mapping[str, Any], caller: Caller, progress: Progress | None
    ) -> ToolAnswer:
        shell = self._shell
        assert shell is not None
        parts = self._pipeline.parts

        async def run() -> tuple[ShellResult, ChangedFiles]:
            before = await take_snapshot(parts.root)
            # Made here, because a command that is declined has nothing to stream and nobody to close it.
            streamed = _Streamed(progress)
            try:
                ended = await run_command(
                    parts.root,
                    args.command,
                    settings=shell,
                    timeout_s=args.timeout_secs,
                    signal=caller.signal,
                    on_output=streamed.put,
                )
            finally:
                await streamed.close()
            changed = changed_files(before, await take_snapshot(parts.root))
            if ended.cancelled:
                written = [msgspec.to_builtins(entry) for entry in _written(changed)]
                raise CallCancelledError(
                    f"{caller.signal.reason or 'cancelled'}: the command and everything it started was ended; it had "
                    + (f"changed {len(written)} file(s)" if written else "changed no file"),
                    written=written or None,
                )
            return ended, changed

        (ended, changed), decision = await self._pipeline.guarded.command(authored, run, caller)
        result = self._bash_result(caller, ended, changed, decision)
        data = {**ended.to_wire(), "changedFiles": changed.to_wire()}
        return ToolAnswer(result, ended.content + changed.content, data)

    def _bash_result(
        self, caller: Caller, ended: ShellResult, changed: ChangedFiles, decision: DecisionReport | None
    ) -> Result:
        diagnostics = [
            notice(note, severity="error" if ended.timed_out else "warning", rule="bash")
            for note in ended.notes
            if ended.timed_out or ended.surviving
        ]
        return self._pipeline.guarded.result(
            caller,
            changes=changed.changes,
            written=_written(changed),
            diagnostics=diagnostics,
            decision=decision,
        )


def _written(changed: ChangedFiles) -> list[Written]:
    return [Written(path=change.path, kind=change.kind, from_=change.from_) for change in changed.changes]


Stream = Literal["stdout", "stderr"]


class _Streamed:
    """Output on its way to the caller's progress, in order; a slow reader slows nobody but itself down."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._queue: asyncio.Queue[tuple[Stream, str] | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._send()) if progress is not None else None

    def put(self, stream: Stream, text: str) -> None:
        """One piece of output."""
        if self._task is not None:
            self._queue.put_nowait((stream, text))

    async def close(self) -> None:
        """Everything was sent, or the connection is gone."""
        if self._task is None:
            return
        self._queue.put_nowait(None)
        await self._task

    async def _send(self) -> None:
        assert self._progress is not None
        while (item := await self._queue.get()) is not None:
            await self._progress(*item)


def _shown(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}… ({len(line) - LONGEST_LINE} more characters)"

"""A command as an engine: run once a call, over standard input, files or in place, and its output understood.

Owns command lines, working directories and time limits; exit codes are judged in `command_run`. Texts that are not on
disk reach a command that reads files through a shadow copy; without one such files are `pending`. Formats of output
belong to `parsers`, processes to `process`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from devtools_lsp.core.delta import Delta
from devtools_lsp.core.diagnostics import Finding, Pending
from devtools_lsp.engines.calls import gone, until_cancelled
from devtools_lsp.engines.command_run import (
    CommandFailedError,
    CommandTimeoutError,
    Run,
    about_the_project,
    refused,
    understood,
)
from devtools_lsp.engines.guard import Guard
from devtools_lsp.engines.locate import locate_command, nearest, project_interpreter
from devtools_lsp.engines.parsers import OutputError, parse_output
from devtools_lsp.engines.process import LaunchError, engine_environment, run_command
from devtools_lsp.engines.shadow import Shadow
from devtools_lsp.engines.spec import Ability, CommandSpec, EngineSpec
from devtools_lsp.engines.tree import ProjectTree
from devtools_lsp.errors import StepFailedError, WaitTimeoutError
from devtools_lsp.paths import extension_of
from devtools_lsp.ports import EngineCall

T = TypeVar("T")

STDIN_NAMES = frozenset({"", "-", "stdin", "<stdin>", "<text>"})
RUNS_AT_ONCE = 4
FILES_A_RUN = 200
"""A longer list of files is split: command lines have a limit."""


class CommandEngine:
    """The capability functions of one engine whose abilities are commands."""

    def __init__(self, spec: EngineSpec, tree: ProjectTree, guard: Guard, *, home: Path | None = None) -> None:
        self.spec = spec
        self._root = tree.root
        self._home = home or tree.root
        self._tree = tree
        self._guard = guard
        self._shadow: Shadow | None = None
        self._shadow_lock = asyncio.Lock()
        self.config: Path | None = None

    def close(self) -> None:
        """Remove what it left on disk. Blocks."""
        if self._shadow is not None:
            self._shadow.close()
            self._shadow = None

    # -- capabilities

    async def format(self, call: EngineCall) -> Delta:
        """The files of `call.paths`, formatted. Raises StepFailedError, WaitTimeoutError."""
        return await self._framed(call, "formatted", lambda deadline: self._changed(call, "format", deadline))

    async def lint(self, call: EngineCall) -> Delta:
        """Findings in `call.paths`; with `call.fix` the fixes first, and what they did away with."""
        if call.fix:
            return await self._framed(call, "fixed", lambda deadline: self._fixed(call, deadline))
        return await self._framed(call, "linted", lambda deadline: self._judged(call, "lint", call.texts, deadline))

    async def check(self, call: EngineCall) -> Delta:
        """Findings of the checker."""
        return await self._framed(call, "checked", lambda deadline: self._judged(call, "check", call.texts, deadline))

    async def format_in_place(self, call: EngineCall) -> Delta:
        """Run the formatter on the disk itself; what it changed is for the caller to read again."""
        return await self._framed(call, "formatted", lambda deadline: self._in_place(call, "format", deadline))

    async def lint_in_place(self, call: EngineCall) -> Delta:
        """Run the fixing linter on the disk itself; without `call.fix` only its findings are taken."""
        if not call.fix:
            return await self.lint(call)
        return await self._framed(call, "fixed", lambda deadline: self._in_place(call, "fix", deadline))

    # -- the work of each

    async def _changed(self, call: EngineCall, ability: Ability, deadline: float) -> Delta:
        command = self._command(ability)
        paths = self._paths(call)
        if command.input == "stdin":
            results = await self._each(paths, lambda path: self._piped(command, path, call.texts[path], deadline))
            changed = {path: text for path, (text, _) in results.items() if text is not None}
            notes = tuple(note for _, found in results.values() for note in found)
        else:
            changed, notes = await self._rewritten(command, call, paths, deadline)
        return Delta(
            changed={path: text for path, text in changed.items() if text != call.texts[path]}, diagnostics=notes
        )

    async def _piped(
        self, command: CommandSpec, path: str, text: str, deadline: float
    ) -> tuple[str | None, list[Finding]]:
        """The text that a filter makes of a file, or None and why it did not."""
        run = await self._run(command, self._root, [path], deadline, stdin=text)
        if run.found:
            return None, [refused(path, run)]
        if not run.stdout and text.strip():
            return None, [Finding(path=path, severity="warning", message="the command printed nothing; text kept")]
        return run.stdout.replace("\r\n", "\n"), []

    async def _rewritten(
        self, command: CommandSpec, call: EngineCall, paths: Sequence[str], deadline: float
    ) -> tuple[dict[str, str], tuple[Finding, ...]]:
        """What a command that rewrites files makes of them, done in the shadow so that the project is not touched."""
        async with self._shadow_lock:
            shadow = await self._laid(call.texts, call.disk)
            shadow.touched(paths)
            notes: list[Finding] = []
            for directory, group in self._grouped(paths):
                run = await self._run(command, shadow.root, group, deadline, directory=directory)
                if run.found and command.output.form == "none":
                    notes.append(refused(group[0], run))
            changed: dict[str, str] = {}
            for path in paths:
                data = shadow.read(path)
                with suppress(UnicodeDecodeError):
                    if data is not None:
                        changed[path] = data.decode("utf-8").replace("\r\n", "\n")
        return changed, tuple(notes)

    async def _fixed(self, call: EngineCall, deadline: float) -> Delta:
        before = await self._judged(call, "lint", call.texts, deadline)
        fixes = await self._changed(call, "fix", deadline)
        texts = {**call.texts, **fixes.changed}
        after = await self._judged(call, "lint", texts, deadline)
        unknown = {entry.path for entry in (*before.pending, *after.pending)}
        known = [finding for finding in before.diagnostics if not unknown & {finding.path, None}]
        left_alone = tuple(Pending(reason=note.message, path=note.path) for note in fixes.diagnostics)
        return Delta(
            changed=fixes.changed,
            diagnostics=after.diagnostics,
            pending=left_alone,
            fixed=tuple(gone(known, after.diagnostics)),
        )

    async def _judged(self, call: EngineCall, ability: Ability, texts: Mapping[str, str], deadline: float) -> Delta:
        command = self._command(ability)
        paths = [path for path in self._paths(call) if path in texts]
        if command.input == "stdin":
            return await self._judged_by_pipe(command, paths, texts, deadline)
        unwritten = [path for path, text in texts.items() if self._handles(path) and call.disk.get(path) != text]
        deleted = any(text is not None and path not in texts for path, text in call.disk.items())
        if not unwritten and not deleted:
            return await self._judged_on_disk(command, self._root, paths, texts, deadline)
        if command.shadow:
            await self._tree.sweep()
        if not command.shadow or self._tree.limited is not None:
            reason = "this command reads files, and the plan's text is not on disk yet (put write before it)"
            if command.shadow:
                reason = f"{reason}; a copy cannot be made: {self._tree.limited}"
            concerned = paths if command.input == "project" else [path for path in paths if path in unwritten]
            rest = [path for path in paths if path not in concerned]
            delta = await self._judged_on_disk(command, self._root, rest, texts, deadline) if rest else Delta()
            pending = tuple(Pending(reason=reason, path=path) for path in concerned)
            return Delta(diagnostics=delta.diagnostics, pending=(*delta.pending, *pending))
        async with self._shadow_lock:
            shadow = await self._laid(texts, call.disk)
            return await self._judged_on_disk(command, shadow.root, paths, texts, deadline)

    async def _judged_by_pipe(
        self, command: CommandSpec, paths: Sequence[str], texts: Mapping[str, str], deadline: float
    ) -> Delta:
        async def one(path: str) -> tuple[list[Finding], str | None]:
            try:
                run = await self._run(command, self._root, [path], deadline, stdin=texts[path])
            except CommandTimeoutError as error:
                return [], str(error)
            return self._findings(command, run, self._root, texts, only=path), None

        results = await self._each(paths, one)
        return Delta(
            diagnostics=tuple(finding for found, _ in results.values() for finding in found),
            pending=tuple(
                Pending(reason=reason, path=path) for path, (_, reason) in results.items() if reason is not None
            ),
        )

    async def _judged_on_disk(
        self, command: CommandSpec, base: Path, paths: Sequence[str], texts: Mapping[str, str], deadline: float
    ) -> Delta:
        findings: list[Finding] = []
        pending: list[Pending] = []
        groups = self._grouped(paths) if command.input == "files" else [("", list(paths))]
        for directory, group in groups:
            try:
                run = await self._run(command, base, group, deadline, directory=directory)
            except CommandTimeoutError as error:
                pending.extend(Pending(reason=str(error), path=path) for path in group)
                continue
            findings.extend(self._findings(command, run, base, texts))
        return Delta(diagnostics=tuple(findings), pending=tuple(pending))

    async def _in_place(self, call: EngineCall, ability: Ability, deadline: float) -> Delta:
        command = self._command(ability)
        notes: list[Finding] = []
        for directory, group in self._grouped(self._paths(call)):
            run = await self._run(command, self._root, group, deadline, directory=directory)
            found = self._findings(command, run, self._root, call.texts)
            notes.extend(found)
            if run.found and not found:
                notes.append(refused(group[0], run))
        return Delta(diagnostics=tuple(notes))

    # -- one run

    async def _run(
        self,
        command: CommandSpec,
        base: Path,
        paths: Sequence[str],
        deadline: float,
        *,
        stdin: str | None = None,
        directory: str | None = None,
    ) -> Run:
        """Run it over some files below `base` (the project, or its shadow) and judge its exit code."""
        where = self._project_of(paths[0]) if directory is None and paths else directory or ""
        self.config = nearest(self._root, paths[0] if paths else "_", self.spec.config_files)
        cwd = base / where if self.spec.cwd == "project" else base
        words = self._words(command.command, base, cwd, paths)
        located = locate_command(self.spec, words, self._home)
        if located is None:
            raise CommandFailedError(f"{words[0]} is not installed; {self.spec.remedy}")
        time_left_s = deadline - time.monotonic()
        if time_left_s <= 0:
            raise CommandTimeoutError("the deadline came before the command could run")
        completed = await run_command(
            located.command,
            cwd=cwd,
            environment=engine_environment(self.spec.environment),
            guard=self._guard,
            name=f"{self.spec.id}.run",
            timeout_s=time_left_s,
            stdin=stdin.encode("utf-8", "surrogatepass") if stdin is not None else None,
            sweep=self.spec.leaves_processes,
        )
        return understood(command, completed, cwd)

    def _words(self, template: Sequence[str], base: Path, cwd: Path, paths: Sequence[str]) -> list[str]:
        words: list[str] = []
        relative = [_from(cwd, base / path) for path in paths]
        for word in template:
            if word == "{files}":
                words.extend(relative)
            elif word == "{config}":
                if self.config is None:
                    words.pop()
                else:
                    words.append(str(base / self.config.relative_to(self._root)))
            elif word == "{interpreter}":
                interpreter = project_interpreter(self._home, self.spec.interpreter)
                if interpreter is None:
                    words.pop()
                else:
                    words.append(interpreter)
            else:
                first = relative[0] if relative else ""
                host = str(base / paths[0]) if paths else ""
                words.append(word.replace("{path}", host).replace("{relative}", first).replace("{root}", str(base)))
        return words

    def _findings(
        self, command: CommandSpec, run: Run, base: Path, texts: Mapping[str, str], *, only: str | None = None
    ) -> list[Finding]:
        streams = {"stdout": run.stdout, "stderr": run.stderr, "both": f"{run.stdout}\n{run.stderr}"}

        def resolve(printed: str) -> str | None:
            if only is not None and printed in STDIN_NAMES:
                return only
            host = os.path.normpath(run.cwd / printed)
            inside = next((prefix for prefix in (base, self._root) if Path(host).is_relative_to(prefix)), None)
            return Path(host).relative_to(inside).as_posix() if printed and inside is not None else None

        def text_of(path: str) -> str | None:
            return texts[path] if path in texts else self._tree.read(path)

        try:
            found = parse_output(command.output, streams[command.output.stream], resolve, text_of)
        except OutputError as error:
            raise CommandFailedError(f"its output was not understood: {error}") from error
        return [about_the_project(finding, base, self._root) for finding in found]

    # -- what belongs together

    def _command(self, ability: Ability) -> CommandSpec:
        command = self.spec.command_for(ability)
        if command is None:
            raise CommandFailedError(f"it has no command for {ability!r}")
        return command

    def _handles(self, path: str) -> bool:
        return "*" in self.spec.extensions or extension_of(path) in self.spec.extensions

    def _paths(self, call: EngineCall) -> list[str]:
        return [path for path in call.paths if path in call.texts and self._handles(path)]

    def _project_of(self, path: str) -> str:
        """The nearest directory with one of the `project_files`; a tool started elsewhere may find other settings."""
        file = nearest(self._root, path, self.spec.project_files)
        return file.parent.relative_to(self._root).as_posix().removeprefix(".") if file is not None else ""

    def _grouped(self, paths: Sequence[str]) -> list[tuple[str, list[str]]]:
        groups: dict[str, list[str]] = {}
        for path in paths:
            groups.setdefault(self._project_of(path) if self.spec.cwd == "project" else "", []).append(path)
        return [
            (directory, group[start : start + FILES_A_RUN])
            for directory, group in groups.items()
            for start in range(0, len(group), FILES_A_RUN)
        ]

    async def _laid(self, texts: Mapping[str, str], disk: Mapping[str, str | None]) -> Shadow:
        """The shadow in the state of a plan; the lock is held by the caller."""
        await self._tree.sweep()
        if self._tree.limited is not None:
            raise CommandFailedError(f"it works on a copy, which cannot be made: {self._tree.limited}")
        overlays = {path: text for path, text in texts.items() if disk.get(path) != text}
        deleted = {path for path in disk if path not in texts}
        if self._shadow is None:
            self._shadow = await asyncio.to_thread(Shadow, self.spec.id)
        await asyncio.to_thread(self._shadow.lay, self._tree, overlays, deleted)
        return self._shadow

    async def _each(self, paths: Sequence[str], work: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        """Run `work` on each path, a few at a time; the first failure ends the others."""
        places = asyncio.Semaphore(RUNS_AT_ONCE)

        async def one(path: str) -> T:
            async with places:
                return await work(path)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = {path: group.create_task(one(path)) for path in paths}
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return {path: task.result() for path, task in tasks.items()}

    async def _framed(self, call: EngineCall, word: str, work: Callable[[float], Awaitable[Delta]]) -> Delta:
        """Bound the work, end it when the call is cancelled, and turn its failures into ours."""
        deadline = time.monotonic() + min(call.deadline_s, self.spec.timeout_s)
        try:
            return await until_cancelled(call, self.spec.id, work(deadline))
        except CommandTimeoutError as error:
            raise WaitTimeoutError(f"{self.spec.id}: not {word}: {error}", step=call.step) from error
        except (CommandFailedError, LaunchError) as error:
            raise StepFailedError(f"{self.spec.id}: not {word}: {error}", step=call.step, retry="no") from error


def _from(cwd: Path, path: Path) -> str:
    """A path as a program in `cwd` would write it; a leading dash must not look like an option."""
    relative = os.path.relpath(path, cwd)
    return f"./{relative}" if relative.startswith("-") else relative

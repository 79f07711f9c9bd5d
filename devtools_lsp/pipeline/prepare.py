"""Everything that can be known before the gate is asked: paths, policy, existence, engines (SPEC 4.3).

What could not land is never asked about, so all of this runs first, and none of it reads a file's contents.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import msgspec

from devtools_lsp.core.patch.operations import ParsedPatch
from devtools_lsp.errors import BadArgumentError, DevToolsError, StepFailedError
from devtools_lsp.paths import PathPattern, is_pattern
from devtools_lsp.pipeline import acquire
from devtools_lsp.pipeline.acquire import Resolved
from devtools_lsp.pipeline.off_loop import ENTRY, off_loop
from devtools_lsp.pipeline.parts import PipelineParts, PlanRequest
from devtools_lsp.pipeline.selection import EngineStep, offers_fix, require_engine
from devtools_lsp.pipeline.steps import (
    ApplyPatchArguments,
    CompiledStep,
    EditArguments,
    FormatArguments,
    LintArguments,
    ReadLinesArguments,
    ReplaceArguments,
    WriteArguments,
    WriteFileArguments,
)
from devtools_lsp.ports import Access, FileStat

_NAMED = 4096
"""How much of a path that was refused an error repeats: no file's path is longer."""


class Prepared(msgspec.Struct, frozen=True):
    """A plan that may be asked about: its steps with root-relative paths, and what acquisition will read.

    `windowed` says that the files are only looked at through read_lines, so that they need not be loaded.
    `mutates` holds the paths that some step names for mutation, `named` the existing ones that steps spell out.
    `kept` are, by step, the files that the policy closes to it and that nobody named: it leaves them as they are.
    """

    steps: tuple[CompiledStep, ...]
    resolved: Resolved
    windowed: bool
    mutates: tuple[str, ...]
    named: frozenset[str]
    kept: Mapping[int, frozenset[str]]


async def prepare(parts: PipelineParts, request: PlanRequest) -> Prepared:
    """Check a plan before its first question; raises the first refusal, with step and path named."""
    for step in request.steps:
        _require_served(parts, step)
    steps, entries, literals, optional = await off_loop(ENTRY * _paths_in(request), _localized, parts, request)
    named = [entry for entry in entries if not is_pattern(entry)] + literals
    looked = await _look_at_once(parts, steps, named, optional)
    windowed = all(step.step == "read_lines" for step in steps)
    resolving = replace(parts, bounds=_without_size_bounds(parts)) if windowed else parts
    try:
        literals += [path for path in optional if await acquire.exists(parts, path, looked)]
        resolved = await acquire.resolve(resolving, entries, literals, looked)
    except DevToolsError as error:
        raise error.at(step="acquire") from None
    kept: dict[int, frozenset[str]] = {}
    mutates = await _walk_steps(parts, steps, resolved, looked, kept)
    return Prepared(steps, resolved, windowed, tuple(sorted(mutates)), _named_by(steps), kept)


def _paths_in(request: PlanRequest) -> int:
    """About how many paths a plan spells out."""
    number = len(request.paths) + len(request.literals) + len(request.optional)
    for step in request.steps:
        number += len(step.patch.operations) if step.patch is not None else 1
    return number


def _localized(
    parts: PipelineParts, request: PlanRequest
) -> tuple[tuple[CompiledStep, ...], list[str], list[str], list[str]]:
    """The steps, and `paths`, literals and optional ones of a plan, with every path root-relative."""
    return (
        tuple([_localize(parts, step) for step in request.steps]),
        [_entry(parts, "acquire", entry) for entry in request.paths],
        [local_path(parts, "acquire", path) for path in request.literals],
        [local_path(parts, "acquire", path) for path in request.optional],
    )


def _named_by(steps: Sequence[CompiledStep]) -> frozenset[str]:
    """The files that must be there for the steps: what is wrong with one of them is told, never passed over."""
    named: set[str] = set()
    for step in steps:
        if isinstance(step.arguments, ReadLinesArguments | EditArguments | ReplaceArguments | WriteFileArguments):
            named.add(step.arguments.path)
        elif step.patch is not None:
            named.update(step.patch.acquires)
        else:
            named.update(entry for entry in getattr(step.arguments, "paths", None) or () if not is_pattern(entry))
    return frozenset(named)


def _without_size_bounds(parts: PipelineParts) -> acquire.Bounds:
    unbounded = 1 << 62
    return replace(parts.bounds, max_bytes_per_file=unbounded, max_total_bytes=unbounded)


def _require_served(parts: PipelineParts, step: CompiledStep) -> None:
    if step.step in ("format", "lint", "check"):
        require_engine(parts, step.step)
    if isinstance(step.arguments, LintArguments) and step.arguments.fix and not offers_fix(parts):
        raise BadArgumentError(
            "lint: no configured linter can fix; call lint without fix and edit the findings yourself", step="lint"
        )


def local_path(parts: PipelineParts, step: str, path: str) -> str:
    """A path made root-relative; a refusal names the step and the path as they were authored."""
    try:
        return parts.gauntlet.lexical(path)
    except DevToolsError as error:
        raise error.at(step=step, path=path[:_NAMED]) from None


def _entry(parts: PipelineParts, step: str, entry: str) -> str:
    """A `paths` entry with a literal made root-relative; patterns are relative by syntax."""
    return entry if is_pattern(entry) else local_path(parts, step, entry)


def _localize(parts: PipelineParts, step: CompiledStep) -> CompiledStep:
    """The step with every path root-relative; lexical refusals and containment happen here."""
    arguments = step.arguments
    if isinstance(arguments, ReadLinesArguments | EditArguments | ReplaceArguments | WriteFileArguments):
        path = local_path(parts, step.step, arguments.path)
        if path == arguments.path:
            return step
        return msgspec.structs.replace(step, arguments=arguments.model_copy(update={"path": path}))
    if isinstance(arguments, FormatArguments | LintArguments | WriteArguments) and arguments.paths is not None:
        paths = [_entry(parts, step.step, entry) for entry in arguments.paths]
        return msgspec.structs.replace(step, arguments=arguments.model_copy(update={"paths": paths}))
    if step.patch is not None:
        return msgspec.structs.replace(step, patch=step.patch.resolved(lambda path: local_path(parts, step.step, path)))
    return step


async def screen_path(parts: PipelineParts, step: str, path: str, access: Access) -> None:
    """Policy and links of a root-relative path; a refusal names the step and the path."""
    try:
        await parts.gauntlet.screen(path, access)
    except DevToolsError as error:
        raise error.at(step=step, path=path) from None


async def _look_at_once(
    parts: PipelineParts, steps: Sequence[CompiledStep], named: Sequence[str], optional: Sequence[str]
) -> Mapping[str, FileStat | None]:
    """Screen every path that is spelled out, before existence is looked at; what each is, as far as that was seen.

    All in one go where the file system can, which saves a thread hop a question. When something is refused, the
    single questions tell which step and which path it was.
    """
    touched: list[tuple[str, Access]] = [item for step in steps for item in _spelled_out(step, named).items()]
    touched.extend((path, "read") for path in (*named, *optional))
    try:
        looked = await parts.gauntlet.look_many(touched)
    except (DevToolsError, OSError):
        looked = None
    if looked is None:
        await _screen_named(parts, steps, named)
    return looked or {}


async def _screen_named(parts: PipelineParts, steps: Sequence[CompiledStep], named: Sequence[str]) -> None:
    """Policy and links for every path that is spelled out, before existence is looked at."""
    for step in steps:
        await _screen_together(parts, step.step, _spelled_out(step, named))
    for step, arriving in _arriving_together(steps):
        await _screen_together(parts, step.step, arriving)
    await _screen_together(parts, "acquire", dict.fromkeys(named, "read"))


def _arriving_together(steps: Sequence[CompiledStep]) -> list[tuple[CompiledStep, dict[str, Access]]]:
    """The writes of a plan that land what its patches made, each with all that will have come into being by then."""
    found: list[tuple[CompiledStep, dict[str, Access]]] = []
    waiting: dict[str, Access] = {}
    there: dict[str, Access] = {}
    for step in steps:
        if step.patch is not None:
            for path, access in _accesses(step.patch).items():
                if access == "create":
                    waiting[path] = access
                elif access == "delete":
                    waiting.pop(path, None)
                    there.pop(path, None)
        elif isinstance(step.arguments, WriteArguments):
            written = [path for path in waiting if _selects(step.arguments.paths, path)]
            there.update((path, waiting.pop(path)) for path in written)
            if written:
                found.append((step, dict(there)))
    return found


def _selects(entries: Sequence[str] | None, path: str) -> bool:
    """Whether the `paths` of a step cover a path; what is not a pattern after all is refused when the step runs."""
    if entries is None or path in entries:
        return True
    try:
        return any(PathPattern.parse(entry).matches(path, dot_names=False) for entry in entries if is_pattern(entry))
    except BadArgumentError:
        return False


def _spelled_out(step: CompiledStep, named: Sequence[str]) -> dict[str, Access]:
    """What a step does to the paths that it names itself, or to those that the plan names."""
    if isinstance(step.arguments, EditArguments | ReplaceArguments | WriteFileArguments):
        return {step.arguments.path: "write"}
    if step.patch is not None:
        return _accesses(step.patch)
    if step.changes_text():
        selected = getattr(step.arguments, "paths", None)
        writes = named if selected is None else [entry for entry in selected if not is_pattern(entry)]
        return dict.fromkeys(writes, "write")
    return {}


async def _screen_together(parts: PipelineParts, step: str, paths: Mapping[str, Access]) -> None:
    """As `screen_path` for what one step touches: some of it is harmful only beside the rest."""
    try:
        await parts.gauntlet.screen_many(list(paths.items()))
    except DevToolsError as error:
        raise error.at(step=step, path=next(iter(paths)) if len(paths) == 1 else None) from None


def _accesses(patch: ParsedPatch) -> dict[str, Access]:
    """What a patch does to each path that it names."""
    creates, removes = set(patch.may_create), set(patch.removes)
    return {path: "create" if path in creates else "delete" if path in removes else "write" for path in patch.targets}


async def _walk_steps(
    parts: PipelineParts,
    steps: Sequence[CompiledStep],
    resolved: Resolved,
    looked: Mapping[str, FileStat | None],
    kept: dict[int, frozenset[str]],
) -> set[str]:
    """Follow which paths exist through the steps; returns every path that some step names for mutation.

    Files that patterns brought to a step and that it may not write go into `kept`.
    """
    present = set(resolved.targets)
    freed: set[str] = set()
    mutates: set[str] = set()
    certain = True
    for step in steps:
        arguments = step.arguments
        if isinstance(arguments, WriteFileArguments):
            mutates.add(arguments.path)
        elif isinstance(arguments, ReadLinesArguments | EditArguments | ReplaceArguments):
            if certain:
                require_acquired(step.step, arguments.path, present)
            if not isinstance(arguments, ReadLinesArguments):
                mutates.add(arguments.path)
        elif isinstance(arguments, ApplyPatchArguments):
            assert step.patch is not None
            if certain:
                for path in step.patch.acquires:
                    require_acquired(step.step, path, present)
            for path in step.patch.may_create:
                if path not in present and path not in freed and await acquire.exists(parts, path, looked):
                    raise StepFailedError(
                        f"apply_patch: {path} exists already; update it with *** Update File, or choose another name",
                        reason="exists",
                        step=step.step,
                        path=path,
                    )
            created = set(step.patch.may_create)
            gone = set(step.patch.removes) - created
            freed |= gone
            present = (present - gone) | created
            mutates |= set(step.patch.targets)
        elif step.changes_text():
            selectors = getattr(arguments, "paths", None)
            chosen = select_paths(step.step, selectors, present) if certain else []
            spelled = resolved.spelled if selectors is None else frozenset(selectors)
            closed = await acquire.refused_among(parts, [path for path in chosen if path not in spelled], "write")
            if len(closed) < len(chosen):
                kept[step.index] = closed
                chosen = [path for path in chosen if path not in closed]
            await _screen_together(parts, step.step, dict.fromkeys(chosen, "write"))
            mutates.update(chosen)
            certain = certain and not _may_add(parts, step)
        elif isinstance(arguments, FormatArguments | LintArguments) and certain:
            select_paths(step.step, arguments.paths, present)
    return mutates


def _may_add(parts: PipelineParts, step: CompiledStep) -> bool:
    """Whether the step's engines can bring files into being, so that later paths cannot be foretold."""
    engine_step: EngineStep = "format" if step.step == "format" else "lint"
    return any(
        capability.generates or capability.in_place or capability.needs
        for engine in parts.engines()
        for capability in (engine.formats if engine_step == "format" else engine.lints)
    )


def require_acquired(step: str, path: str, present: Collection[str]) -> None:
    """Raise BadArgumentError `notAcquired` for a path that the plan did not acquire (SPEC 3.1.2)."""
    if path not in present:
        raise BadArgumentError(
            f"{step}: {path} is not among the files this plan acquired; add it to paths",
            reason="notAcquired",
            step=step,
            path=path,
        )


def select_paths(step: str, selectors: Sequence[str] | None, present: Collection[str]) -> list[str]:
    """Which of the acquired files a step's `paths` name; all of them when absent. Sorted.

    Raises BadArgumentError: `notAcquired` for a literal, `notFound` for a pattern that matches nothing.
    """
    if selectors is None:
        return sorted(present)
    chosen: set[str] = set()
    for entry in selectors:
        if not is_pattern(entry):
            if entry not in present:
                # A name may hold ? or [ literally; when no such file is there, it was meant as a pattern.
                _refuse_pattern_syntax(step, entry)
            require_acquired(step, entry, present)
            chosen.add(entry)
            continue
        pattern = PathPattern.parse(entry)
        matched = [path for path in present if pattern.matches(path, dot_names=False)]
        if not matched:
            raise BadArgumentError(
                f"{step}: pattern {entry!r} matches none of the acquired files",
                reason="notFound",
                step=step,
                path=entry,
            )
        chosen.update(matched)
    return sorted(chosen)


def _refuse_pattern_syntax(step: str, entry: str) -> None:
    try:
        PathPattern.parse(entry)
    except BadArgumentError as error:
        raise error.at(step=step, path=entry) from None

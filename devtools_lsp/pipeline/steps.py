"""The one table of steps: argument models, from which validation, messages and tool schemas all come (SPEC 3.1).

Owns what a plan may say. Compiling validates every argument and parses every patch, and touches nothing else.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeGuard, get_args

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from devtools_lsp.core.patch.parse import ParsedPatch, parse_patch
from devtools_lsp.core.wording import complaint, place, shown
from devtools_lsp.errors import BadArgumentError, DevToolsError, UnknownStepError
from devtools_lsp.paths import MAX_PATH_BYTES, PathPattern, is_pattern

RelativePath = Annotated[
    str, Field(min_length=1, description="File path relative to the workspace root, `/` separated.")
]
PathList = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    Field(
        min_length=1,
        description="Files relative to the workspace root. `*` matches within a name, `**` any directories.",
    ),
]


class StepArguments(BaseModel):
    """Base of every step's arguments: unknown names and wrong types are refused, nothing is coerced."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ReadLinesArguments(StepArguments):
    """Read a window of a file by line numbers."""

    path: RelativePath
    start: int = Field(ge=1, description="First line to read, 1-based.")
    end: int | None = Field(default=None, ge=1, description="Last line to read, inclusive; absent = to the end.")

    @model_validator(mode="after")
    def _ordered(self) -> ReadLinesArguments:
        if self.end is not None and self.end < self.start:
            raise ValueError(f"end ({self.end}) must not be before start ({self.start})")
        return self


class EditBlock(StepArguments):
    """One replacement."""

    find: str = Field(
        min_length=1,
        description="Exact text to replace; it must occur exactly once. Include enough lines to be unique.",
    )
    replace: str = Field(description="Text to put in its place, verbatim.")


class EditArguments(StepArguments):
    """Replace exact text in one file; all blocks apply or none."""

    path: RelativePath
    edits: list[EditBlock] = Field(min_length=1, description="Replacements, applied together or not at all.")


class ApplyPatchArguments(StepArguments):
    """Apply a patch over any number of files, as a whole or not at all."""

    patch: str = Field(
        min_length=1,
        description="A patch: either `*** Begin Patch` ... `*** End Patch` with `*** Add File:`, `*** Update File:`, "
        "`*** Move to:` and `*** Delete File:` sections, or a unified or git diff.",
    )


class WriteArguments(StepArguments):
    """Write the plan's changes to disk."""

    paths: PathList | None = Field(default=None, description="Only these files; absent = everything that changed.")


class FormatArguments(StepArguments):
    """Format files with the configured formatters."""

    paths: PathList | None = Field(default=None, description="Only these acquired files; absent = all of them.")


class LintArguments(StepArguments):
    """Lint files with the configured linters."""

    paths: PathList | None = Field(default=None, description="Only these acquired files; absent = all of them.")
    fix: bool = Field(default=False, description="Apply the linters' safe fixes.")


class CheckArguments(StepArguments):
    """Judge the whole workspace with the configured checkers."""


class ReplaceArguments(StepArguments):
    """edit_file: one text replaced once, or everywhere with replace_all. The gate knows it as `edit`."""

    path: RelativePath
    old_string: str = Field(
        min_length=1, description="Exact text to replace, copied from read_file without the line numbers."
    )
    new_string: str = Field(description="Text to put in its place, verbatim.")
    replace_all: bool = Field(default=False, description="Replace every occurrence instead of exactly one.")


class WriteFileArguments(StepArguments):
    """write_file: a whole file's content. The gate knows it as `write_file`."""

    path: RelativePath
    content: str = Field(description="The whole content of the file.")


OpName = Literal["read_lines", "edit", "apply_patch", "write", "format", "lint", "check"]

StepName = OpName | Literal["write_file"]
"""What the gate may call a step of a plan: the ops, and the one that only the workspace surface has."""

STEP_ARGUMENTS: dict[OpName, type[StepArguments]] = {
    "read_lines": ReadLinesArguments,
    "edit": EditArguments,
    "apply_patch": ApplyPatchArguments,
    "write": WriteArguments,
    "format": FormatArguments,
    "lint": LintArguments,
    "check": CheckArguments,
}

STEP_REQUIRES: dict[OpName, Literal["format", "lint", "check"]] = {
    "format": "format",
    "lint": "lint",
    "check": "check",
}
"""Which capability a step needs some engine to have; steps not listed need none."""


class CompiledStep(msgspec.Struct, frozen=True):
    """One validated op. `args` is what the caller authored, byte for byte; `patch` is parsed already."""

    index: int
    step: StepName
    args: Mapping[str, Any]
    arguments: StepArguments
    label: str | None = None
    patch: ParsedPatch | None = None

    def changes_text(self) -> bool:
        """Whether the step can change text, so that a granular call of it persists (SPEC 7.1)."""
        if isinstance(self.arguments, LintArguments):
            return self.arguments.fix
        return self.step in ("edit", "apply_patch", "format", "write_file")

    @property
    def key(self) -> str:
        """The result's key of a read_lines step."""
        if self.label is not None:
            return self.label
        return str(self.args.get("path", ""))


def require_object(step: str, arguments: object) -> Mapping[str, Any]:
    """Arguments as the wire may say them, which is anything; raises BadArgumentError unless they are an object."""
    # Nearly always a dict, which is known much sooner than that something is a mapping.
    if isinstance(arguments, dict | Mapping):
        return arguments  # pyright: ignore[reportUnknownVariableType] -- what is in it is judged by the model
    raise BadArgumentError(f"{step}: arguments must be an object", step=step, reason="malformed")


_TOLD = 5
"""Faults of one call that are told; the rest is counted."""


def validate_arguments(step: str, model: type[StepArguments], args: Mapping[str, Any]) -> StepArguments:
    """Validate authored arguments; raises BadArgumentError that names the step and the argument."""
    try:
        return model.model_validate(dict(require_object(step, args)))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        # What an object takes is said once, however many of its arguments are missing.
        sentences = list(dict.fromkeys(_explain(model, problem, problems) for problem in problems[:_TOLD]))
        if len(problems) > _TOLD:
            sentences.append(f"and {len(problems) - _TOLD} more")
        raise BadArgumentError(
            f"{step}: {'; '.join(sentences)}", step=step, path=_path_in(args), reason="malformed"
        ) from None


def _path_in(args: Mapping[str, Any]) -> str | None:
    """The path that authored arguments name, for an error to repeat."""
    named = args.get("path")
    return named[:MAX_PATH_BYTES] if isinstance(named, str) and named else None


def compile_ops(ops: Sequence[Mapping[str, Any]]) -> list[CompiledStep]:
    """Validate a plan's ops and parse its patches without running anything.

    Raises UnknownStepError or BadArgumentError; the message names the op's position, step and argument.
    """
    if not ops:
        raise BadArgumentError("a plan needs at least one op; ops is empty", reason="malformed")
    compiled: list[CompiledStep] = []
    labels: set[str] = set()
    keys: set[str] = set()
    for index, op in enumerate(ops):
        step = _compile_op(index, op)
        if step.label is not None:
            if step.label in labels:
                raise BadArgumentError(
                    f"ops[{index}] ({step.step}): label {shown(step.label)} is used twice; labels must differ",
                    step=step.step,
                    path=_path_in(step.args),
                    reason="malformed",
                )
            labels.add(step.label)
        if step.step == "read_lines":
            if step.key in keys:
                raise BadArgumentError(
                    f"ops[{index}] (read_lines): the result key {shown(step.key)} is used twice; give one a label",
                    step="read_lines",
                    path=_path_in(step.args),
                    reason="malformed",
                )
            keys.add(step.key)
        compiled.append(step)
    return compiled


def _compile_op(index: int, op: Mapping[str, Any]) -> CompiledStep:
    if not isinstance(op, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] -- the wire can say anything
        raise BadArgumentError(f"ops[{index}] must be an object {{step, args, label?}}", reason="malformed")
    unknown = sorted(set(op) - {"step", "args", "label"})
    if unknown:
        raise BadArgumentError(
            f"ops[{index}]: unknown field {shown(unknown[0])}; an op is {{step, args, label?}}", reason="malformed"
        )
    name = op.get("step")
    if not isinstance(name, str):
        raise BadArgumentError(f"ops[{index}]: step must be a string", reason="malformed")
    if name not in STEP_ARGUMENTS:
        near = difflib.get_close_matches(name[:100], STEP_ARGUMENTS, n=1)
        hint = f"did you mean {near[0]!r}? The" if near else "the"
        raise UnknownStepError(
            f"ops[{index}]: there is no step {name[:100]!r}; {hint} steps are {', '.join(STEP_ARGUMENTS)}",
            step=name[:100],
            alternatives=list(STEP_ARGUMENTS),
        )
    args = op.get("args", {})
    if not isinstance(args, Mapping):
        raise BadArgumentError(f"ops[{index}] ({name}): args must be an object", step=name, reason="malformed")
    label = op.get("label")
    if label is not None and not isinstance(label, str):
        raise BadArgumentError(f"ops[{index}] ({name}): label must be a string", step=name, reason="malformed")
    authored: dict[str, Any] = {str(key): value for key, value in args.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] -- checked below
    try:
        step = compile_step(name, authored, index=index)  # pyright: ignore[reportArgumentType] -- membership was tested
    except BadArgumentError as error:
        # Which of several alike it is, its step alone does not say.
        message = f"ops[{index}] ({name}): {error.message.removeprefix(f'{name}: ')}"
        raise DevToolsError.from_wire({**error.to_wire(), "message": message}) from None
    return CompiledStep(index, step.step, step.args, step.arguments, label, step.patch)


def compile_step(step: OpName, args: Mapping[str, Any], *, index: int = 0) -> CompiledStep:
    """Validate one step's authored arguments and parse its patch."""
    arguments = validate_arguments(step, STEP_ARGUMENTS[step], args)
    if isinstance(arguments, FormatArguments | LintArguments | WriteArguments):
        _check_patterns(step, arguments.paths or ())
    patch = None
    if isinstance(arguments, ApplyPatchArguments):
        try:
            patch = parse_patch(arguments.patch)
        except BadArgumentError as error:
            raise error.at(step=step) from None
    return CompiledStep(index, step, args, arguments, patch=patch)


def _check_patterns(step: OpName, paths: Sequence[str]) -> None:
    for entry in paths:
        if is_pattern(entry):
            try:
                PathPattern.parse(entry)
            except BadArgumentError as error:
                raise error.at(step=step) from None


def _explain(model: type[BaseModel], problem: Any, problems: Sequence[Any]) -> str:
    """One sentence about one validation problem that names the argument, or all that are missing at its place."""
    location: tuple[int | str, ...] = problem["loc"]
    kind = problem["type"]
    where = place(location)
    if kind == "extra_forbidden":
        name, known = str(location[-1]), _fields_at(model, location[:-1])
        near = difflib.get_close_matches(name[:100], known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
        return f"unknown argument {where!r}; {hint}"
    if kind == "missing":
        missing = [other["loc"] for other in problems if other["type"] == kind and other["loc"][:-1] == location[:-1]]
        named = " and ".join(repr(place(other)) for other in missing)
        words = f"argument {named} is" if len(missing) == 1 else f"arguments {named} are"
        return f"{words} missing; {place(location[:-1]) or 'it'} takes {', '.join(_fields_at(model, location[:-1]))}"
    if location[-1:] == ("find",) and kind == "string_too_short":
        return (
            f"argument {where!r} is empty; quote the text to replace. To append, find the last line and repeat it in "
            "replace; to create a file use apply_patch with *** Add File (or write_file)"
        )
    return f"argument {where!r} {complaint(problem)}" if where else complaint(problem)


def _fields_at(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """The names that the object at a place takes."""
    for part in location:
        if isinstance(part, str):
            annotation = model.model_fields[part].annotation
            nested = next((kind for kind in get_args(annotation) if _is_model(kind)), annotation)
            if not _is_model(nested):
                return []
            model = nested
    return list(model.model_fields)


def _is_model(kind: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)

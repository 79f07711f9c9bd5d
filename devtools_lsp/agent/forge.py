"""Tools from steps: what an agent is offered, generated from the step models and from what could be served.

Owns the granular and the composite surface (SPEC section 7): names, descriptions, schemas, annotations, and the
narrowing to what some engine serves and to what read-only mode leaves. It adds no gate and offers no option for
one: the pipeline asks, under the step's own name, whatever a tool is called.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import msgspec

from devtools_lsp.agent.schemas import merged_arguments, schema_of
from devtools_lsp.core.result import Result
from devtools_lsp.core.wording import shown
from devtools_lsp.errors import (
    BadArgumentError,
    EngineRequiredError,
    InvalidConfigError,
    ReadOnlyError,
    UnknownStepError,
)
from devtools_lsp.pipeline.pipeline import DevPipeline, check_paths
from devtools_lsp.pipeline.steps import STEP_ARGUMENTS, STEP_REQUIRES, OpName, require_object
from devtools_lsp.ports import Cancellation

SurfaceName = Literal["granular", "composite", "workspace"]
COMPOSITE_TOOL = "dev_plan"

GRANULAR: tuple[OpName, ...] = ("read_lines", "edit", "apply_patch", "format", "lint", "check")
READING: frozenset[str] = frozenset({"read_lines", "lint", "check"})
PATHS_REQUIRED: frozenset[str] = frozenset({"format", "lint", "check"})

_PATHS_SCHEMA: dict[str, Any] = {
    "type": "array",
    "items": {"type": "string"},
    "minItems": 1,
}

_DESCRIPTIONS: dict[str, str] = {
    "read_lines": "Read lines of a text file by number (1-based, inclusive). Works on files of any size.",
    "edit": "Replace exact text in one file and save it. Each find must occur exactly once in the file as it is now; "
    "all blocks apply or none. Line endings and encoding are kept. A person may be asked to approve. Suits every "
    "model; for several files or steps at once use apply_patch, or dev_plan where it is offered.",
    "apply_patch": "Apply a patch over one or many files and save them: all of it or nothing. Takes the "
    "*** Begin Patch envelope (Add File, Update File, Move to, Delete File) or a unified or git diff. Context lines "
    "must match; line numbers only settle ties.",
    "format": "Format files with the project's formatter and save them.",
    "lint": "Lint files with the project's linters. With fix, apply their safe fixes and save; the findings that "
    "remain are returned.",
    "check": "Type-check with the project's checkers. Judges the named files and reports errors elsewhere that "
    "depend on them.",
    COMPOSITE_TOOL: "Run several steps on a set of files in one call, in memory, and save only at a `write` step: "
    "for example edit, lint with fix, check, and then write. Findings of lint and check describe the text in memory. "
    "Suits frontier models; smaller models do better with the granular tools.",
}

_EXAMPLES: dict[str, dict[str, Any]] = {
    "read_lines": {"path": "src/app.py", "start": 10, "end": 40},
    "edit": {"path": "src/app.py", "edits": [{"find": "total = 0\n", "replace": "total = start\n"}]},
    "apply_patch": {
        "patch": "*** Begin Patch\n*** Update File: src/app.py\n@@ def main():\n-    run()\n+    run(debug=True)\n"
        "*** End Patch\n"
    },
    "format": {"paths": ["src/app.py"]},
    "lint": {"paths": ["src/**/*.py"], "fix": True},
    "check": {"paths": ["src/app.py"]},
    COMPOSITE_TOOL: {
        "paths": ["src/app.py"],
        "ops": [
            {"step": "edit", "args": {"path": "src/app.py", "edits": [{"find": "a", "replace": "b"}]}},
            {"step": "check"},
            {"step": "write"},
        ],
    },
}


class Invocation(msgspec.Struct, frozen=True):
    """Who calls a tool, and the switch that cancels the call.

    `foretold` may be told the answer that a call which writes will have if all of it lands, while the disk is waited
    for: so much is ready then.
    """

    agent: str
    session: str
    signal: Cancellation
    plan: str | None = None
    foretold: Callable[[ToolAnswer], None] | None = None


class ToolAnswer(msgspec.Struct, frozen=True):
    """What a tool returns: the result, and for workspace tools the text and data of their own."""

    result: Result
    content: str | None = None
    data: Mapping[str, Any] | None = None


Progress = Callable[[str, str], Awaitable[None]]
"""Told (stream, text) as a command prints."""


class ToolCall(Protocol):
    """The function behind a tool."""

    async def __call__(
        self, arguments: Mapping[str, Any], who: Invocation, progress: Progress | None = None, /
    ) -> ToolAnswer:
        """Run it; raises the taxonomy's errors."""
        ...


@dataclass(frozen=True, slots=True)
class Tool:
    """One offered tool. `step` is the gate's name for it, whatever `name` says."""

    name: str
    step: str
    description: str
    input_schema: Mapping[str, Any]
    read_only: bool
    call: ToolCall
    title: str = ""
    destructive: bool = False

    def to_wire(self) -> dict[str, Any]:
        """`{name, description, inputSchema, annotations}` as `devtools/tools` and MCP list it."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": dict(self.input_schema),
            "annotations": {
                "title": self.title or self.name,
                "readOnlyHint": self.read_only,
                "destructiveHint": self.destructive,
                "idempotentHint": self.read_only,
                "openWorldHint": False,
            },
        }


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of one surface, by name."""

    tools: Mapping[str, Tool]
    withheld: Mapping[str, Exception] = field(default_factory=dict[str, Exception])

    def find(self, name: str) -> Tool:
        """The tool of that name; raises UnknownStepError that lists those there are, or why it is not offered."""
        tool = self.tools.get(name)
        if tool is not None:
            return tool
        if name in self.withheld:
            # The error is the set's own: each time it is raised it would keep one more caller's frames.
            raise self.withheld[name].with_traceback(None)
        near = difflib.get_close_matches(name[:100], self.tools, n=1)
        hint = f"did you mean {near[0]!r}? The" if near else "the"
        raise UnknownStepError(
            f"there is no tool {name[:100]!r}; {hint} tools are {', '.join(self.tools)}",
            step=name[:100],
            alternatives=list(self.tools),
        )

    def to_wire(self) -> list[dict[str, Any]]:
        """The list for `devtools/tools`."""
        return [tool.to_wire() for tool in self.tools.values()]


def describe_step(name: str) -> str:
    """A tool's description as agents read it."""
    return _DESCRIPTIONS[name]


def forge_dev_tools(
    pipeline: DevPipeline,
    surface: Literal["granular", "composite"] = "granular",
    overrides: Mapping[str, Mapping[str, str]] | None = None,
) -> ToolSet:
    """The tools of a surface. `overrides` maps a step (or `dev_plan`) to another `name` or `description`.

    Raises InvalidConfigError for an override of something that does not exist or that collides.
    """
    withheld: dict[str, Exception] = {}
    if surface == "composite":
        tools = [_composite(pipeline)]
    else:
        tools = [tool for step in GRANULAR if (tool := _granular(pipeline, step, withheld)) is not None]
    known = {*GRANULAR, COMPOSITE_TOOL}
    for step, override in (overrides or {}).items():
        unknown = set(override) - {"name", "description"}
        if step not in known or unknown:
            raise InvalidConfigError(
                f"overrides.{step}: "
                + (f"unknown key {min(unknown)!r}" if unknown else f"no such step; {sorted(known)}")
            )
    renamed = [_overridden(tool, (overrides or {}).get(tool.step, {})) for tool in tools]
    by_name = {tool.name: tool for tool in renamed}
    if len(by_name) != len(renamed):
        raise InvalidConfigError("overrides give two tools the same name")
    return ToolSet(by_name, withheld)


def _overridden(tool: Tool, override: Mapping[str, str]) -> Tool:
    return replace(
        tool, name=override.get("name", tool.name), description=override.get("description", tool.description)
    )


def _granular(pipeline: DevPipeline, step: OpName, withheld: dict[str, Exception]) -> Tool | None:
    if pipeline.read_only and step not in READING:
        withheld[step] = ReadOnlyError(f"{step} changes files and this workspace is read-only", step=step)
        return None
    if step in STEP_REQUIRES and not pipeline.offers(step):
        withheld[step] = EngineRequiredError(
            f"no engine is configured for {step}; do not retry. Offered: "
            f"{', '.join(name for name in GRANULAR if name not in STEP_REQUIRES or pipeline.offers(name))}",
            step=step,
            alternatives=[name for name in GRANULAR if name not in STEP_REQUIRES or pipeline.offers(name)],
        )
        return None
    fixes = step == "lint" and pipeline.offers_fix() and not pipeline.read_only
    dropped = ("paths",) if step != "lint" or fixes else ("paths", "fix")
    schema = schema_of(STEP_ARGUMENTS[step], without=dropped)
    required = step in PATHS_REQUIRED
    schema["properties"]["paths"] = {
        **_PATHS_SCHEMA,
        "description": "Files to work on, relative to the workspace root; `*` and `**` are wildcards."
        if required
        else "More files to acquire with the call; usually left out.",
    }
    if required:
        schema["required"] = ["paths", *schema.get("required", [])]
    example = _EXAMPLES[step] if fixes or step != "lint" else {"paths": ["src/**/*.py"]}
    schema["examples"] = [example]

    async def call(arguments: Mapping[str, Any], who: Invocation, _progress: Progress | None = None) -> ToolAnswer:
        args, paths = split_paths(step, arguments, required=required)
        if step == "lint" and pipeline.read_only and args.get("fix"):
            raise ReadOnlyError("lint with fix changes files and this workspace is read-only", step=step)
        result = await pipeline.single(
            step,
            args,
            paths=paths,
            agent=who.agent,
            session=who.session,
            signal=who.signal,
            plan=who.plan,
            foretold=who.foretold and _told_as_answer(who.foretold),
        )
        return ToolAnswer(result)

    return Tool(
        name=step,
        step=step,
        description=_DESCRIPTIONS[step],
        input_schema=schema,
        read_only=step in READING and not fixes,
        call=call,
        title=step.replace("_", " ").capitalize(),
        destructive=step == "apply_patch",
    )


def _told_as_answer(told: Callable[[ToolAnswer], None]) -> Callable[[Result], None]:
    def tell(result: Result) -> None:
        told(ToolAnswer(result))

    return tell


def split_paths(step: str, arguments: Mapping[str, Any], *, required: bool) -> tuple[dict[str, Any], list[str] | None]:
    """A granular tool's arguments without `paths`, which belongs to acquisition, and `paths` (SPEC 7.4)."""
    args = dict(require_object(step, arguments))
    paths = args.pop("paths", None)
    if paths is None:
        if required:
            raise BadArgumentError(
                f"{step}: argument 'paths' is missing; name the files to work on, or patterns such as src/**/*.py",
                step=step,
                reason="malformed",
            )
        return args, None
    if not isinstance(paths, Sequence) or isinstance(paths, str) or not paths:
        came = "an empty list" if isinstance(paths, Sequence) and not isinstance(paths, str) else shown(paths)
        raise BadArgumentError(
            f"{step}: argument 'paths' must be a list of at least one path or pattern, not {came}",
            step=step,
            reason="malformed",
        )
    entries: list[Any] = list(paths)  # pyright: ignore[reportUnknownArgumentType] -- checked entry by entry below
    try:
        check_paths(entries)
    except BadArgumentError as error:
        raise BadArgumentError(f"{step}: {error.message}", step=step, reason="malformed") from None
    return args, entries


def _composite(pipeline: DevPipeline) -> Tool:
    steps: list[OpName] = [step for step in STEP_ARGUMENTS if _in_plan(pipeline, step)]

    async def call(arguments: Mapping[str, Any], who: Invocation, _progress: Progress | None = None) -> ToolAnswer:
        unknown = sorted(set(require_object(COMPOSITE_TOOL, arguments)) - {"paths", "ops"})
        if unknown:
            raise BadArgumentError(
                f"{COMPOSITE_TOOL}: unknown argument {shown(unknown[0])}; it takes paths and ops", step=COMPOSITE_TOOL
            )
        ops, paths = arguments.get("ops"), arguments.get("paths", [])
        if not isinstance(ops, Sequence) or isinstance(ops, str):
            came = "is missing" if ops is None else f"must be a list, not {shown(ops)}"
            raise BadArgumentError(
                f"{COMPOSITE_TOOL}: argument 'ops' {came}; an op is {{step, args, label?}}", step=COMPOSITE_TOOL
            )
        if not isinstance(paths, Sequence):
            raise BadArgumentError(
                f"{COMPOSITE_TOOL}: argument 'paths' must be a list of paths and patterns, not {shown(paths)}",
                step=COMPOSITE_TOOL,
            )
        result = await pipeline.ops(
            paths,  # pyright: ignore[reportUnknownArgumentType] -- the pipeline checks the entries
            ops,  # pyright: ignore[reportUnknownArgumentType] -- as above
            agent=who.agent,
            session=who.session,
            signal=who.signal,
            plan=who.plan,
        )
        return ToolAnswer(result)

    return Tool(
        name=COMPOSITE_TOOL,
        step=COMPOSITE_TOOL,
        description=_DESCRIPTIONS[COMPOSITE_TOOL],
        input_schema={
            "type": "object",
            "properties": {
                "paths": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Every existing file that the steps work on, relative to the workspace root; `*` "
                    "and `**` are wildcards. May be empty for a patch that only adds files.",
                },
                "ops": {
                    "type": "array",
                    "minItems": 1,
                    "description": "The steps, run in order on the files in memory.",
                    "items": _op_schema(pipeline, steps),
                },
            },
            "required": ["paths", "ops"],
            "additionalProperties": False,
            "examples": [_plan_example(steps)],
        },
        read_only=pipeline.read_only,
        call=call,
        title="Run a plan",
        destructive=not pipeline.read_only,
    )


def _plan_example(steps: Sequence[str]) -> dict[str, Any]:
    """The example with only such steps as are offered."""
    example = _EXAMPLES[COMPOSITE_TOOL]
    ops = [op for op in example["ops"] if op["step"] in steps]
    return {**example, "ops": ops or [{"step": "read_lines", "args": {"path": "src/app.py", "start": 1}}]}


def _in_plan(pipeline: DevPipeline, step: OpName) -> bool:
    if step in STEP_REQUIRES and not pipeline.offers(step):
        return False
    return not pipeline.read_only or step in READING


def _op_schema(pipeline: DevPipeline, steps: Sequence[OpName]) -> dict[str, Any]:
    """One object that any op is, with the arguments of all steps; which step takes which is said in words.

    Alternatives would say it in the schema, but harnesses exist that turn a node without `type` into a string, and
    providers that refuse alternatives below an array.
    """
    fixes = pipeline.offers_fix() and not pipeline.read_only
    shapes = {
        step: schema_of(STEP_ARGUMENTS[step], without=("fix",) if step == "lint" and not fixes else ())
        for step in steps
    }
    meanings = [f"{step}: {(STEP_ARGUMENTS[step].__doc__ or '').strip()}" for step in steps]
    return {
        "type": "object",
        "properties": {
            "step": {"type": "string", "enum": list(steps), "description": " ".join(meanings)},
            "args": merged_arguments(shapes),
            "label": {"type": "string", "description": "A name for this op; the key of what a read_lines returns."},
        },
        "required": ["step"],
        "additionalProperties": False,
    }
